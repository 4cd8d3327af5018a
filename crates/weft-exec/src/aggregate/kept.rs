//! Values of one row that a state keeps: strings have to be copied, over and over if a state changes its mind.

use super::memory::Memory;
use super::state::{Place, Tuple};
use crate::lane::{Bool, Value};
use crate::text::Str;

/// Values that a state can keep.
pub(super) trait Keep: Value {
    /// True if keeping one costs memory.
    const IS_STRING: bool = false;

    /// The same value, alive as long as the group is in memory, in the room at an address or in a new one; 0 is none.
    #[inline(always)]
    fn keep(self, _tuple: Tuple, _room: &mut u64, _memory: &mut Memory) -> Self {
        self
    }

    /// The same value, alive as long as the group is in memory, for good.
    #[inline(always)]
    fn copied(self, _tuple: Tuple, _memory: &mut Memory) -> Self {
        self
    }
}

macro_rules! keep {
    ($($value:ty),*) => {$( impl Keep for $value {} )*};
}
keep!(Bool, i8, i16, i32, i64, u8, u16, u32, u64, i128, f32, f64);

impl Keep for Str {
    const IS_STRING: bool = true;

    fn keep(self, tuple: Tuple, room: &mut u64, memory: &mut Memory) -> Str {
        memory.copy_into(tuple, room, self)
    }

    fn copied(self, tuple: Tuple, memory: &mut Memory) -> Str {
        memory.copy(tuple, self)
    }
}

/// Where a state keeps a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept<T> {
    pub(super) value: Place<T>,
    /// The room that a string has; needed for strings only.
    pub(super) room: Option<Place<u64>>,
}

impl<T: Keep> Kept<T> {
    /// Nothing is kept.
    pub(super) fn begin(&self, tuple: Tuple) {
        self.value.set(tuple, T::default());
        if let Some(room) = self.room {
            room.set(tuple, 0);
        }
    }

    /// Keeps `value` instead of what was kept.
    #[inline(always)]
    pub(super) fn keep(&self, tuple: Tuple, value: T, memory: &mut Memory) {
        let kept = match self.room {
            Some(place) if T::IS_STRING => {
                let mut room = place.get(tuple);
                let kept = value.keep(tuple, &mut room, memory);
                place.set(tuple, room);
                kept
            }
            _ => value,
        };
        self.value.set(tuple, kept);
    }
}
