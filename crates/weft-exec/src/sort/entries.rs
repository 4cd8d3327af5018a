//! Entries, a tuple's bits and its address each, and how the workers sort many of them together.
//!
//! Pieces that fit into a core's cache are sorted, then neighbours merged until one is left. A merge is cut into
//! segments of its output by merge path (Green, McColl, Bader, 2012), so that all workers take part in every one of
//! them, and others are served between segments.

use std::cmp::Ordering;
use std::sync::Arc;

use weft_rt::memory::Reservation;

use super::order::Order;
use crate::error::Result;
use crate::pace::Pace;
use crate::query::Context;
use crate::tuple::Page;
use crate::tuple::layout::HASH_OFFSET;

/// Entries that are sorted at once, and that are merged at once.
pub(super) const PIECE: usize = 16 << 10;

/// A tuple to be sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C)]
pub(crate) struct Entry {
    /// Its bits, see [`Order`].
    pub(crate) bits: u64,
    /// Its address.
    pub(crate) tuple: u64,
}

impl Entry {
    /// That of a tuple whose bits are where hashes are.
    ///
    /// # Safety
    /// There is one at the address.
    pub(super) unsafe fn of(tuple: *const u8) -> Entry {
        // SAFETY: the hash of a tuple is always written.
        let bits = unsafe { tuple.add(HASH_OFFSET).cast::<u64>().read() };
        Entry { bits, tuple: tuple as u64 }
    }

    /// How two entries compare.
    ///
    /// # Safety
    /// Both are of tuples that are alive, and of the order's layout.
    #[inline]
    pub(crate) unsafe fn compare(&self, other: &Entry, order: &Order) -> Ordering {
        let ordering = self.bits.cmp(&other.bits);
        if ordering != Ordering::Equal || order.is_exact() {
            return ordering;
        }
        // SAFETY: as the caller promises.
        unsafe { order.compare(self.tuple as *const u8, other.tuple as *const u8) }
    }
}

/// The entries of all tuples of pages, whose bits are where hashes are.
pub(super) async fn entries_of(pages: impl Iterator<Item = &Page> + Clone) -> Vec<Entry> {
    let mut pace = Pace::default();
    let mut entries = Vec::with_capacity(pages.clone().map(Page::tuples).sum());
    for page in pages {
        for number in 0..page.tuples() {
            // SAFETY: the page has the tuple.
            entries.push(unsafe { Entry::of(page.tuple(number)) });
        }
        pace.keep().await;
    }
    entries
}

/// Memory that workers write to, each to ranges of its own.
struct Area {
    start: *mut Entry,
    entries: Vec<Entry>,
}

// SAFETY: the memory is the area's own; who may write where is up to those who use it.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    fn new(mut entries: Vec<Entry>) -> Area {
        Area { start: entries.as_mut_ptr(), entries }
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    /// # Safety
    /// Nobody writes to the range meanwhile.
    unsafe fn get(&self, range: std::ops::Range<usize>) -> &[Entry] {
        debug_assert!(range.start <= range.end && range.end <= self.len());
        // SAFETY: within the memory; as the caller promises.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }

    /// # Safety
    /// Nobody else uses the range meanwhile.
    #[expect(
        clippy::mut_from_ref,
        reason = "the workers share the area, and each has a range of its own"
    )]
    unsafe fn get_mut(&self, range: std::ops::Range<usize>) -> &mut [Entry] {
        debug_assert!(range.start <= range.end && range.end <= self.len());
        // SAFETY: within the memory; as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// Bytes that sorting so many entries takes, those of the entries included.
pub(crate) fn bytes_to_sort(entries: usize) -> u64 {
    2 * (entries * size_of::<Entry>()) as u64
}

/// Sorts entries. `memory` is for them and as many more; half of it is left.
///
/// # Safety
/// They are of tuples of the order's layout, alive until `tuples` is dropped.
pub(crate) async unsafe fn sort<T: Send + Sync + 'static>(
    entries: Vec<Entry>,
    order: &Arc<Order>,
    tuples: &Arc<T>,
    memory: &mut Reservation,
    context: &Context,
) -> Result<Vec<Entry>> {
    let count = entries.len();
    let pieces = count.div_ceil(PIECE);
    let piece = move |number: usize| number * PIECE..((number + 1) * PIECE).min(count);
    let mut from = Arc::new(Area::new(entries));
    {
        // Whatever happens to this future, the tuples live as long as the workers' tasks.
        let (area, order, tuples) = (from.clone(), order.clone(), tuples.clone());
        let work = move |_, number| {
            let (area, order, tuples) = (area.clone(), order.clone(), tuples.clone());
            async move {
                // SAFETY: each piece is one morsel's; the tuples are alive.
                unsafe {
                    let entries = area.get_mut(piece(number));
                    entries.sort_unstable_by(|a, b| a.compare(b, &order));
                }
                drop(tuples);
                Ok(())
            }
        };
        context.run_morsels(pieces, work).await?;
    }
    if pieces > 1 {
        let mut into = Arc::new(Area::new(vec![Entry::default(); count]));
        let mut run = PIECE;
        while run < count {
            let (source, target) = (from.clone(), into.clone());
            let (order, tuples) = (order.clone(), tuples.clone());
            let work = move |_, number| {
                let (source, target) = (source.clone(), target.clone());
                let (order, tuples) = (order.clone(), tuples.clone());
                async move {
                    // SAFETY: nobody writes to the source; each piece of the target is one morsel's; tuples are alive.
                    unsafe { merge_piece(&source, &target, piece(number), run, &order) };
                    drop(tuples);
                    Ok(())
                }
            };
            context.run_morsels(pieces, work).await?;
            std::mem::swap(&mut from, &mut into);
            run *= 2;
        }
    }
    memory.shrink(memory.bytes() / 2);
    let area = Arc::into_inner(from).expect("all workers have ended");
    Ok(area.entries)
}

/// Merges what belongs into `piece` of the target, from runs of `run` entries.
///
/// # Safety
/// Nobody writes to the source, or uses the piece of the target; the entries' tuples are alive.
unsafe fn merge_piece(
    source: &Area,
    target: &Area,
    piece: std::ops::Range<usize>,
    run: usize,
    order: &Order,
) {
    let first = piece.start / (2 * run) * (2 * run);
    let middle = (first + run).min(source.len());
    let last = (first + 2 * run).min(source.len());
    // SAFETY: as the caller promises.
    unsafe {
        let (left, right) = (source.get(first..middle), source.get(middle..last));
        let (start, end) = (piece.start - first, piece.end - first);
        let (left_start, left_end) =
            (split(left, right, start, order), split(left, right, end, order));
        let left = &left[left_start..left_end];
        let right = &right[start - left_start..end - left_end];
        merge(left, right, target.get_mut(piece), order);
    }
}

/// How many of the first `count` entries of both together are of the left: of equal ones the left comes first.
///
/// # Safety
/// The entries' tuples are alive.
unsafe fn split(left: &[Entry], right: &[Entry], count: usize, order: &Order) -> usize {
    let (mut low, mut high) = (count.saturating_sub(right.len()), count.min(left.len()));
    while low < high {
        let middle = (low + high) / 2;
        // SAFETY: as the caller promises.
        let left_is_first =
            unsafe { left[middle].compare(&right[count - middle - 1], order) != Ordering::Greater };
        if left_is_first { low = middle + 1 } else { high = middle }
    }
    low
}

/// # Safety
/// The entries' tuples are alive.
unsafe fn merge(left: &[Entry], right: &[Entry], out: &mut [Entry], order: &Order) {
    debug_assert_eq!(left.len() + right.len(), out.len());
    let (mut at_left, mut at_right, mut at) = (0, 0, 0);
    while at_left < left.len() && at_right < right.len() {
        let (a, b) = (left[at_left], right[at_right]);
        // SAFETY: as the caller promises.
        let takes_right = unsafe { b.compare(&a, order) == Ordering::Less };
        out[at] = if takes_right { b } else { a };
        at_left += usize::from(!takes_right);
        at_right += usize::from(takes_right);
        at += 1;
    }
    let left_over = left.len() - at_left;
    out[at..at + left_over].copy_from_slice(&left[at_left..]);
    out[at + left_over..].copy_from_slice(&right[at_right..]);
}
