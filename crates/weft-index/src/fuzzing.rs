//! What the fuzz targets ask of an index: any bytes as one of its pages.

use weft_buffer::{PAGE_UNIT_BYTES, PageId};

use crate::node::check::check_node;
use crate::node::image::NodeImage;
use crate::node::{ALIVE, ALIVE_AT, KIND_DIRECTORY, KIND_NODE, Node};
use crate::tree::directory::parse;

/// Bytes as a node and as a page of a directory, whatever their headers say. A node that passes is searched,
/// divided and joined again; one that does not is searched, too, as optimistic readers may.
pub fn page(bytes: &[u8]) {
    let mut page = bytes.to_vec();
    page.resize(PAGE_UNIT_BYTES, 0);
    page[6] = KIND_DIRECTORY;
    drop(parse(&page, PageId::new(0, 0, PAGE_UNIT_BYTES)));
    page[6] = KIND_NODE;
    page[ALIVE_AT] = ALIVE;
    node(&page);
}

fn node(page: &[u8]) {
    let is_whole = check_node(page).is_ok();
    let node = Node(page);
    let key = page[..40].to_vec();
    node.lower_bound(&key);
    node.child(node.child_slot(&key));
    node.covers(node.level(), &key);
    if !is_whole {
        return;
    }
    let has_keys_from = usize::from(node.level() > 0);
    for index in has_keys_from..node.count() {
        let key = node.key(index);
        assert_eq!(node.lower_bound(&key), (index, true));
        assert!(node.covers(node.level(), &key));
        node.append_included(index, &mut Vec::new());
        node.row(index);
    }
    if node.count() < 2 {
        return;
    }
    let (left, between, right) = NodeImage::of(page).split(false);
    for half in [&left, &right] {
        assert_eq!(check_node(half.bytes()), Ok(()));
    }
    assert_eq!(left.node().count() + right.node().count(), node.count());
    assert!(right.node().covers(node.level(), &between));
    if let Some(whole) = left.merged(&right) {
        assert_eq!(check_node(whole.bytes()), Ok(()));
        let mut slots = has_keys_from..node.count();
        assert!(slots.all(|index| whole.node().key(index) == node.key(index)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::image::Value;
    use crate::node::{HAS_INCLUDED, HAS_ROW};

    /// Nodes of all forms, and what becomes of them when some of their bytes are others.
    #[test]
    fn damaged_nodes_do_no_harm() {
        for seed in [1, 2, fastrand::u64(..)] {
            println!("seed {seed}");
            let mut random = fastrand::Rng::with_seed(seed);
            for round in 0..300 {
                let level = u8::from(round % 3 == 0);
                let flags = [0, HAS_ROW, HAS_INCLUDED, HAS_ROW | HAS_INCLUDED][round % 4];
                let fences: [Option<&[u8]>; 2] =
                    if round % 2 == 0 { [Some(b"key 1"), Some(b"key 8")] } else { [None, None] };
                let mut image = NodeImage::new(PAGE_UNIT_BYTES, level, flags, fences[0], fences[1]);
                for child in 0..random.u32(1..300) {
                    let len = random.usize(..12);
                    let tail: String = (0..len).map(|_| random.alphanumeric()).collect();
                    let key = format!("key {}{tail}", random.u8(2..8)).into_bytes();
                    let (index, is_equal) = image.node().lower_bound(&key);
                    let index = if child == 0 { 0 } else { index };
                    let value = match level {
                        0 => Value::Row { row: 7, included: &key[..flags as usize / 4 % 2] },
                        _ => Value::Child(child),
                    };
                    if !is_equal && (index > 0 || level == 0 || child == 0) {
                        image.insert(index, &key, value);
                    }
                }
                assert_eq!(check_node(image.bytes()), Ok(()));
                page(image.bytes());
                for _ in 0..100 {
                    let mut bytes = image.bytes().to_vec();
                    for _ in 0..random.usize(1..4) {
                        let end = if random.bool() { 160 } else { PAGE_UNIT_BYTES };
                        let near = random.usize(..end);
                        bytes[near] = random.u8(..);
                    }
                    page(&bytes);
                }
            }
        }
    }

    #[test]
    fn any_bytes_do_no_harm() {
        let mut random = fastrand::Rng::with_seed(3);
        for len in [0, 1, 64, 200, 4096, 5000] {
            for _ in 0..200 {
                let bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
                page(&bytes);
            }
        }
    }
}
