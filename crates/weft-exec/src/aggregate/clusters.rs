//! Few groups: the rows of a vector sorted by group, so that a state is read and written once per group and vector, and not
//! once per row, where each addition would have to wait for the one before.

use super::masked::{MASKED_MAX, Masked, NOBODY};
use super::state::Tuple;
use crate::selection::Selected;
use crate::tuple::layout::NEXT_OFFSET;
use crate::vector::VECTOR_ROWS_MAX;

/// Most groups that are few: of more, rows of the same group are so far from each other that additions do not wait.
const GROUPS_MAX: usize = MASKED_MAX;
/// Rows that a group of a vector must have on average.
const ROWS_PER_GROUP: usize = 8;
/// One of so many rows of a vector must be selected for all of them to be looked at.
const SELECTED_SHARE: usize = 2;

/// Groups with numbers, which lie in their tuples' headers; and the rows of each.
#[derive(Debug)]
pub(super) struct Clusters {
    groups: Vec<Tuple>,
    are_few: bool,
    rows: Box<[u16; VECTOR_ROWS_MAX]>,
    numbers: Box<[u8; VECTOR_ROWS_MAX]>,
    /// The same by row, where rows may be left out.
    rows_numbers: Box<[u8; VECTOR_ROWS_MAX]>,
    counts: [u16; MASKED_MAX],
    /// Where the rows of each group begin, and where those of the last one end.
    starts: [u16; GROUPS_MAX + 1],
    /// How many times groups were forgotten.
    forgotten: u64,
}

impl Default for Clusters {
    fn default() -> Clusters {
        Clusters {
            groups: Vec::with_capacity(GROUPS_MAX),
            are_few: true,
            rows: Box::new([0; VECTOR_ROWS_MAX]),
            numbers: Box::new([0; VECTOR_ROWS_MAX]),
            rows_numbers: Box::new([0; VECTOR_ROWS_MAX]),
            counts: [0; MASKED_MAX],
            starts: [0; GROUPS_MAX + 1],
            forgotten: 0,
        }
    }
}

impl Clusters {
    /// A new group, which gets its number.
    #[inline]
    pub(super) fn add(&mut self, tuple: Tuple) {
        if self.groups.len() == GROUPS_MAX {
            self.are_few = false;
        }
        if !self.are_few {
            return;
        }
        // SAFETY: the header lies in the tuple, which is there and is ours (`Tuple::at`).
        unsafe { tuple.address().add(NEXT_OFFSET).cast::<u64>().write(self.groups.len() as u64) };
        self.groups.push(tuple);
    }

    /// Groups that were added are not found any more; `may_be_few` of those that follow.
    pub(super) fn forget(&mut self, may_be_few: bool) {
        self.groups.clear();
        self.are_few = may_be_few;
        self.forgotten += 1;
    }

    /// While the age does not change, groups are where they are and, if they [are few](Clusters::are_few), keep their numbers.
    pub(super) fn age(&self) -> u64 {
        self.forgotten
    }

    /// True if groups have numbers.
    pub(super) fn are_few(&self) -> bool {
        self.are_few
    }

    /// The number of a group that was added and not forgotten.
    #[inline(always)]
    pub(super) fn number(tuple: Tuple) -> u8 {
        // SAFETY: as in `add`; the number is below [`GROUPS_MAX`].
        unsafe { tuple.address().add(NEXT_OFFSET).read() }
    }

    /// Puts down by row of which groups `rows` are, whose numbers are in [`Clusters::numbers`]; false if too few
    /// are selected for that. `of` are all rows of the vector.
    pub(super) fn mask(&mut self, rows: &[u16], of: usize) -> bool {
        if rows.len() * SELECTED_SHARE < of {
            return false;
        }
        let by_row = &mut self.rows_numbers[..of];
        if rows.len() < of {
            by_row.fill(NOBODY);
        }
        let mut counts = [0; MASKED_MAX];
        for (row, number) in rows.iter().zip(self.numbers.iter()) {
            by_row[usize::from(*row)] = *number;
            counts[usize::from(*number) % MASKED_MAX] += 1;
        }
        self.counts = counts;
        true
    }

    /// What [`Clusters::mask`] has put down of so many rows.
    pub(super) fn masked(&self, of: usize) -> Masked<'_> {
        let numbers = &self.rows_numbers[..of];
        Masked { groups: &self.groups, counts: &self.counts, numbers }
    }

    /// Where to put the numbers of rows' groups before they are sorted.
    pub(super) fn numbers(&mut self) -> &mut [u8; VECTOR_ROWS_MAX] {
        &mut self.numbers
    }

    /// True if `rows` rows had better be sorted.
    #[inline]
    pub(super) fn is_worthwhile(&self, rows: usize) -> bool {
        self.are_few && rows >= ROWS_PER_GROUP * self.groups.len()
    }

    /// The group, if there is one only.
    #[inline]
    pub(super) fn single(&self) -> Option<Tuple> {
        match self.groups[..] {
            [group] if self.are_few => Some(group),
            _ => None,
        }
    }

    /// Puts the numbers of groups, all of which were added, where [`Clusters::numbers`] are.
    pub(super) fn find_numbers(&mut self, tuples: &[Tuple]) {
        for (tuple, number) in tuples.iter().zip(self.numbers.iter_mut()) {
            *number = Clusters::number(*tuple);
        }
    }

    /// Sorts rows, each of the group whose number is at the same place of [`Clusters::numbers`].
    pub(super) fn sort(&mut self, rows: &[u16]) {
        let mut counts = [0u16; GROUPS_MAX];
        for number in &self.numbers[..rows.len()] {
            counts[usize::from(*number) % GROUPS_MAX] += 1;
        }
        let mut next = [0u16; GROUPS_MAX];
        let mut start = 0;
        for group in 0..self.groups.len() {
            (self.starts[group], next[group]) = (start, start);
            start += counts[group];
        }
        self.starts[self.groups.len()] = start;
        for (row, number) in rows.iter().zip(self.numbers.iter()) {
            let place = &mut next[usize::from(*number) % GROUPS_MAX];
            self.rows[usize::from(*place) % VECTOR_ROWS_MAX] = *row;
            *place += 1;
        }
    }

    /// The groups that were sorted by, and the rows of each.
    pub(super) fn clusters(&self) -> impl Iterator<Item = (Tuple, Selected<'_>)> {
        let ranges = self.starts.windows(2);
        self.groups.iter().zip(ranges).filter(|(_, range)| range[0] < range[1]).map(
            |(group, range)| (*group, Selected::Some(&self.rows[range[0].into()..range[1].into()])),
        )
    }
}
