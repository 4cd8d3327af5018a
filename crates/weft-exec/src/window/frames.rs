//! Frames: the rows of a partition that a function looks at for a row of it.
//!
//! Both ends of a frame only go forward from row to row, so that what is aggregated changes by the rows that come in and
//! by those that go out.

use std::ops::Range;

use super::column::Column;
use super::exclusion::{Exclusion, Kept, all};
use super::morsel::Rows;
use crate::lane::for_number;
use crate::pace::Pace;
use crate::program::Constant;
use crate::sort::order::Ranked;

/// Where frames begin and end.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// So many rows away.
    Rows(Bound<u64>, Bound<u64>),
    /// At the first and last one of peers, so many of their groups away. [`Bound::CurrentRow`] is what RANGE has.
    Groups(Bound<u64>, Bound<u64>),
    /// Where a key differs by no more than that from the row's own; of null, at the first and last null.
    Range {
        /// The key, a number, which rows are ordered by first.
        key: RangeKey,
        /// The first row.
        start: Bound<Distance>,
        /// The last row.
        end: Bound<Distance>,
    },
    /// Those of another frame, but for some around the row.
    Excluding(Exclusion, Box<Frame>),
}

/// How far a key may be from the row's own.
#[derive(Clone, Debug, PartialEq)]
pub enum Distance {
    /// So much.
    Constant(Constant),
    /// As far as the key that is in this field, of the key's lane. These keys are ordered as the rows are.
    Field(usize),
}

/// The key of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeKey {
    /// Its field.
    pub field: usize,
    /// The largest first.
    pub descending: bool,
    /// Nulls before anything else.
    pub nulls_first: bool,
}

/// One end of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound<T> {
    /// That of the partition.
    Unbounded,
    /// Before the row.
    Preceding(T),
    /// The row, or its peers.
    CurrentRow,
    /// Behind the row.
    Following(T),
}

impl<T> Bound<T> {
    /// True if it is neither the partition's nor the row's.
    fn is_away(&self) -> bool {
        matches!(self, Bound::Preceding(_) | Bound::Following(_))
    }
}

impl Bound<Distance> {
    /// The field that says how far.
    pub(super) fn field(&self) -> Option<usize> {
        match self {
            Bound::Preceding(Distance::Field(field)) | Bound::Following(Distance::Field(field)) => {
                Some(*field)
            }
            _ => None,
        }
    }
}

impl Frame {
    /// True if all frames begin with their partition.
    pub fn is_from_start(&self) -> bool {
        match self {
            Frame::Rows(start, _) | Frame::Groups(start, _) => *start == Bound::Unbounded,
            Frame::Range { start, .. } => *start == Bound::Unbounded,
            Frame::Excluding(_, frame) => frame.is_from_start(),
        }
    }

    /// The rows that it leaves out.
    pub(super) fn exclusion(&self) -> Option<Exclusion> {
        match self {
            Frame::Excluding(exclusion, _) => Some(*exclusion),
            _ => None,
        }
    }

    /// The frame that leaves none out.
    pub(super) fn whole(&self) -> &Frame {
        match self {
            Frame::Excluding(_, frame) => frame.whole(),
            frame => frame,
        }
    }

    /// The fields that are needed to find frames: that of the key, of the first row's, and of the last row's.
    pub(super) fn fields(&self) -> [Option<usize>; 3] {
        match self.whole() {
            Frame::Range { key, start, end } => [Some(key.field), start.field(), end.field()],
            _ => [None; 3],
        }
    }
}

/// The frames of rows, one row after the other.
pub(super) struct Frames<'a> {
    rows: &'a Rows<'a>,
    ends: Ends<'a>,
    exclusion: Option<Exclusion>,
    partition: Range<usize>,
    /// Those of the row that was asked for last; of frames of rows, only if they leave some out.
    peers: Range<usize>,
}

/// How ends are found.
enum Ends<'a> {
    Rows(Bound<u64>, Bound<u64>),
    Groups { start: Bound<u64>, end: Bound<u64>, groups: Groups },
    Range(Box<dyn ByKey + 'a>),
}

/// The groups of peers of a partition.
#[derive(Default)]
struct Groups {
    /// Where each begins, and the end of the last; nothing if nobody wants to know.
    starts: Vec<usize>,
    /// Which one the row is in.
    number: usize,
}

impl<'a> Frames<'a> {
    /// Frames of rows; `fields` are the columns of [`Frame::fields`].
    pub(super) fn new(
        frame: &Frame,
        rows: &'a Rows<'a>,
        fields: &'a [Option<Column>; 3],
    ) -> Frames<'a> {
        let exclusion = frame.exclusion();
        let ends = match (frame.whole(), &fields[0]) {
            (Frame::Rows(start, end), _) => Ends::Rows(*start, *end),
            (Frame::Groups(start, end), _) => {
                Ends::Groups { start: *start, end: *end, groups: Groups::default() }
            }
            (Frame::Range { key, start, end }, Some(values)) => {
                for_number!(values.lane(), T => {
                    let start = limit::<T>(start, fields[1].as_ref());
                    let end = limit::<T>(end, fields[2].as_ref());
                    Ends::Range(Box::new(Keyed { keys: values, order: *key, start, end, known: 0..0, from: 0, to: 0 }))
                })
            }
            (Frame::Range { .. }, None) => unreachable!("a frame by a key has a column"),
            (Frame::Excluding(..), _) => unreachable!("a whole frame leaves nothing out"),
        };
        Frames { rows, ends, exclusion, partition: 0..0, peers: 0..0 }
    }

    /// Goes on with a partition.
    pub(super) async fn begin(&mut self, partition: Range<usize>, pace: &mut Pace) {
        self.peers = partition.start..partition.start;
        match &mut self.ends {
            Ends::Rows(..) => {}
            Ends::Groups { start, end, groups } => {
                *groups = Groups::default();
                if start.is_away() || end.is_away() {
                    let mut row = partition.start;
                    while row < partition.end {
                        groups.starts.push(row);
                        row = self.rows.peers_end(row, partition.end);
                        if groups.starts.len().is_multiple_of(STRIDE) {
                            pace.keep().await;
                        }
                    }
                    groups.starts.push(partition.end);
                }
            }
            Ends::Range(ends) => ends.begin(partition.clone()),
        }
        self.partition = partition;
    }

    /// The frame of the next row, of which some may be left out, and the end of the rows from there on that have the same.
    pub(super) fn next(&mut self, row: usize) -> (Range<usize>, usize) {
        let (frame, end) = self.whole(row);
        let end = match self.exclusion {
            None => end,
            Some(Exclusion::Group) => end.min(self.peers.end),
            Some(Exclusion::CurrentRow | Exclusion::Ties) => row + 1,
        };
        (frame, end)
    }

    /// True if rows are left out.
    pub(super) fn excludes(&self) -> bool {
        self.exclusion.is_some()
    }

    /// What is kept of the frame of the row that was asked for last.
    pub(super) fn kept(&self, row: usize, frame: Range<usize>) -> Kept {
        match self.exclusion {
            None => all(frame),
            Some(exclusion) => exclusion.kept(&frame, row, &self.peers),
        }
    }

    fn whole(&mut self, row: usize) -> (Range<usize>, usize) {
        let partition = &self.partition;
        let is_of_rows = matches!(self.ends, Ends::Rows(..));
        let has_peers = !is_of_rows || self.exclusion.is_some_and(Exclusion::has_peers);
        let is_new = has_peers && row >= self.peers.end;
        if is_new {
            self.peers = row..self.rows.peers_end(row, partition.end);
        }
        let peers = &self.peers;
        let frame = match &mut self.ends {
            Ends::Rows(start, end) => return of_rows(*start, *end, row, partition),
            Ends::Groups { start, end, groups } => {
                groups.number += usize::from(is_new && row > partition.start);
                groups.start(*start, partition, peers)..groups.end(*end, partition, peers)
            }
            Ends::Range(ends) => ends.frame(partition, peers),
        };
        (ordered(frame), peers.end)
    }
}

/// Steps between two looks at the clock.
const STRIDE: usize = 16 << 10;

/// An empty range in place of one that ends before it begins.
fn ordered(range: Range<usize>) -> Range<usize> {
    range.start..range.end.max(range.start)
}

fn of_rows(
    start: Bound<u64>,
    end: Bound<u64>,
    row: usize,
    partition: &Range<usize>,
) -> (Range<usize>, usize) {
    let count = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
    let before = |row: usize, rows| row.saturating_sub(count(rows)).max(partition.start);
    let behind = |row: usize, rows| row.saturating_add(count(rows)).min(partition.end);
    let is_whole = start == Bound::Unbounded && end == Bound::Unbounded;
    let start = match start {
        Bound::Unbounded => partition.start,
        Bound::Preceding(rows) => before(row, rows),
        Bound::CurrentRow => row,
        Bound::Following(rows) => behind(row, rows),
    };
    let end = match end {
        Bound::Unbounded => partition.end,
        Bound::Preceding(rows) => before(row + 1, rows),
        Bound::CurrentRow => row + 1,
        Bound::Following(rows) => behind(row + 1, rows),
    };
    (ordered(start..end), if is_whole { partition.end } else { row + 1 })
}

impl Groups {
    /// Where the group begins that is so far away; the partition's ends are beyond all groups.
    fn behind(&self, groups: u64) -> usize {
        let number = self.number.saturating_add(usize::try_from(groups).unwrap_or(usize::MAX));
        self.starts[number.min(self.starts.len() - 1)]
    }

    fn before(&self, groups: u64) -> Option<usize> {
        self.number.checked_sub(usize::try_from(groups).ok()?)
    }

    fn start(&self, start: Bound<u64>, partition: &Range<usize>, peers: &Range<usize>) -> usize {
        match start {
            Bound::Unbounded => partition.start,
            Bound::CurrentRow => peers.start,
            Bound::Preceding(groups) => {
                self.before(groups).map_or(partition.start, |group| self.starts[group])
            }
            Bound::Following(groups) => self.behind(groups),
        }
    }

    fn end(&self, end: Bound<u64>, partition: &Range<usize>, peers: &Range<usize>) -> usize {
        match end {
            Bound::Unbounded => partition.end,
            Bound::CurrentRow => peers.end,
            Bound::Preceding(groups) => {
                self.before(groups).map_or(partition.start, |group| self.starts[group + 1])
            }
            Bound::Following(groups) => self.behind(groups.saturating_add(1)),
        }
    }
}

/// Finds frames by a key.
trait ByKey {
    fn begin(&mut self, partition: Range<usize>);

    /// The frame of rows that are peers.
    fn frame(&mut self, partition: &Range<usize>, peers: &Range<usize>) -> Range<usize>;
}

/// Numbers that have sums and differences.
pub(super) trait Distanced: Ranked {
    /// `None` if there is no such number.
    fn plus(self, distance: Self) -> Option<Self>;
    /// `None` if there is no such number.
    fn minus(self, distance: Self) -> Option<Self>;
}

macro_rules! integer_distances {
    ($($number:ty),*) => {$(
        impl Distanced for $number {
            fn plus(self, distance: Self) -> Option<Self> {
                self.checked_add(distance)
            }
            fn minus(self, distance: Self) -> Option<Self> {
                self.checked_sub(distance)
            }
        }
    )*};
}
integer_distances!(i8, i16, i32, i64, u8, u16, u32, u64, i128);

macro_rules! float_distances {
    ($($number:ty),*) => {$(
        impl Distanced for $number {
            fn plus(self, distance: Self) -> Option<Self> {
                Some(self + distance)
            }
            fn minus(self, distance: Self) -> Option<Self> {
                Some(self - distance)
            }
        }
    )*};
}
float_distances!(f32, f64);

/// How far a key may be.
enum Limit<'a, T> {
    Constant(T),
    Keys(&'a Column),
}

fn limit<'a, T: Distanced>(
    bound: &Bound<Distance>,
    keys: Option<&'a Column>,
) -> Bound<Limit<'a, T>> {
    let limit = |distance: &Distance| match (distance, keys) {
        (Distance::Constant(constant), _) => Limit::Constant(constant.value()),
        (Distance::Field(_), Some(keys)) => Limit::Keys(keys),
        (Distance::Field(_), None) => unreachable!("keys in a field have a column"),
    };
    match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Preceding(distance) => Bound::Preceding(limit(distance)),
        Bound::CurrentRow => Bound::CurrentRow,
        Bound::Following(distance) => Bound::Following(limit(distance)),
    }
}

struct Keyed<'a, T> {
    keys: &'a Column,
    order: RangeKey,
    start: Bound<Limit<'a, T>>,
    end: Bound<Limit<'a, T>>,
    /// Rows whose key is not null.
    known: Range<usize>,
    /// The ends of the frame before.
    from: usize,
    to: usize,
}

impl RangeKey {
    /// The key that is so far away from another, before it in the order or behind it; `None` if there is none.
    pub(super) fn away<T: Distanced>(&self, key: T, distance: T, is_behind: bool) -> Option<T> {
        if self.descending == is_behind { key.minus(distance) } else { key.plus(distance) }
    }

    /// True if a key comes before another one, or is the same if that `counts`.
    pub(super) fn is_before<T: Distanced>(&self, key: T, other: T, counts: bool) -> bool {
        let ordering = key.compare(&other);
        let ordering = if self.descending { ordering.reverse() } else { ordering };
        if counts { ordering.is_le() } else { ordering.is_lt() }
    }
}

impl<T: Distanced> Keyed<'_, T> {
    /// The key that is so far away from a row's, before it in the order or behind it; `None` if there is none.
    fn key(&self, row: usize, limit: &Limit<'_, T>, is_behind: bool) -> Option<T> {
        match limit {
            Limit::Keys(keys) => keys.is_valid(row).then(|| keys.values::<T>()[row]),
            Limit::Constant(distance) => {
                self.order.away(self.keys.values::<T>()[row], *distance, is_behind)
            }
        }
    }

    /// True if a row comes before another key, or has it if that `counts`.
    fn is_before(&self, row: usize, key: T, counts: bool) -> bool {
        self.order.is_before(self.keys.values::<T>()[row], key, counts)
    }

    fn first_of(&mut self, key: T) -> usize {
        while self.from < self.known.end && self.is_before(self.from, key, false) {
            self.from += 1;
        }
        self.from
    }

    fn end_of(&mut self, key: T) -> usize {
        while self.to < self.known.end && self.is_before(self.to, key, true) {
            self.to += 1;
        }
        self.to
    }
}

impl<T: Distanced> ByKey for Keyed<'_, T> {
    fn begin(&mut self, partition: Range<usize>) {
        let Range { mut start, mut end } = partition;
        if self.keys.has_nulls() {
            while start < end && !self.keys.is_valid(start) && self.order.nulls_first {
                start += 1;
            }
            while start < end && !self.keys.is_valid(end - 1) && !self.order.nulls_first {
                end -= 1;
            }
        }
        self.known = start..end;
        (self.from, self.to) = (start, start);
    }

    fn frame(&mut self, partition: &Range<usize>, peers: &Range<usize>) -> Range<usize> {
        let row = peers.start;
        let is_null = !self.known.contains(&row);
        let start = match &self.start {
            Bound::Unbounded => partition.start,
            Bound::CurrentRow => peers.start,
            Bound::Preceding(_) | Bound::Following(_) if is_null => peers.start,
            Bound::Preceding(limit) => match self.key(row, limit, false) {
                Some(key) => self.first_of(key),
                None => self.known.start,
            },
            Bound::Following(limit) => match self.key(row, limit, true) {
                Some(key) => self.first_of(key),
                None => self.known.end,
            },
        };
        let end = match &self.end {
            Bound::Unbounded => partition.end,
            Bound::CurrentRow => peers.end,
            Bound::Preceding(_) | Bound::Following(_) if is_null => peers.end,
            Bound::Preceding(limit) => match self.key(row, limit, false) {
                Some(key) => self.end_of(key),
                None => self.known.start,
            },
            Bound::Following(limit) => match self.key(row, limit, true) {
                Some(key) => self.end_of(key),
                None => self.known.end,
            },
        };
        start..end
    }
}
