//! All values of a group, one after the other: what medians, quantiles, string_agg, array_agg and external functions are
//! made of in the end.
//!
//! A list is a chain of chunks in the operator's memory, each larger than the one before, so that many small lists cost
//! little and two lists are joined without a copy. A chunk begins with the address of the next one, its length and its
//! capacity (8, 4 and 4 bytes); values follow, then what they are ordered by, then a byte each that says whether there is one.
//! Packed with its tuple, a part of a list is one chunk, and its strings behind it.

use super::kept::Keep;
use super::memory::Memory;
use super::state::{Feed, Needs, Place, State, Tuple};
use super::turns::{self, AT_ONCE};
use crate::error::Result;
use crate::pace::{Pace, at_once};
use crate::program::Register;
use crate::text::Str;

pub(super) const HEADER_BYTES: usize = 16;
const VALUES_MIN: u32 = 4;
const VALUES_MAX: u32 = 1024;

/// The values of a register.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<T> {
    pub(super) argument: Register,
    /// What rows are ordered by: bytes that compare as rows do.
    pub(super) order: Option<Register>,
    pub(super) chain: Chain<T>,
}

/// The places of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain<T> {
    /// The first chunk; 0 if there is none.
    pub(super) first: Place<u64>,
    pub(super) last: Place<u64>,
    pub(super) count: Place<u64>,
    pub(super) is_ordered: bool,
    pub(super) value: std::marker::PhantomData<T>,
}

/// A chunk at an address.
#[derive(Clone, Copy)]
pub(super) struct Chunk(pub(super) *mut u8);

impl Chunk {
    pub(super) fn next(self) -> *mut u64 {
        self.0.cast()
    }

    pub(super) fn length(self) -> *mut u32 {
        self.0.wrapping_add(8).cast()
    }

    pub(super) fn capacity(self) -> *mut u32 {
        self.0.wrapping_add(12).cast()
    }
}

impl<T: Keep> Chain<T> {
    pub(super) fn chunk_bytes(&self, capacity: usize) -> usize {
        let key_bytes = if self.is_ordered { size_of::<Str>() } else { 0 };
        HEADER_BYTES + capacity * (size_of::<T>() + key_bytes + 1)
    }

    /// Where the value, its key and its validity lie.
    pub(super) fn places(
        &self,
        chunk: Chunk,
        capacity: usize,
        at: usize,
    ) -> (*mut T, *mut Str, *mut u8) {
        let values = HEADER_BYTES;
        let keys = values + capacity * size_of::<T>();
        let valid = keys + if self.is_ordered { capacity * size_of::<Str>() } else { 0 };
        (
            chunk.0.wrapping_add(values).cast::<T>().wrapping_add(at),
            chunk.0.wrapping_add(keys).cast::<Str>().wrapping_add(at),
            chunk.0.wrapping_add(valid + at),
        )
    }

    pub(super) fn begin(&self, tuple: Tuple) {
        self.first.set(tuple, 0);
        self.last.set(tuple, 0);
        self.count.set(tuple, 0);
    }

    pub(super) fn push(
        &self,
        tuple: Tuple,
        value: Option<T>,
        key: Option<Str>,
        memory: &mut Memory,
    ) {
        let chunk = self.chunk_with_room(tuple, memory);
        // SAFETY: the chunk was made below, and has room for one more at its length.
        unsafe {
            let length = chunk.length().read();
            let capacity = chunk.capacity().read() as usize;
            let places = self.places(chunk, capacity, length as usize);
            places.0.write_unaligned(value.unwrap_or_default().copied(tuple, memory));
            if self.is_ordered {
                places.1.write_unaligned(memory.copy(tuple, key.unwrap_or_default()));
            }
            places.2.write(value.is_some().into());
            chunk.length().write(length + 1);
        }
        self.count.set(tuple, self.count.get(tuple) + 1);
    }

    fn chunk_with_room(&self, tuple: Tuple, memory: &mut Memory) -> Chunk {
        let last = Chunk(self.last.get(tuple) as *mut u8);
        let mut capacity = VALUES_MIN;
        if !last.0.is_null() {
            // SAFETY: the chunk was made here, and lives as long as the operator.
            let (length, before) = unsafe { (last.length().read(), last.capacity().read()) };
            if length < before {
                return last;
            }
            capacity = (before * 2).min(VALUES_MAX);
        }
        let new = Chunk(memory.allocate(tuple, self.chunk_bytes(capacity as usize)));
        // SAFETY: the memory was just allocated as zeros, with room for the header.
        unsafe { new.capacity().write(capacity) };
        if last.0.is_null() {
            self.first.set(tuple, new.0 as u64);
        } else {
            // SAFETY: as above.
            unsafe { last.next().write(new.0 as u64) };
        }
        self.last.set(tuple, new.0 as u64);
        new
    }

    /// Puts what is in the list of `from` behind what is in that of `into`.
    pub(super) fn join(&self, into: Tuple, from: Tuple) {
        if self.count.get(from) == 0 {
            return;
        }
        match self.last.get(into) {
            0 => self.first.set(into, self.first.get(from)),
            // SAFETY: the chunk was made here, and lives as long as the operator.
            last => unsafe { Chunk(last as *mut u8).next().write(self.first.get(from)) },
        }
        self.last.set(into, self.last.get(from));
        self.count.set(into, self.count.get(into) + self.count.get(from));
    }

    /// What a text or a list of all values takes.
    pub(super) fn needs(&self, tuple: Tuple) -> Needs {
        at_once(self.needs_in_turns(tuple, &mut Pace::unbroken()))
    }

    /// As [`Chain::needs`].
    pub(super) async fn needs_in_turns(&self, tuple: Tuple, pace: &mut Pace) -> Needs {
        let mut text_bytes = 0;
        if T::IS_STRING {
            let mut way = self.begin_way(tuple);
            while self.go_on(&mut way, AT_ONCE, &mut |value, _| text_bytes += bytes_of(value)) {
                pace.keep().await;
            }
        }
        let count = self.count.get(tuple);
        let key_bytes = if self.is_ordered { 2 * size_of::<(Str, usize)>() } else { 0 };
        let bytes = (size_of::<Option<T>>() * 2 + key_bytes) as u64 * count;
        let result_bytes = size_of::<T>() as u64 * count + text_bytes;
        Needs { making_bytes: bytes + result_bytes, result_bytes, kept_bytes: 0 }
    }

    fn begin_way(&self, tuple: Tuple) -> Way {
        Way { chunk: Chunk(self.first.get(tuple) as *mut u8), at: 0 }
    }

    /// Goes on through so many values, or to the chunk's end; false at the end of the list.
    fn go_on(
        &self,
        way: &mut Way,
        most: usize,
        work: &mut impl FnMut(Option<T>, Option<Str>),
    ) -> bool {
        let Way { chunk, at } = *way;
        if chunk.0.is_null() {
            return false;
        }
        // SAFETY: chunks of the chain were made above, with so many values written to them.
        unsafe {
            let capacity = chunk.capacity().read() as usize;
            let length = chunk.length().read() as usize;
            let end = length.min(at.saturating_add(most));
            for at in at..end {
                let places = self.places(chunk, capacity, at);
                let value = (places.2.read() != 0).then(|| places.0.read_unaligned());
                work(value, self.is_ordered.then(|| places.1.read_unaligned()));
            }
            *way = match end == length {
                true => Way { chunk: Chunk(chunk.next().read() as *mut u8), at: 0 },
                false => Way { chunk, at: end },
            };
        }
        true
    }

    /// The values, in the order of their keys, else as they came.
    pub(super) async fn values_in_turns(&self, tuple: Tuple, pace: &mut Pace) -> Vec<Option<T>> {
        let count = self.count.get(tuple) as usize;
        let mut values = Vec::with_capacity(count);
        let mut keys = Vec::with_capacity(if self.is_ordered { count } else { 0 });
        let mut way = self.begin_way(tuple);
        let mut keep = |value, key: Option<Str>| {
            values.push(value);
            keys.extend(key.map(|key| (key, keys.len())));
        };
        while self.go_on(&mut way, AT_ONCE, &mut keep) {
            pace.keep().await;
        }
        if self.is_ordered {
            // SAFETY: the keys were copied into the operator's memory.
            let compare = |a: &(Str, usize), b: &(Str, usize)| unsafe { a.0.compare(&b.0) };
            turns::sort(&mut keys, compare, pace).await;
            let mut ordered = Vec::with_capacity(count);
            for some in keys.chunks(AT_ONCE) {
                ordered.extend(some.iter().map(|(_, at)| values[*at]));
                pace.keep().await;
            }
            values = ordered;
        }
        values
    }
}

/// How far somebody has come through a list.
struct Way {
    chunk: Chunk,
    at: usize,
}

/// Bytes of a value that is a string.
fn bytes_of<T: Keep>(value: Option<T>) -> u64 {
    value.map_or(0, |value| bytemuck::cast::<T, Str>(value).len() as u64)
}

impl<T: Keep> State for List<T> {
    fn begin(&self, tuple: Tuple) {
        self.chain.begin(tuple);
    }

    fn add(&self, tuples: &[Tuple], rows: &[u16], feed: &mut Feed<'_>) -> Result<()> {
        let vector = feed.registers.vector(self.argument);
        let keys = self.order.map(|order| feed.registers.values::<Str>(order));
        for (tuple, row) in tuples.iter().zip(rows) {
            let row = usize::from(*row);
            self.chain.push(*tuple, vector.value(row), keys.map(|keys| keys[row]), feed.memory);
        }
        Ok(())
    }

    fn merge(&self, into: &[Tuple], from: &[Tuple], _: &mut Memory) -> Result<()> {
        for (into, from) in into.iter().zip(from) {
            self.chain.join(*into, *from);
        }
        Ok(())
    }
}
