//! DISTINCT: a set of values per group, and the aggregate of them in the end.
//!
//! That serves any number of DISTINCT aggregates beside others, with hash tables in the operator's memory that double when
//! half full. Where all aggregates of a query are DISTINCT over the same argument and groups are large, whoever makes the
//! plan aggregates by group and argument first, then by group, which partitions and needs no sets.
//!
//! A table begins with the number of its values, its capacity and whether null is among them (8 bytes each, and 8 free);
//! slots of a hash, a value and perhaps what it is ordered by follow. A hash of 0 is a free slot. Packed with its tuple, a part of
//! a set is a table without free slots: whoever adds to it makes a larger one first.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::Range;

use futures::future::LocalBoxFuture;

use super::fold::Ordered;
use super::kept::Keep;
use super::memory::Memory;
use super::state::{Feed, Narrowed, Needs, Outcome, Place, State, Tuple};
use super::states::States;
use crate::error::Result;
use crate::lane::Lane;
use crate::pace::{Pace, at_once};
use crate::program::Register;
use crate::registers::Registers;
use crate::selection::Selected;
use crate::text::Str;
use crate::tuple::Layout;
use crate::vector::{VECTOR_ROWS_MAX, Vector};

pub(super) const HEADER_BYTES: usize = 32;
const CAPACITY_MIN: u64 = 4;

/// The different values of a register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distinct<T> {
    pub(super) argument: Register,
    /// Hashes of the values.
    pub(super) hash: Register,
    pub(super) order: Option<Register>,
    /// The table; 0 if there is none.
    pub(super) table: Place<u64>,
    pub(super) value: PhantomData<T>,
}

/// A table at an address.
#[derive(Clone, Copy)]
pub(super) struct Table(pub(super) *mut u64);

impl Table {
    /// # Safety
    /// The table is one.
    pub(super) unsafe fn len(self) -> u64 {
        // SAFETY: the header has it.
        unsafe { self.0.read() }
    }

    /// # Safety
    /// The table is one.
    pub(super) unsafe fn capacity(self) -> u64 {
        // SAFETY: the header has it.
        unsafe { self.0.add(1).read() }
    }

    /// # Safety
    /// The table is one.
    pub(super) unsafe fn has_null(self) -> bool {
        // SAFETY: the header has it.
        unsafe { self.0.add(2).read() != 0 }
    }
}

impl<T: Keep + Ordered> Distinct<T> {
    pub(super) fn slot_bytes(&self) -> usize {
        let key_bytes = if self.order.is_some() { size_of::<Str>() } else { 0 };
        (size_of::<u64>() + size_of::<T>() + key_bytes).next_multiple_of(8)
    }

    pub(super) fn slot(&self, table: Table, at: u64) -> *mut u8 {
        table.0.cast::<u8>().wrapping_add(HEADER_BYTES + at as usize * self.slot_bytes())
    }

    pub(super) fn table(&self, tuple: Tuple) -> Option<Table> {
        let address = self.table.get(tuple);
        (address != 0).then_some(Table(address as *mut u64))
    }

    fn new_table(&self, tuple: Tuple, capacity: u64, memory: &mut Memory) -> Table {
        let bytes = HEADER_BYTES + capacity as usize * self.slot_bytes();
        let table = Table(memory.allocate(tuple, bytes).cast::<u64>());
        // SAFETY: just allocated, with room for the header.
        unsafe { table.0.add(1).write(capacity) };
        table
    }

    /// A table with room for one more value.
    #[inline]
    fn with_room(&self, tuple: Tuple, memory: &mut Memory) -> Table {
        match self.table(tuple) {
            // SAFETY: tables were made here.
            Some(table) if unsafe { (table.len() + 1) * 2 <= table.capacity() } => table,
            small => self.with_more_room(small, tuple, memory),
        }
    }

    /// A larger table with the same values, or the first one.
    #[inline(never)]
    fn with_more_room(&self, small: Option<Table>, tuple: Tuple, memory: &mut Memory) -> Table {
        let Some(table) = small else {
            let table = self.new_table(tuple, CAPACITY_MIN, memory);
            self.table.set(tuple, table.0 as u64);
            return table;
        };
        // SAFETY: tables, their headers and the slots below their capacity were made here; a slot is aligned to 8 bytes.
        unsafe {
            let room = ((table.len() + 1) * 2).next_power_of_two().max(CAPACITY_MIN);
            let larger = self.new_table(tuple, room, memory);
            larger.0.write(table.len());
            larger.0.add(2).write(table.0.add(2).read());
            for at in 0..table.capacity() {
                let from = self.slot(table, at);
                let hash = from.cast::<u64>().read();
                if hash != 0 {
                    let mut to = hash & (room - 1);
                    while self.slot(larger, to).cast::<u64>().read() != 0 {
                        to = (to + 1) & (room - 1);
                    }
                    let to = self.slot(larger, to);
                    std::ptr::copy_nonoverlapping(from, to, self.slot_bytes());
                }
            }
            self.table.set(tuple, larger.0 as u64);
            larger
        }
    }

    #[inline]
    fn insert(&self, tuple: Tuple, hash: u64, value: T, key: Option<Str>, memory: &mut Memory) {
        let table = self.with_room(tuple, memory);
        let hash = hash.max(1);
        // SAFETY: as in `with_more_room`; there is a free slot.
        unsafe {
            let mask = table.capacity() - 1;
            let mut at = hash & mask;
            loop {
                let slot = self.slot(table, at);
                let found = slot.cast::<u64>().read();
                let place = slot.add(8).cast::<T>();
                if found == hash && place.read_unaligned().order(value) == Ordering::Equal {
                    return;
                }
                if found == 0 {
                    slot.cast::<u64>().write(hash);
                    place.write_unaligned(value.copied(tuple, memory));
                    if let Some(key) = key {
                        let key = memory.copy(tuple, key);
                        place.add(1).cast::<Str>().write_unaligned(key);
                    }
                    table.0.write(table.len() + 1);
                    return;
                }
                at = (at + 1) & mask;
            }
        }
    }

    fn insert_null(&self, tuple: Tuple, memory: &mut Memory) {
        let table = self.with_room(tuple, memory);
        // SAFETY: the header has it.
        unsafe { table.0.add(2).write(1) };
    }

    /// Calls `work` with each value, its hash and what it is ordered by.
    fn for_each(&self, table: Table, work: impl FnMut(u64, T, Option<Str>)) {
        // SAFETY: as in `with_room`.
        self.for_slots(table, 0..unsafe { table.capacity() }, work);
    }

    /// As [`Distinct::for_each`], of slots within the capacity.
    fn for_slots(
        &self,
        table: Table,
        slots: Range<u64>,
        mut work: impl FnMut(u64, T, Option<Str>),
    ) {
        // SAFETY: as in `with_room`.
        unsafe {
            for at in slots {
                let slot = self.slot(table, at);
                let hash = slot.cast::<u64>().read();
                if hash != 0 {
                    let place = slot.add(8).cast::<T>();
                    let key = self.order.map(|_| place.add(1).cast::<Str>().read_unaligned());
                    work(hash, place.read_unaligned(), key);
                }
            }
        }
    }
}

impl<T: Keep + Ordered> State for Distinct<T> {
    fn begin(&self, tuple: Tuple) {
        self.table.set(tuple, 0);
    }

    fn add(&self, tuples: &[Tuple], rows: &[u16], feed: &mut Feed<'_>) -> Result<()> {
        let vector = feed.registers.vector(self.argument);
        let hashes = feed.registers.values::<u64>(self.hash);
        let keys = self.order.map(|order| feed.registers.values::<Str>(order));
        for (tuple, row) in tuples.iter().zip(rows) {
            let row = usize::from(*row);
            match vector.value::<T>(row) {
                Some(value) => {
                    let key = keys.map(|keys| keys[row]);
                    self.insert(*tuple, hashes[row], value, key, feed.memory);
                }
                None => self.insert_null(*tuple, feed.memory),
            }
        }
        Ok(())
    }

    fn is_set(&self) -> bool {
        true
    }

    fn merge(&self, into: &[Tuple], from: &[Tuple], memory: &mut Memory) -> Result<()> {
        for (into, from) in into.iter().zip(from) {
            let Some(other) = self.table(*from) else { continue };
            if self.table(*into).is_none() && !memory.copies() {
                self.table.set(*into, other.0 as u64);
                continue;
            }
            // SAFETY: tables are made above.
            if unsafe { other.has_null() } {
                self.insert_null(*into, memory);
            }
            self.for_each(other, |hash, value, key| {
                self.insert(*into, hash, value, key, memory);
            });
        }
        Ok(())
    }
}

/// The registers that the aggregate over the set reads.
pub(super) const INNER_ARGUMENT: Register = Register(0);
/// What its values are ordered by.
pub(super) const INNER_ORDER: Register = Register(1);

/// An aggregate of the set's values.
#[derive(Debug)]
pub(super) struct DistinctOutcome<T> {
    pub(super) set: Distinct<T>,
    /// The aggregate, without keys.
    pub(super) inner: States,
}

/// Room for some values of a set, on their way to the aggregate of them.
struct Passing<T> {
    values: Vec<(Option<T>, Option<Str>)>,
    registers: Registers,
    narrowed: Narrowed,
}

impl<T: Keep> Passing<T> {
    fn new() -> Passing<T> {
        Passing {
            values: Vec::new(),
            registers: Registers::of(&[T::LANE, Lane::Str]),
            narrowed: Narrowed::default(),
        }
    }
}

impl<T: Keep + Ordered> DistinctOutcome<T> {
    /// Adds some values.
    fn pass(&self, tuple: Tuple, passing: &mut Passing<T>, memory: &mut Memory) -> Result<()> {
        let Passing { values, registers, narrowed } = passing;
        registers.begin(values.len());
        let vector = registers.vector_mut(INNER_ARGUMENT);
        vector.validity.set_all();
        for (at, (value, _)) in values.iter().enumerate() {
            vector.validity.set(at, value.is_some());
            vector.values_mut::<T>()[at] = value.unwrap_or_default();
        }
        let keys = registers.vector_mut(INNER_ORDER).values_mut::<Str>();
        for (place, (_, key)) in keys.iter_mut().zip(values.iter()) {
            *place = key.unwrap_or_default();
        }
        let mut feed = Feed { registers, memory };
        let all = Selected::All(values.len());
        self.inner.states.iter().try_for_each(|fed| fed.add_to_one(tuple, all, &mut feed, narrowed))
    }
}

impl<T: Keep + Ordered> Outcome for DistinctOutcome<T> {
    fn lane(&self) -> Lane {
        self.inner.outcomes[0].lane()
    }

    fn needs(&self, tuple: Tuple) -> Needs {
        let Some(table) = self.set.table(tuple).filter(|_| self.inner.has_lists) else {
            return Needs::default();
        };
        let mut bytes = 0;
        self.set.for_each(table, |_, value, key| {
            let strings = [T::IS_STRING.then(|| bytemuck::cast(value)), key];
            let strings: usize = strings.into_iter().flatten().map(Layout::long_bytes).sum();
            bytes += (self.set.slot_bytes() + strings) as u64;
        });
        // What the result is made by, the result, and a list of the values.
        Needs { making_bytes: bytes * 2, result_bytes: bytes, kept_bytes: bytes }
    }

    fn values(&self, tuple: Tuple) -> u64 {
        // SAFETY: sets are tables that were made here.
        self.set.table(tuple).map_or(0, |table| unsafe { table.len() })
    }

    fn write_in_turns<'a>(
        &'a self,
        tuples: &'a [Tuple],
        out: &'a mut Vector,
        memory: &'a mut Memory,
        pace: &'a mut Pace,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let words = self.inner.layout.bytes() / size_of::<u64>();
            let mut groups = vec![0u64; words * tuples.len()];
            let mut inner = Vec::with_capacity(tuples.len());
            let mut passing = Passing::new();
            for (tuple, words) in tuples.iter().zip(groups.chunks_exact_mut(words)) {
                // SAFETY: the words are one tuple of the inner layout, and nothing else uses them.
                let group = unsafe { self.inner.begin(words.as_mut_ptr().cast()) };
                inner.push(group);
                let Some(table) = self.set.table(*tuple) else { continue };
                // SAFETY: the set has made it.
                let (capacity, has_null) = unsafe { (table.capacity(), table.has_null()) };
                if has_null {
                    passing.values.push((None, None));
                    self.pass(group, &mut passing, memory)?;
                    passing.values.clear();
                }
                for start in (0..capacity).step_by(VECTOR_ROWS_MAX) {
                    let slots = start..capacity.min(start + VECTOR_ROWS_MAX as u64);
                    let keep = |_, value, key| passing.values.push((Some(value), key));
                    self.set.for_slots(table, slots, keep);
                    self.pass(group, &mut passing, memory)?;
                    passing.values.clear();
                    pace.keep().await;
                }
            }
            self.inner.outcomes[0].write_in_turns(&inner, out, memory, pace).await
        })
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, memory: &mut Memory) -> Result<()> {
        at_once(self.write_in_turns(tuples, out, memory, &mut Pace::unbroken()))
    }
}
