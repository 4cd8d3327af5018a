//! Entries, a tuple's bits and its address each, and how the workers sort many of them together.
//!
//! They are sorted by their bits alone; no tuple is looked at. Where entries then have the same bits though their keys
//! differ, the bits that follow in the keys take the place of those (`digit`), and so on. Groups of such entries are a worker's
//! each (`groups`), but for large ones, which are all workers'. In the end all entries have the bits that they came with.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool};

use weft_rt::memory::Reservation;

use super::area::{Area, pieces, sort_by_bits};
use super::digit::{BATCH, Digit, Position};
use super::groups::{BATCHES, cut_between_groups, sort_groups};
use super::order::Order;
use crate::error::Result;
use crate::pace::Pace;
use crate::query::Context;
use crate::tuple::layout::HASH_OFFSET;
use crate::tuple::{Materialized, Page};
use crate::zeroed::Zeroed;

/// Entries that are sorted at once, and that are merged at once.
pub(super) const PIECE: usize = 16 << 10;

/// A group that is larger than what a worker has to do, divided by this, is sorted by all workers.
const PARTS_PER_WORKER: usize = 8;

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
    pub(crate) unsafe fn of(tuple: *const u8) -> Entry {
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

/// The entries of all tuples in memory, whose bits are where hashes are. On all workers.
///
/// # Errors
/// If the query is cancelled.
pub(super) async fn all_entries(
    tuples: &Arc<Vec<Materialized>>,
    context: &Context,
) -> Result<Zeroed<Entry>> {
    let mut places = Vec::new();
    let mut count = 0;
    for (number, stored) in tuples.iter().enumerate() {
        for (page, stored) in stored.pages.iter().enumerate() {
            places.push((number, page, count));
            count += stored.page.tuples();
        }
    }
    let area = Arc::new(Area::new(Zeroed::new(count)));
    let (pages, shared) = (places.len(), Arc::new((places, tuples.clone(), area.clone())));
    let fill = move |number: usize| {
        let (places, tuples, area) = &*shared;
        let (stored, page, start) = places[number];
        let page = &tuples[stored].pages[page].page;
        // SAFETY: each page is filled once, and so are the places of its tuples.
        let entries = unsafe { area.get_mut(start..start + page.tuples()) };
        for (number, entry) in entries.iter_mut().enumerate() {
            // SAFETY: the page has the tuple.
            *entry = unsafe { Entry::of(page.tuple(number)) };
        }
    };
    if count <= PIECE {
        (0..pages).for_each(&fill);
        drop(fill);
    } else {
        let work = move |_, number| {
            fill(number);
            async { Ok(()) }
        };
        context.run_morsels(pages, work).await?;
    }
    Ok(Arc::into_inner(area).expect("all workers have ended").into_entries())
}

/// Bytes that sorting so many entries takes, those of the entries included.
pub(crate) fn bytes_to_sort(entries: usize) -> u64 {
    2 * (entries * size_of::<Entry>()) as u64
}

/// Sorts entries. `memory` is for them and as many more; half of it is left.
///
/// # Safety
/// They are of tuples of the order's layout, alive until `tuples` is dropped, to which nobody writes but to their headers.
pub(crate) async unsafe fn sort<T: Send + Sync + 'static>(
    entries: Zeroed<Entry>,
    order: &Arc<Order>,
    tuples: &Arc<T>,
    memory: &mut Reservation,
    context: &Context,
) -> Result<Zeroed<Entry>> {
    let spare = if entries.len() > PIECE { entries.len() } else { 0 };
    let spare = Arc::new(Area::new(Zeroed::new(spare)));
    let area = Arc::new(Area::new(entries));
    let sorting = Sorting { area, spare, order, tuples, context };
    // SAFETY: as the caller promises; nobody else uses the areas.
    unsafe { sorting.sort().await? };
    let Sorting { area, spare, .. } = sorting;
    drop(spare);
    memory.shrink(memory.bytes() / 2);
    Ok(Arc::into_inner(area).expect("all workers have ended").into_entries())
}

/// Entries that all workers sort. Whatever happens to the sort's future, the tuples live as long as the workers' tasks.
struct Sorting<'a, T> {
    area: Arc<Area>,
    spare: Arc<Area>,
    order: &'a Arc<Order>,
    tuples: &'a Arc<T>,
    context: &'a Context,
}

impl<T: Send + Sync + 'static> Sorting<'_, T> {
    /// # Safety
    /// As [`sort`].
    async unsafe fn sort(&self) -> Result<()> {
        let all = 0..self.area.len();
        // SAFETY: as the caller promises, and of the last step for the others: each has ended before the next.
        unsafe {
            sort_by_bits(&self.area, &self.spare, all.clone(), self.context).await?;
            if self.order.is_exact() {
                return Ok(());
            }
            let mut large = Vec::new();
            self.sort_small_groups(all, Digit::of_headers(self.order), &mut large).await?;
            let bits_of = |(group, _): &(Range<usize>, Position)| {
                (group.clone(), self.area.get(group.clone())[0].bits)
            };
            let kept: Vec<(Range<usize>, u64)> = large.iter().map(bits_of).collect();
            while let Some((group, position)) = large.pop() {
                let digit = Digit::at(self.order, position);
                if self.load(group.clone(), digit.clone()).await? {
                    sort_by_bits(&self.area, &self.spare, group.clone(), self.context).await?;
                }
                self.sort_small_groups(group, digit, &mut large).await?;
            }
            for (group, bits) in kept {
                self.put_back(group, bits).await?;
            }
        }
        Ok(())
    }

    /// Sorts the groups of a range, which is sorted by a digit, but for large ones; these are added to those that are left, with
    /// where they go on.
    ///
    /// # Safety
    /// As [`sort`]; nobody uses the range.
    async unsafe fn sort_small_groups(
        &self,
        range: Range<usize>,
        digit: Digit,
        large: &mut Vec<(Range<usize>, Position)>,
    ) -> Result<()> {
        // SAFETY: as the caller promises.
        let entries = unsafe { self.area.get(range.clone()) };
        let mut small = Vec::new();
        let parts_min = PARTS_PER_WORKER * self.context.workers;
        let most = PIECE.max(self.area.len() / parts_min);
        for part in cut_between_groups(entries, PIECE, &mut Pace::default()).await {
            let bits = entries[part.start].bits;
            let part = range.start + part.start..range.start + part.end;
            if part.len() <= most {
                small.push(part);
            } else if let Some(position) = digit.next(bits) {
                large.push((part, position));
            }
        }
        let count = small.len();
        let shared = Arc::new((small, digit, self.area.clone(), self.order.clone()));
        let tuples = self.tuples.clone();
        let work = move |_, number: usize| {
            let (shared, tuples) = (shared.clone(), tuples.clone());
            async move {
                let (small, digit, area, order) = &*shared;
                let mut pace = Pace::default();
                // SAFETY: each part is one morsel's; the tuples are alive.
                unsafe {
                    let entries = area.get_mut(small[number].clone());
                    sort_groups(entries, digit, order, &mut pace).await;
                }
                drop(tuples);
                Ok(())
            }
        };
        self.context.run_morsels(count, work).await
    }

    /// Puts a digit of each entry in place of its bits; true if they differ.
    ///
    /// # Safety
    /// As [`sort`]; nobody uses the range.
    async unsafe fn load(&self, range: Range<usize>, digit: Digit) -> Result<bool> {
        let count = range.len().div_ceil(PIECE);
        let piece = pieces(&range);
        // SAFETY: as the caller promises.
        let mut first = unsafe { self.area.get(range)[0] };
        // SAFETY: as the caller promises.
        unsafe { digit.load_all(std::slice::from_mut(&mut first)) };
        let differ = Arc::new(AtomicBool::new(false));
        let shared = Arc::new((digit, self.area.clone(), differ.clone()));
        let tuples = self.tuples.clone();
        let work = move |_, number: usize| {
            let (shared, tuples, piece) = (shared.clone(), tuples.clone(), piece(number));
            async move {
                let (digit, area, differ) = &*shared;
                let mut pace = Pace::default();
                // SAFETY: each piece is one morsel's.
                let entries = unsafe { area.get_mut(piece) };
                for batches in entries.chunks_mut(BATCHES * BATCH) {
                    // SAFETY: the tuples are alive.
                    unsafe { digit.load_all(batches) };
                    if batches.iter().any(|entry| entry.bits != first.bits) {
                        differ.store(true, atomic::Ordering::Relaxed);
                    }
                    pace.keep().await;
                }
                drop(tuples);
                Ok(())
            }
        };
        self.context.run_morsels(count, work).await?;
        Ok(differ.load(atomic::Ordering::Relaxed))
    }

    /// Gives entries the bits that they came with.
    ///
    /// # Safety
    /// Nobody uses the range.
    async unsafe fn put_back(&self, range: Range<usize>, bits: u64) -> Result<()> {
        let (count, piece, area) = (range.len().div_ceil(PIECE), pieces(&range), self.area.clone());
        let work = move |_, number: usize| {
            let (area, piece) = (area.clone(), piece(number));
            async move {
                // SAFETY: each piece is one morsel's.
                let entries = unsafe { area.get_mut(piece) };
                entries.iter_mut().for_each(|entry| entry.bits = bits);
                Ok(())
            }
        };
        self.context.run_morsels(count, work).await
    }
}
