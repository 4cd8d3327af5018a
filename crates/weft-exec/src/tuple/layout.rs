//! How a tuple lies in memory: a header of hash and chain, bits for nulls, fields at fixed places.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 to 7 | the hash of its key |
//! | 8 to 15 | free for whoever makes a data structure of the tuples: the next one of a chain, and flags |
//! | 16 … | a bit for each field that may be null, set if it is |
//! | … | fields, the widest first |
//!
//! A string of more than twelve bytes lies behind the tuples of its page; the field has its distance from the tuple's
//! address. All tuples of a layout take [`Layout::bytes`], a multiple of 8.
//!
//! A field may take less than its register's lane ([`Storage`]), if whoever makes the layout knows that integers lie within the
//! bounds of a narrower lane, or that there are few different strings, of which tuples have the numbers then (`codebook.rs`):
//! what is spilled, read back and looked up in memory is that much less.

use std::sync::Arc;

use super::behind::Behind;
use super::codebook::Codebook;
use super::dense::Dense;
use crate::lane::Lane;
use crate::text::Str;

/// Bytes before the bits of nulls.
pub const HEADER_BYTES: usize = 16;
/// Where the hash lies.
pub const HASH_OFFSET: usize = 0;
/// Where the chain lies.
pub const NEXT_OFFSET: usize = 8;

/// The hash of a tuple.
///
/// # Safety
/// There is a tuple whose header is complete.
#[inline(always)]
pub(crate) unsafe fn hash_at(tuple: *const u8) -> u64 {
    // SAFETY: as promised; tuples are aligned to 8.
    unsafe { tuple.add(HASH_OFFSET).cast::<u64>().read() }
}

/// How the values of a register lie in tuples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// As in the register.
    #[default]
    Whole,
    /// Integers that all fit into this narrower lane, of the same signedness.
    Narrow(Lane),
    /// Strings of which there are few different ones, as their numbers in a codebook.
    Coded,
}

impl Storage {
    /// The lane of a field that has values of `lane`.
    ///
    /// # Panics
    /// If they cannot lie so.
    fn lane(self, lane: Lane) -> Lane {
        match self {
            Storage::Whole => lane,
            Storage::Narrow(narrow) => {
                assert!(narrow.widens_to(lane), "{lane} as {narrow}");
                narrow
            }
            Storage::Coded => {
                assert_eq!(lane, Lane::Str, "codes are of strings");
                Lane::U16
            }
        }
    }
}

/// A field of a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// What it holds.
    pub lane: Lane,
    /// What it holds when it is in a register: the same, or what [`Storage`] says.
    pub register_lane: Lane,
    /// Bytes from the tuple's address.
    pub offset: usize,
    /// Its number among the bits of nulls, if it may be null.
    pub null_bit: Option<usize>,
}

impl Field {
    /// True if a codebook has its values.
    pub fn is_coded(&self) -> bool {
        self.register_lane == Lane::Str && self.lane != Lane::Str
    }

    /// The byte of the tuple that has its null bit, and the bit in it.
    pub fn null_place(&self) -> Option<(usize, u8)> {
        self.null_bit.map(|bit| (HEADER_BYTES + bit / 8, 1 << (bit % 8)))
    }
}

/// How tuples lie on a page.
#[derive(Clone, Debug)]
pub struct Layout {
    fields: Vec<Field>,
    bytes: usize,
    has_strings: bool,
    /// That of each field that is coded, by the field's number.
    codebooks: Vec<Option<Arc<Codebook>>>,
    kept: Vec<KeptString>,
    behind: Vec<Arc<dyn Behind>>,
    /// The number of keys, and a tuple whose states have no rows, if there are states.
    without_rows: (usize, Vec<u64>),
    /// How tuples lie on disk, if not as they lie in memory.
    dense: Option<Arc<Dense>>,
}

impl PartialEq for Layout {
    fn eq(&self, other: &Layout) -> bool {
        self.fields == other.fields && self.kept == other.kept
    }
}

/// A string that lies behind an address of its own, not on the page, as long as the tuple is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptString {
    /// Where the string is, in bytes from the tuple's address.
    pub(crate) offset: usize,
    /// Where the address of the memory is that it has.
    pub(crate) room_offset: usize,
}

impl Layout {
    /// A layout of fields, each of a lane, that may be null or not.
    pub fn new(fields: &[(Lane, bool)]) -> Layout {
        let whole = |(lane, nullable): &(Lane, bool)| (*lane, *nullable, Storage::Whole);
        Layout::compact(&fields.iter().map(whole).collect::<Vec<_>>())
    }

    /// A layout of fields, each for values of a register's lane, that may be null or not, and how they lie in tuples.
    ///
    /// # Panics
    /// If values of a lane cannot lie so.
    pub fn compact(fields: &[(Lane, bool, Storage)]) -> Layout {
        let lane_of = |field: usize| fields[field].2.lane(fields[field].0);
        let nullable = fields.iter().filter(|(_, nullable, _)| *nullable).count();
        let mut order: Vec<usize> = (0..fields.len()).collect();
        order.sort_by_key(|field| std::cmp::Reverse(lane_of(*field).width()));
        let mut placed = vec![0; fields.len()];
        let mut offset = HEADER_BYTES + nullable.div_ceil(8);
        for field in order {
            // Fields of 16 bytes are aligned to 8, as tuples are.
            offset = offset.next_multiple_of(lane_of(field).width().min(8));
            placed[field] = offset;
            offset += lane_of(field).width();
        }
        let codebook = |(_, _, storage): &(Lane, bool, Storage)| {
            (*storage == Storage::Coded).then(|| Arc::new(Codebook::default()))
        };
        let codebooks = fields.iter().map(codebook).collect();
        let mut bits = 0..;
        let fields: Vec<Field> = (0..fields.len())
            .map(|field| {
                let (register_lane, nullable, _) = fields[field];
                let null_bit = if nullable { bits.next() } else { None };
                Field { lane: lane_of(field), register_lane, offset: placed[field], null_bit }
            })
            .collect();
        let has_strings = fields.iter().any(|field| field.lane == Lane::Str);
        let layout = Layout {
            fields,
            bytes: offset.next_multiple_of(8),
            has_strings,
            codebooks,
            kept: Vec::new(),
            behind: Vec::new(),
            without_rows: (0, Vec::new()),
            dense: None,
        };
        layout.made_dense()
    }

    /// The same with strings side by side on disk, if there are any.
    fn made_dense(mut self) -> Layout {
        self.dense = self.has_strings.then(|| Arc::new(Dense::new(&self)));
        self
    }

    /// The same with tuples that lie on disk as they do in memory, with their chain words.
    pub(crate) fn with_chains_on_disk(mut self) -> Layout {
        self.dense = None;
        self
    }

    /// How tuples lie on disk, if not as they lie in memory.
    pub(crate) fn dense(&self) -> Option<&Arc<Dense>> {
        self.dense.as_ref()
    }

    /// The same with strings that lie behind addresses: fields of strings, each with the field of its room.
    pub(crate) fn keeping(mut self, strings: &[(usize, usize)]) -> Layout {
        let kept = strings.iter().map(|(string, room)| KeptString {
            offset: self.fields[*string].offset,
            room_offset: self.fields[*room].offset,
        });
        self.kept = kept.collect();
        self.made_dense()
    }

    /// The same with lists and sets behind tuples. After the keys come states, of which `without_rows` has those of no rows.
    pub(crate) fn with_behind(
        mut self,
        behind: Vec<Arc<dyn Behind>>,
        keys: usize,
        without_rows: Vec<u64>,
    ) -> Layout {
        assert_eq!(size_of_val(&without_rows[..]), self.bytes, "a tuple");
        self.behind = behind;
        self.without_rows = (keys, without_rows);
        if self.behind.is_empty() { self } else { self.with_chains_on_disk() }
    }

    /// The lists and sets behind tuples.
    pub(crate) fn behind(&self) -> &[Arc<dyn Behind>] {
        &self.behind
    }

    /// True if states keep something behind addresses.
    pub(crate) fn keeps(&self) -> bool {
        !self.kept.is_empty() || !self.behind.is_empty()
    }

    /// A tuple without rows: keys of 0, and states.
    pub(crate) fn without_rows(&self) -> &[u64] {
        &self.without_rows.1
    }

    /// Makes the states of a tuple those of no rows.
    ///
    /// # Safety
    /// There is a tuple of the layout, which nobody else uses.
    pub(super) unsafe fn begin_states(&self, tuple: *mut u8) {
        let (keys, without_rows) = &self.without_rows;
        let from = without_rows.as_ptr().cast::<u8>();
        for field in &self.fields[*keys..] {
            // SAFETY: fields and their null bits lie within both tuples.
            unsafe {
                let (from_field, to) = (from.add(field.offset), tuple.add(field.offset));
                std::ptr::copy_nonoverlapping(from_field, to, field.lane.width());
                if let Some((byte, bit)) = field.null_place() {
                    let null = from.add(byte).read() & bit;
                    tuple.add(byte).write(tuple.add(byte).read() & !bit | null);
                }
            }
        }
    }

    /// The codebook of a field that is coded.
    ///
    /// # Panics
    /// If it is not.
    pub(super) fn codebook(&self, field: usize) -> &Arc<Codebook> {
        self.codebooks[field].as_ref().expect("a field that is coded")
    }

    /// The strings that lie behind addresses.
    pub(crate) fn kept(&self) -> &[KeptString] {
        &self.kept
    }

    /// Where the strings are that lie on the page, if they are long.
    pub(crate) fn strings_on_page(&self) -> impl Iterator<Item = usize> {
        let strings = self.fields.iter().filter(|field| field.lane == Lane::Str);
        let offsets = strings.map(|field| field.offset);
        offsets.filter(|offset| self.kept.iter().all(|kept| kept.offset != *offset))
    }

    /// The fields, in the order in which they were given.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// A field.
    pub fn field(&self, field: usize) -> &Field {
        &self.fields[field]
    }

    /// Bytes of a tuple, without its long strings.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if tuples may have bytes beyond [`Layout::bytes`].
    pub fn has_strings(&self) -> bool {
        self.has_strings
    }

    /// Bytes that a string takes beyond the tuple.
    pub fn long_bytes(string: Str) -> usize {
        if string.is_inline() { 0 } else { string.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_overlap() {
        let mut random = fastrand::Rng::with_seed(3);
        let lanes = [Lane::Bool, Lane::I16, Lane::I32, Lane::F64, Lane::I128, Lane::Str];
        for _ in 0..1000 {
            let fields: Vec<(Lane, bool)> = (0..random.usize(0..40))
                .map(|_| (lanes[random.usize(..lanes.len())], random.bool()))
                .collect();
            let layout = Layout::new(&fields);
            assert_eq!(layout.bytes() % 8, 0);
            let mut used = vec![false; layout.bytes()];
            used[..HEADER_BYTES].fill(true);
            let mut bits = std::collections::HashSet::new();
            for (field, (lane, nullable)) in layout.fields().iter().zip(&fields) {
                assert_eq!((field.lane, field.null_bit.is_some()), (*lane, *nullable));
                assert_eq!(field.offset % lane.width().min(8), 0);
                for byte in &mut used[field.offset..field.offset + lane.width()] {
                    assert!(!std::mem::replace(byte, true), "two fields");
                }
                if let Some((byte, bit)) = field.null_place() {
                    assert!(bits.insert((byte, bit)), "two bits");
                }
            }
            assert!(bits.iter().all(|(byte, _)| !used[*byte]), "a bit in a field");
        }
    }
}
