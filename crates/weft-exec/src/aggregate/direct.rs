//! Groups of keys that have few values: a row's group is looked up by the places of its keys, without a hash, and without a look
//! at the keys of groups.
//!
//! The place of a key that comes from a dictionary is its code; that of an integer is its distance from the start of a window,
//! which grows to hold the integers that come. The places of all keys of a row make its combination, and a table leads from
//! combinations to groups. Combinations that the table does not know yet are looked up by hashes, and learned.

use weft_codec::dispatch::{Kernel, dispatch};

use super::clusters::Clusters;
use super::state::Tuple;
use crate::for_lanes;
use crate::lane::{Bool, Lane, Value};
use crate::program::Register;
use crate::registers::Registers;
use crate::vector::{VECTOR_ROWS_MAX, Vector};

/// Most combinations.
const COMBINATIONS_MAX: u64 = 1 << 16;
/// Most combinations per row of the vector for which a table is made.
const COMBINATIONS_PER_ROW_MAX: u64 = 32;
/// Tables that are kept: coroutines that take turns on a worker bring dictionaries of their own.
const TABLES: usize = 4;
/// Bytes of a combination in a table.
const ENTRY_BYTES: usize = size_of::<Tuple>() + size_of::<u8>();
/// A window begins and ends beyond the integers seen by this part of their range,
const WINDOW_SLACK_DIVISOR: u64 = 8;
/// and by so many integers at least.
const WINDOW_SLACK_MIN: u64 = 16;
/// In place of a group's number.
const UNKNOWN: u8 = u8::MAX;

/// Which group each combination of places has, as far as it came up.
#[derive(Debug)]
pub(super) struct Direct {
    /// For each key, the integers that have places.
    windows: Vec<Window>,
    /// How many times windows have grown.
    windows_grown: u64,
    /// Integers of keys came for which there is no window.
    is_given_up: bool,
    tables: [Table; TABLES],
    /// The table for the rows that are looked at.
    current: usize,
    /// The combination of each of these rows.
    combined: Box<[u32; VECTOR_ROWS_MAX]>,
    /// The rows whose combinations are not known, by their numbers.
    unknown: Vec<u16>,
    /// The first row of each of these combinations.
    firsts: Vec<u16>,
    /// A bit for each combination: whether it has such a row.
    seen: Vec<u64>,
}

/// Integers from `start` on, which have places from 0 on.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    start: i64,
    values: u64,
}

/// What is known of the combinations of some dictionaries and windows.
#[derive(Debug, Default)]
struct Table {
    /// The dictionary of each key; keys that are integers have none.
    dictionaries: Vec<Option<u64>>,
    /// [`Direct::windows_grown`] when the table was made.
    windows_grown: u64,
    /// [`Clusters::age`] when the table was made.
    age: u64,
    /// By combination: a group, if known.
    groups: Vec<Tuple>,
    /// By combination: the number of the group, if groups are few.
    numbers: Vec<u8>,
}

/// For which of a vector's rows the places of keys say the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    /// For none: a key has no place, or there are too many combinations.
    Missing,
    /// For all but [`Direct::unknown`].
    Partial,
    /// For all.
    Full,
    /// For all, as numbers of groups.
    Numbered,
}

/// Integers of keys.
trait Integer: Value {
    /// Integers with a distance of `n` have bits with the distance `n`, wrapping around.
    fn bits(self) -> i64;
    /// The least and the greatest.
    fn bounds(values: impl Iterator<Item = Self>) -> Option<(Self, Self)>;
}

macro_rules! integers {
    ($($value:ty: $self:ident => $bits:expr),*) => {$(
        impl Integer for $value {
            #[inline(always)]
            fn bits($self) -> i64 {
                $bits
            }
            #[inline(always)]
            fn bounds(mut values: impl Iterator<Item = Self>) -> Option<(Self, Self)> {
                let first = values.next()?;
                Some(values.fold((first, first), |(least, greatest), value| {
                    (least.min(value), greatest.max(value))
                }))
            }
        }
    )*};
}
integers!(Bool: self => i64::from(self.0), i8: self => i64::from(self), i16: self => i64::from(self),
    i32: self => i64::from(self), i64: self => self, u8: self => i64::from(self), u16: self => i64::from(self),
    u32: self => i64::from(self), u64: self => self as i64);

/// Evaluates an expression for a lane of integers, or else another one.
macro_rules! for_key {
    ($lane:expr, $value:ident => $body:expr, else $other:expr) => {
        for_lanes!($lane, $value => $body, [
            Bool: Bool, I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64
        ], else $other)
    };
}

impl Window {
    /// Places of its integers, and one for nulls.
    fn places(self) -> u64 {
        self.values.saturating_add(1)
    }

    /// The window from the least to the greatest of its integers and of `bounds`.
    fn with(self, bounds: Option<(i64, i64)>, is_signed: bool) -> Window {
        let Some((least, greatest)) = bounds else { return self };
        let own = (self.start, self.start.wrapping_add(self.values as i64).wrapping_sub(1));
        // In the order of the lane.
        let order = |bits: i64| if is_signed { bits } else { bits ^ i64::MIN };
        let (mut start, mut end) = (least, greatest);
        if self.values > 0 {
            start = if order(own.0) < order(start) { own.0 } else { start };
            end = if order(own.1) > order(end) { own.1 } else { end };
        }
        Window { start, values: (end.wrapping_sub(start) as u64).saturating_add(1) }
    }

    /// With room for integers that may come, so far as the lane has them.
    fn with_slack(self, is_signed: bool) -> Window {
        let order = |bits: i64| if is_signed { bits } else { bits ^ i64::MIN };
        let slack = (self.values / WINDOW_SLACK_DIVISOR).max(WINDOW_SLACK_MIN);
        let end = self.start.wrapping_add(self.values as i64).wrapping_sub(1);
        let before = slack.min(order(self.start).abs_diff(i64::MIN));
        let after = slack.min(i64::MAX.abs_diff(order(end)));
        Window {
            start: self.start.wrapping_sub(before as i64),
            values: self.values.saturating_add(before).saturating_add(after),
        }
    }
}

impl Default for Direct {
    fn default() -> Direct {
        Direct {
            windows: Vec::new(),
            windows_grown: 0,
            is_given_up: false,
            tables: Default::default(),
            current: 0,
            combined: Box::new([0; VECTOR_ROWS_MAX]),
            unknown: Vec::new(),
            firsts: Vec::new(),
            seen: Vec::new(),
        }
    }
}

impl Direct {
    /// Looks up the groups of `rows`, which go to `tuples`, or their numbers to the clusters, if that is better. The tables take no
    /// more than `bytes_max`.
    pub(super) fn look_up(
        &mut self,
        registers: &Registers,
        keys: &[Register],
        rows: &[u16],
        tuples: &mut [Tuple],
        clusters: &mut Clusters,
        bytes_max: u64,
    ) -> Coverage {
        let combinations_max = COMBINATIONS_MAX.min(bytes_max / (TABLES * ENTRY_BYTES) as u64);
        if !self.combine(registers, keys, rows, clusters.age(), combinations_max) {
            return Coverage::Missing;
        }
        let Table { groups, numbers, .. } = &self.tables[self.current];
        let combined = &self.combined[..rows.len()];
        if clusters.is_worthwhile(rows.len()) {
            let mut greatest = 0;
            for (number, combined) in clusters.numbers().iter_mut().zip(combined) {
                *number = numbers[*combined as usize];
                greatest = greatest.max(*number);
            }
            if greatest != UNKNOWN {
                return Coverage::Numbered;
            }
        }
        let mut are_all_known = true;
        for (tuple, combined) in tuples.iter_mut().zip(combined) {
            *tuple = groups[*combined as usize];
            are_all_known &= *tuple != Tuple::NONE;
        }
        if are_all_known {
            return Coverage::Full;
        }
        self.unknown.clear();
        let found = (0..).zip(tuples.iter());
        self.unknown.extend(found.filter(|(_, tuple)| **tuple == Tuple::NONE).map(|(at, _)| at));
        self.find_firsts();
        Coverage::Partial
    }

    fn find_firsts(&mut self) {
        self.firsts.clear();
        self.seen.clear();
        self.seen.resize(self.tables[self.current].groups.len().div_ceil(64), 0);
        for at in &self.unknown {
            let combination = self.combined[usize::from(*at)] as usize;
            let (word, bit) = (&mut self.seen[combination / 64], 1 << (combination % 64));
            if *word & bit == 0 {
                *word |= bit;
                self.firsts.push(*at);
            }
        }
    }

    /// The rows that [`Direct::look_up`] has found no groups for, by their numbers.
    pub(super) fn unknown(&self) -> &[u16] {
        &self.unknown
    }

    /// The first one of each combination among these rows.
    pub(super) fn firsts(&self) -> &[u16] {
        &self.firsts
    }

    /// Remembers the groups of the combinations that were unknown, those of their first rows, which have been found, and gives them to
    /// the other rows of these combinations. False, and nothing is done, if groups were forgotten after they were looked up.
    pub(super) fn learn(&mut self, tuples: &mut [Tuple], clusters: &Clusters) -> bool {
        let table = &mut self.tables[self.current];
        if clusters.age() != table.age {
            return false;
        }
        for at in &self.firsts {
            let tuple = tuples[usize::from(*at)];
            let combination = self.combined[usize::from(*at)] as usize;
            table.groups[combination] = tuple;
            if clusters.are_few() {
                table.numbers[combination] = Clusters::number(tuple);
            }
        }
        for at in &self.unknown {
            tuples[usize::from(*at)] = table.groups[self.combined[usize::from(*at)] as usize];
        }
        true
    }

    /// Bytes of the tables.
    pub(super) fn bytes(&self) -> u64 {
        let entries: usize = self.tables.iter().map(|table| table.groups.capacity()).sum();
        (entries * ENTRY_BYTES) as u64
    }

    /// Combines the places of keys for all `rows`, and has the table for them at hand; false if there are no places.
    fn combine(
        &mut self,
        registers: &Registers,
        keys: &[Register],
        rows: &[u16],
        age: u64,
        combinations_max: u64,
    ) -> bool {
        self.windows.resize(keys.len(), Window::default());
        let has_place = |key: &Register| {
            let vector = registers.vector(*key);
            match vector.codes() {
                Some(codes) => codes.codes.len() >= registers.rows(),
                None => {
                    !self.is_given_up
                        && for_key!(vector.lane(), T => size_of::<T>() > 0, else false)
                }
            }
        };
        if rows.is_empty() || !keys.iter().all(has_place) {
            return false;
        }
        if self.combinations(registers, keys) > combinations_max {
            return false;
        }
        if !self.place(registers, keys, rows) {
            if !self.grow(registers, keys, rows, combinations_max) {
                return false;
            }
            let are_all_inside = self.place(registers, keys, rows);
            debug_assert!(are_all_inside, "windows that have grown hold all integers");
        }
        let combinations = self.combinations(registers, keys) as usize;
        self.choose(registers, keys, age, combinations, rows.len())
    }

    /// How many combinations the keys have.
    fn combinations(&self, registers: &Registers, keys: &[Register]) -> u64 {
        keys.iter().zip(&self.windows).fold(1, |combinations: u64, (key, window)| {
            let codes = registers.vector(*key).codes();
            // One more is for nulls.
            combinations
                .saturating_mul(codes.map_or(window.places(), |codes| codes.values as u64 + 1))
        })
    }

    /// Puts down the combinations of rows; false if an integer is not in its window.
    fn place(&mut self, registers: &Registers, keys: &[Register], rows: &[u16]) -> bool {
        let combined = &mut self.combined[..rows.len()];
        combined.fill(0);
        let mut are_all_inside = true;
        for (key, window) in keys.iter().zip(&self.windows) {
            let vector = registers.vector(*key);
            if let Some(codes) = vector.codes() {
                let window = Window { start: 0, values: codes.values as u64 };
                let values = &codes.codes[..];
                dispatch(Placed { values, vector, registers, rows, window, combined });
                continue;
            }
            for_key!(vector.lane(), T => {
                let values = vector.values::<T>();
                let window = *window;
                are_all_inside &= dispatch(Placed { values, vector, registers, rows, window, combined });
            }, else return false);
        }
        are_all_inside
    }

    /// Makes windows hold the integers of `rows`; false if there are too many, of these rows or of any.
    fn grow(
        &mut self,
        registers: &Registers,
        keys: &[Register],
        rows: &[u16],
        combinations_max: u64,
    ) -> bool {
        let is_signed = |key: &Register| {
            !matches!(registers.vector(*key).lane(), Lane::U8 | Lane::U16 | Lane::U32 | Lane::U64)
        };
        let before = self.windows.clone();
        for (key, window) in keys.iter().zip(&mut self.windows) {
            let vector = registers.vector(*key);
            if vector.codes().is_none() {
                *window = window.with(bounds(vector, rows), is_signed(key));
            }
        }
        let combinations = self.combinations(registers, keys);
        self.is_given_up = combinations > combinations_max;
        let of_rows_max = rows.len() as u64 * COMBINATIONS_PER_ROW_MAX;
        if combinations > combinations_max.min(of_rows_max) {
            self.windows = before;
            return false;
        }
        self.windows_grown += 1;
        let exact = self.windows.clone();
        for (key, window) in keys.iter().zip(&mut self.windows) {
            *window = window.with_slack(is_signed(key));
        }
        if self.combinations(registers, keys) > combinations_max {
            self.windows = exact;
        }
        true
    }

    /// Has the table of the keys' dictionaries and windows at hand, a new one in place of the oldest if there is none; false if a new
    /// one would be large for so few rows.
    fn choose(
        &mut self,
        registers: &Registers,
        keys: &[Register],
        age: u64,
        combinations: usize,
        rows: usize,
    ) -> bool {
        let dictionaries =
            keys.iter().map(|key| registers.vector(*key).codes().map(|codes| codes.dictionary));
        let is_known = |table: &usize| {
            let table = &self.tables[*table];
            table.age == age
                && table.windows_grown == self.windows_grown
                && table.groups.len() == combinations
                && table.dictionaries.iter().copied().eq(dictionaries.clone())
        };
        let nearest = (0..TABLES).map(|ahead| (self.current + ahead) % TABLES);
        match nearest.into_iter().find(is_known) {
            Some(table) => self.current = table,
            None if combinations > rows * COMBINATIONS_PER_ROW_MAX as usize => return false,
            None => {
                self.current = (self.current + 1) % TABLES;
                let table = &mut self.tables[self.current];
                table.dictionaries.clear();
                table.dictionaries.extend(dictionaries);
                table.windows_grown = self.windows_grown;
                table.age = age;
                table.groups.clear();
                table.groups.reserve_exact(combinations);
                table.groups.resize(combinations, Tuple::NONE);
                table.numbers.clear();
                table.numbers.resize(combinations, UNKNOWN);
            }
        }
        true
    }
}

/// The bits of the least and the greatest integer of rows that have one.
fn bounds(vector: &Vector, rows: &[u16]) -> Option<(i64, i64)> {
    for_key!(vector.lane(), T => {
        let values = vector.values::<T>();
        let rows = rows.iter().map(|row| usize::from(*row));
        let bounds = T::bounds(rows.filter(|row| vector.validity.is_valid(*row)).map(|row| values[row]));
        bounds.map(|(least, greatest)| (least.bits(), greatest.bits()))
    }, else None)
}

/// Adds the places of a key to the combinations of rows; false if one has none.
struct Placed<'a, T> {
    values: &'a [T],
    vector: &'a Vector,
    registers: &'a Registers,
    rows: &'a [u16],
    window: Window,
    combined: &'a mut [u32],
}

impl<T: Integer> Kernel for Placed<'_, T> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Window { start, values } = self.window;
        let places = self.window.places() as u32;
        let distance = |value: T| value.bits().wrapping_sub(start) as u64;
        let mut is_beyond = false;
        let are_all = self.rows.len() == self.registers.rows();
        match self.vector.validity.words() {
            None if are_all => {
                for (combined, value) in self.combined.iter_mut().zip(self.values) {
                    let distance = distance(*value);
                    is_beyond |= distance >= values;
                    *combined = combined.wrapping_mul(places).wrapping_add(distance as u32);
                }
            }
            None => {
                for (combined, row) in self.combined.iter_mut().zip(self.rows) {
                    let distance = distance(self.values[usize::from(*row)]);
                    is_beyond |= distance >= values;
                    *combined = combined.wrapping_mul(places).wrapping_add(distance as u32);
                }
            }
            Some(words) => {
                for (combined, row) in self.combined.iter_mut().zip(self.rows) {
                    let row = usize::from(*row);
                    let is_valid = words[row / 64] >> (row % 64) & 1 == 1;
                    let place = if is_valid { distance(self.values[row]) } else { values };
                    is_beyond |= is_valid && place >= values;
                    *combined = combined.wrapping_mul(places).wrapping_add(place as u32);
                }
            }
        }
        !is_beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_the_integers_that_they_are_made_for() {
        let window = Window::default().with(Some((5, 9)), true);
        assert_eq!((window.start, window.values), (5, 5));
        let window = window.with(Some((-2, 7)), true);
        assert_eq!((window.start, window.values), (-2, 12));
        assert_eq!(window.with(None, true).values, 12);
        let window = window.with_slack(true);
        assert_eq!((window.start, window.values), (-18, 44));
        let least = Window::default().with(Some((i64::MIN, i64::MIN + 1)), true).with_slack(true);
        assert_eq!((least.start, least.values), (i64::MIN, 18));
        let greatest = Window::default().with(Some((-1, -1)), false).with_slack(false);
        assert_eq!((greatest.start, greatest.values), (-17, 17), "from 2^64 - 17 to 2^64 - 1");
        let all = Window::default().with(Some((i64::MIN, i64::MAX)), true);
        assert_eq!((all.values, all.places()), (u64::MAX, u64::MAX));
        assert_eq!(all.with_slack(true).values, u64::MAX);
        let unsigned = Window::default().with(Some((i64::MAX, i64::MIN)), false);
        assert_eq!((unsigned.start, unsigned.values), (i64::MAX, 2), "2^63 - 1 and 2^63");
        assert_eq!(unsigned.with(Some((0, 0)), false).values, (1 << 63) + 1);
    }
}
