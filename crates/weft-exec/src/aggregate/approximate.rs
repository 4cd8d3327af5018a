//! How many different values there are, about: some hashes as they are, then a HyperLogLog sketch.

use weft_codec::sketch::{add, estimate};

use super::memory::Memory;
use super::state::{Feed, Outcome, Place, State, Tuple};
use crate::error::Result;
use crate::lane::Lane;
use crate::program::Register;
use crate::tuple::behind::{Behind, Cursor, Part};
use crate::tuple::pack::Form;
use crate::vector::Vector;

/// Hashes that are kept as they are: so many groups with few values each cost little.
const EXACT_MAX: usize = 32;

/// Registers of a group's sketch: an error of 1.6 %.
const REGISTERS: usize = 4096;

/// The highest rank of the hashes of each register.
type Ranks = [u8; REGISTERS];

/// Hashes or ranks of a register's hashes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Approximate {
    pub(super) hash: Register,
    /// Hashes, or what is more than can be kept of them: any number beyond [`EXACT_MAX`].
    pub(super) count: Place<u64>,
    /// The address of hashes or ranks; 0 if there are none.
    pub(super) place: Place<u64>,
}

impl Approximate {
    /// The hashes of a group, or its ranks.
    ///
    /// # Safety
    /// The tuple is one of this state's, and nobody else uses what is given.
    unsafe fn kept<'a>(&self, tuple: Tuple) -> Result<&'a mut [u64], &'a mut Ranks> {
        let (address, count) = (self.place.get(tuple) as *mut u64, self.count.get(tuple) as usize);
        if count > EXACT_MAX {
            // SAFETY: then it is the address of ranks.
            return Err(unsafe { &mut *address.cast::<Ranks>() });
        }
        if count == 0 {
            return Ok(&mut []);
        }
        // SAFETY: so many hashes lie there.
        Ok(unsafe { std::slice::from_raw_parts_mut(address, count) })
    }

    fn insert(&self, tuple: Tuple, hash: u64, memory: &mut Memory) {
        // SAFETY: nothing else is made of the tuple before this is used for the last time.
        let hashes = match unsafe { self.kept(tuple) } {
            Err(ranks) => return add(ranks, hash),
            Ok(hashes) if hashes.contains(&hash) => return,
            Ok(hashes) => hashes,
        };
        let count = hashes.len();
        if count == EXACT_MAX {
            let ranks = memory.allocate(tuple, REGISTERS);
            // SAFETY: just allocated as zeros; ranks are bytes.
            let dense = unsafe { &mut *ranks.cast::<Ranks>() };
            hashes.iter().for_each(|hash| add(dense, *hash));
            add(dense, hash);
            self.place.set(tuple, ranks as u64);
        } else {
            // Room for 1, 2, 4 … hashes.
            if count == 0 || count.is_power_of_two() {
                let bytes = (count * 2).max(1) * size_of::<u64>();
                let room = memory.allocate(tuple, bytes).cast::<u64>();
                // SAFETY: just allocated, for more than there are.
                unsafe { std::ptr::copy_nonoverlapping(hashes.as_ptr(), room, count) };
                self.place.set(tuple, room as u64);
            }
            // SAFETY: there is room for one more.
            unsafe { (self.place.get(tuple) as *mut u64).add(count).write(hash) };
        }
        self.count.set(tuple, count as u64 + 1);
    }
}

impl State for Approximate {
    fn begin(&self, tuple: Tuple) {
        self.count.set(tuple, 0);
        self.place.set(tuple, 0);
    }

    fn add(&self, tuples: &[Tuple], rows: &[u16], feed: &mut Feed<'_>) -> Result<()> {
        let hashes = feed.registers.values::<u64>(self.hash);
        for (tuple, row) in tuples.iter().zip(rows) {
            self.insert(*tuple, hashes[usize::from(*row)], feed.memory);
        }
        Ok(())
    }

    fn is_set(&self) -> bool {
        true
    }

    fn merge(&self, into: &[Tuple], from: &[Tuple], memory: &mut Memory) -> Result<()> {
        for (into, from) in into.iter().zip(from) {
            // SAFETY: the two are different groups' tuples, and `into` is looked at anew where it is changed.
            match unsafe { self.kept(*from) } {
                Ok(hashes) => {
                    hashes.iter().for_each(|hash| self.insert(*into, *hash, memory));
                }
                Err(ranks) => {
                    // SAFETY: as above.
                    match unsafe { self.kept(*into) } {
                        Ok(hashes) => {
                            hashes.iter().for_each(|hash| add(ranks, *hash));
                            let mut place = self.place.get(*from);
                            if memory.copies() {
                                let copy = memory.allocate(*into, REGISTERS);
                                // SAFETY: just allocated, of as many bytes.
                                unsafe {
                                    let from = place as *const u8;
                                    std::ptr::copy_nonoverlapping(from, copy, REGISTERS);
                                }
                                place = copy as u64;
                            }
                            self.place.set(*into, place);
                            self.count.set(*into, self.count.get(*from));
                        }
                        Err(into) => {
                            for (rank, other) in into.iter_mut().zip(ranks.iter()) {
                                *rank = (*rank).max(*other);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl Approximate {
    /// Bytes of what a tuple keeps, and of the room that it has.
    fn bytes(&self, tuple: Tuple) -> (usize, usize) {
        match self.count.get(tuple) as usize {
            0 => (0, 0),
            count if count > EXACT_MAX => (REGISTERS, REGISTERS),
            // As much room as there would be if they had come one by one.
            count => (count * size_of::<u64>(), count.next_power_of_two() * size_of::<u64>()),
        }
    }
}

/// A sketch has one part.
impl Behind for Approximate {
    unsafe fn start(&self, tuple: *const u8, form: Form) -> Cursor {
        // SAFETY: as promised; it is only read.
        let sketch = unsafe { Tuple::at(tuple.cast_mut()) };
        let base = if form == Form::Packed { tuple as u64 } else { 0 };
        Cursor { address: base + self.place.get(sketch), at: 0, left: 0, is_start: true }
    }

    unsafe fn part(&self, tuple: *const u8, _: Form, from: Cursor, _: usize) -> Part {
        if !from.is_start {
            return Part::default();
        }
        // SAFETY: as promised; it is only read.
        let (_, bytes) = self.bytes(unsafe { Tuple::at(tuple.cast_mut()) });
        Part { from, values: 0, bytes, next: Cursor::default() }
    }

    unsafe fn pack(&self, tuple: *const u8, _: Form, part: &Part, to: *mut u8, place: *mut u8) {
        // SAFETY: as promised; there are so many bytes, and room for them.
        unsafe {
            let (bytes, _) = self.bytes(Tuple::at(tuple.cast_mut()));
            std::ptr::copy_nonoverlapping(part.from.address as *const u8, place, bytes);
            self.place.set(Tuple::at(to), place.offset_from(to) as u64);
        }
    }

    unsafe fn unpack(&self, tuple: *mut u8) {
        // SAFETY: as promised.
        let sketch = unsafe { Tuple::at(tuple) };
        if self.count.get(sketch) > 0 {
            self.place.set(sketch, self.place.get(sketch) + tuple as u64);
        }
    }
}

/// The estimate; never null.
#[derive(Debug)]
pub(super) struct ApproximateOutcome {
    pub(super) state: Approximate,
    pub(super) lane: Lane,
}

impl Outcome for ApproximateOutcome {
    fn lane(&self) -> Lane {
        self.lane
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, _: &mut Memory) -> Result<()> {
        out.validity.set_all();
        for (at, tuple) in tuples.iter().enumerate() {
            // SAFETY: nothing else uses the tuple.
            let count = match unsafe { self.state.kept(*tuple) } {
                Ok(hashes) => hashes.len() as u64,
                Err(ranks) => estimate(ranks),
            };
            match self.lane {
                Lane::U64 => out.values_mut::<u64>()[at] = count,
                _ => out.values_mut::<i64>()[at] = count as i64,
            }
        }
        Ok(())
    }
}
