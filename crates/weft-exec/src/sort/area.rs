//! Entries that all workers sort and merge by their bits, each those of a range.
//!
//! Pieces that fit into a core's cache are sorted, then neighbours merged until one is left. A merge is cut into
//! segments of its output by merge path (Green, McColl, Bader, 2012), so that all workers take part in every one of
//! them, and others are served between segments.

use std::ops::Range;
use std::sync::Arc;

use super::entries::{Entry, PIECE};
use crate::error::Result;
use crate::query::Context;
use crate::zeroed::Zeroed;

/// Memory that workers write to, each to ranges of its own.
pub(super) struct Area {
    start: *mut Entry,
    entries: Zeroed<Entry>,
}

// SAFETY: the memory is the area's own; who may write where is up to those who use it.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    pub(super) fn new(mut entries: Zeroed<Entry>) -> Area {
        Area { start: entries.as_mut_ptr(), entries }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn into_entries(self) -> Zeroed<Entry> {
        self.entries
    }

    /// # Safety
    /// Nobody writes to the range meanwhile.
    pub(super) unsafe fn get(&self, range: Range<usize>) -> &[Entry] {
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
    pub(super) unsafe fn get_mut(&self, range: Range<usize>) -> &mut [Entry] {
        debug_assert!(range.start <= range.end && range.end <= self.len());
        // SAFETY: within the memory; as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// Pieces of a range, which all but the last are of a size.
pub(super) fn pieces(range: &Range<usize>) -> impl Fn(usize) -> Range<usize> + Clone + use<> {
    let Range { start, end } = *range;
    move |number| {
        let first = start + number * PIECE;
        first..end.min(first + PIECE)
    }
}

/// Sorts a range of an area by the entries' bits, on all workers. Another area, `spare`, is as large if the range has more than
/// a piece.
///
/// # Safety
/// Nobody else uses the range, in both.
pub(super) async unsafe fn sort_by_bits(
    area: &Arc<Area>,
    spare: &Arc<Area>,
    range: Range<usize>,
    context: &Context,
) -> Result<()> {
    let count = range.len().div_ceil(PIECE);
    let piece = pieces(&range);
    let merges = range.len().div_ceil(PIECE).next_power_of_two().ilog2();
    // The last merge leads back.
    let (mut from, mut into) = (area.clone(), spare.clone());
    if merges % 2 == 1 {
        std::mem::swap(&mut from, &mut into);
    }
    {
        let (area, from, piece) = (area.clone(), from.clone(), piece.clone());
        let work = move |_, number| {
            let (area, from, range) = (area.clone(), from.clone(), piece(number));
            async move {
                // SAFETY: each piece is one morsel's.
                unsafe {
                    if merges % 2 == 1 {
                        from.get_mut(range.clone()).copy_from_slice(area.get(range.clone()));
                    }
                    from.get_mut(range).sort_unstable_by_key(|entry| entry.bits);
                }
                Ok(())
            }
        };
        context.run_morsels(count, work).await?;
    }
    for merge in 0..merges {
        let (source, target) = (from.clone(), into.clone());
        let (range, piece, run) = (range.clone(), piece.clone(), PIECE << merge);
        let work = move |_, number| {
            let (source, target) = (source.clone(), target.clone());
            let (range, piece) = (range.clone(), piece(number));
            async move {
                // SAFETY: nobody writes to the source; each piece of the target is one morsel's.
                unsafe { merge_piece(source.get(range.clone()), range.start, &target, piece, run) };
                Ok(())
            }
        };
        context.run_morsels(count, work).await?;
        std::mem::swap(&mut from, &mut into);
    }
    Ok(())
}

/// Merges what belongs into `piece` of the target, from runs of `run` entries, of which the first begins at `start`.
///
/// # Safety
/// Nobody uses the piece of the target.
unsafe fn merge_piece(
    source: &[Entry],
    start: usize,
    target: &Area,
    piece: Range<usize>,
    run: usize,
) {
    let (from, to) = (piece.start - start, piece.end - start);
    let first = from / (2 * run) * (2 * run);
    let middle = (first + run).min(source.len());
    let last = (first + 2 * run).min(source.len());
    let (left, right) = (&source[first..middle], &source[middle..last]);
    let (from, to) = (from - first, to - first);
    let (left_from, left_to) = (split(left, right, from), split(left, right, to));
    let (left, right) = (&left[left_from..left_to], &right[from - left_from..to - left_to]);
    // SAFETY: as the caller promises.
    merge(left, right, unsafe { target.get_mut(piece) });
}

/// How many of the first `count` entries of both together are of the left: of equal ones the left comes first.
fn split(left: &[Entry], right: &[Entry], count: usize) -> usize {
    let (mut low, mut high) = (count.saturating_sub(right.len()), count.min(left.len()));
    while low < high {
        let middle = (low + high) / 2;
        let left_is_first = left[middle].bits <= right[count - middle - 1].bits;
        if left_is_first { low = middle + 1 } else { high = middle }
    }
    low
}

fn merge(left: &[Entry], right: &[Entry], out: &mut [Entry]) {
    debug_assert_eq!(left.len() + right.len(), out.len());
    let (mut at_left, mut at_right, mut at) = (0, 0, 0);
    while at_left < left.len() && at_right < right.len() {
        let (a, b) = (left[at_left], right[at_right]);
        let takes_right = b.bits < a.bits;
        out[at] = if takes_right { b } else { a };
        at_left += usize::from(!takes_right);
        at_right += usize::from(takes_right);
        at += 1;
    }
    let left_over = left.len() - at_left;
    out[at..at + left_over].copy_from_slice(&left[at_left..]);
    out[at + left_over..].copy_from_slice(&right[at_right..]);
}
