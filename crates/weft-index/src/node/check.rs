//! Whether a page is a node: what is asked of each one that comes from a device.

use weft_buffer::PAGE_UNIT_BYTES;

use super::{
    DEAD_AT, HAS_HIGH, HAS_LOW, HEAD_BYTES, HEAP_AT, HIGH_AT, HIGH_LEN_AT, HINTS, HINTS_AT,
    KIND_NODE, LOW_AT, LOW_LEN_AT, Node, NodeBytes, SLOT_BYTES, SLOTS_AT, hint_distance,
};

/// Bytes of the largest node: a slot has 16 bits for words.
pub(crate) const NODE_BYTES_MAX: usize = 16 * PAGE_UNIT_BYTES;

/// Most bytes of an entry of a node of this size: several fit beside two fences as long, so that halves of a
/// node have room for one more.
pub(crate) fn entry_bytes_max(node_bytes: usize) -> usize {
    (node_bytes - SLOTS_AT) / 8
}

/// Says what is wrong with a page that should be a node. One that passes leads nowhere outside of itself,
/// its keys are in order and between its fences.
pub(crate) fn check_node(page: &[u8]) -> Result<(), &'static str> {
    let node = Node(page);
    if page.len() < PAGE_UNIT_BYTES || page.len() > NODE_BYTES_MAX {
        return Err("no node has this size");
    }
    if page[6] != KIND_NODE || !node.is_alive() {
        return Err("it is no node of an index");
    }
    let (count, heap_at) = (node.count(), page.u32_at(HEAP_AT) as usize);
    if heap_at > page.len() || SLOTS_AT + count * SLOT_BYTES > heap_at {
        return Err("it has more slots than fit");
    }
    if node.level() > 0 && count == 0 {
        return Err("it has no child");
    }
    let low = fence(page, HAS_LOW, LOW_AT, LOW_LEN_AT, heap_at)?;
    let high = fence(page, HAS_HIGH, HIGH_AT, HIGH_LEN_AT, heap_at)?;
    if low.is_some() && high.is_some() && low >= high {
        return Err("its fences are out of order");
    }
    let prefix_len = node.prefix_len();
    let begins_alike = match (low, high) {
        (Some(low), Some(high)) => {
            let shared = low.get(..prefix_len);
            shared.is_some() && shared == high.get(..prefix_len)
        }
        _ => prefix_len == 0,
    };
    if !begins_alike {
        return Err("its fences do not begin with its prefix");
    }
    let fences_len = low.map_or(0, <[u8]>::len).max(high.map_or(0, <[u8]>::len));
    if fences_len > entry_bytes_max(page.len()) {
        return Err("a fence is longer than a key may be");
    }
    check_slots(page, heap_at, low, high)?;
    let distance = hint_distance(count);
    for index in 0..HINTS {
        let expected = if distance == 0 { 0 } else { node.slot((index + 1) * distance).head };
        if page.u32_at(HINTS_AT + 4 * index) != expected {
            return Err("a hint is wrong");
        }
    }
    Ok(())
}

fn fence(
    page: &[u8],
    flag: u8,
    at: usize,
    len_at: usize,
    heap_at: usize,
) -> Result<Option<&[u8]>, &'static str> {
    if Node(page).flags() & flag == 0 {
        return Ok(None);
    }
    let (at, len) = (page.u32_at(at) as usize, usize::from(page.u16_at(len_at)));
    let found = page.get(at..at.saturating_add(len)).filter(|_| at >= heap_at);
    found.map(Some).ok_or("a fence lies outside")
}

fn check_slots(
    page: &[u8],
    heap_at: usize,
    low: Option<&[u8]>,
    high: Option<&[u8]>,
) -> Result<(), &'static str> {
    let node = Node(page);
    let (mut before, mut key) = (Vec::new(), Vec::new());
    let padded = |fence: Option<&[u8]>| fence.map_or(0, |fence| fence.len().next_multiple_of(4));
    let mut used_bytes = padded(low) + padded(high) + page.u32_at(DEAD_AT) as usize;
    for index in 0..node.count() {
        let slot = node.slot(index);
        let fits = |bytes: usize| {
            slot.record_at >= heap_at && slot.record_at.saturating_add(bytes) <= page.len()
        };
        if !fits(node.fixed_bytes()) || !fits(node.record_bytes(index)) {
            return Err("a record lies outside");
        }
        used_bytes = used_bytes.saturating_add(node.record_bytes(index));
        let key_len = node.prefix_len() + slot.suffix_len;
        if used_bytes > page.len() - heap_at || key_len > entry_bytes_max(page.len()) {
            return Err("its records are longer than they may be");
        }
        // Words are compared whole.
        let tail_len = slot.suffix_len.saturating_sub(HEAD_BYTES);
        let tail_at = slot.record_at + node.fixed_bytes();
        let padding = &page[tail_at + tail_len..tail_at + tail_len.next_multiple_of(4)];
        let head = slot.head.to_be_bytes();
        let unused = &head[slot.suffix_len.min(HEAD_BYTES)..];
        if padding.iter().chain(unused).any(|&byte| byte != 0) {
            return Err("a key is longer than it says");
        }
        if index == 0 && node.level() > 0 {
            if slot.suffix_len != 0 {
                return Err("its first child has a key");
            }
            continue;
        }
        key.clear();
        node.append_key(index, &mut key);
        let is_first = index == usize::from(node.level() > 0);
        let follows = match is_first {
            true if node.level() > 0 => low.is_none_or(|low| key.as_slice() > low),
            true => low.is_none_or(|low| key.as_slice() >= low),
            false => key > before,
        };
        if !follows || high.is_some_and(|high| key.as_slice() >= high) {
            return Err("its keys are out of order");
        }
        std::mem::swap(&mut before, &mut key);
    }
    Ok(())
}
