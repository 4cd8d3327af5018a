//! The ends of frames that a key says: rows are passed until one has it.

use std::fmt;
use std::ops::Range;

use super::super::column::Column;
use super::super::frames::{Bound, Distance, Distanced, RangeKey};
use crate::lane::{Lane, for_number};

/// Where a frame begins, or ends.
pub(super) trait KeyEnd: fmt::Debug + Send {
    /// Looks for the end for a row of which these are the keys, and how far its frame goes, if rows say so themselves.
    fn aim(&mut self, keys: &Column, limits: Option<&Column>, row: usize);

    /// The first of some rows, the key of each of which is here, that does not lie before the end.
    fn pass(&self, keys: &Column, rows: Range<usize>) -> usize;
}

/// The end of a frame by a key in this lane that is neither the partition's nor the row's; `None` if it is one of these. The
/// row's own key is passed by the end, not by the beginning.
pub(super) fn key_end(
    order: RangeKey,
    lane: Lane,
    bound: &Bound<Distance>,
    is_end: bool,
) -> Option<Box<dyn KeyEnd>> {
    let (distance, is_behind) = match bound {
        Bound::Preceding(distance) => (distance, false),
        Bound::Following(distance) => (distance, true),
        Bound::Unbounded | Bound::CurrentRow => return None,
    };
    for_number!(lane, T => {
        let distance = match distance {
            Distance::Constant(constant) => Some(constant.value::<T>()),
            Distance::Field(_) => None,
        };
        let aim = Aim::<T>::None;
        Some(Box::new(Aimed { order, distance, is_behind, is_end, aim }))
    })
}

/// The key that is looked for.
#[derive(Clone, Copy, Debug)]
enum Aim<T> {
    Key(T),
    /// Behind all keys.
    All,
    /// Before all keys.
    None,
}

#[derive(Debug)]
struct Aimed<T> {
    order: RangeKey,
    /// From the row's own key; `None` if the row has the key.
    distance: Option<T>,
    is_behind: bool,
    is_end: bool,
    aim: Aim<T>,
}

impl<T: Distanced + fmt::Debug> KeyEnd for Aimed<T> {
    fn aim(&mut self, keys: &Column, limits: Option<&Column>, row: usize) {
        let key = match (self.distance, limits) {
            (Some(distance), _) => {
                self.order.away(keys.values::<T>()[row], distance, self.is_behind)
            }
            (None, Some(limits)) => limits.is_valid(row).then(|| limits.values::<T>()[row]),
            (None, None) => unreachable!("keys in a field have a column"),
        };
        self.aim = match key {
            Some(key) => Aim::Key(key),
            None if self.is_behind => Aim::All,
            None => Aim::None,
        };
    }

    fn pass(&self, keys: &Column, mut rows: Range<usize>) -> usize {
        let (values, end) = (keys.values::<T>(), rows.end);
        let is_before = |row: usize| {
            if !keys.is_valid(row) {
                return self.order.nulls_first;
            }
            match self.aim {
                Aim::Key(key) => self.order.is_before(values[row], key, self.is_end),
                Aim::All => true,
                Aim::None => false,
            }
        };
        rows.find(|row| !is_before(*row)).unwrap_or(end)
    }
}
