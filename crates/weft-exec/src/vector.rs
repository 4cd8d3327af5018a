//! Vectors: the values of one register for the tuples at hand.
//!
//! A vector either shares a piece of an Arrow buffer or owns memory that it uses again and again. It does not know how
//! many rows there are: that is the same for all [registers](crate::registers).

use arrow_buffer::{Buffer, ScalarBuffer};
use bytemuck::cast_slice;

use crate::arrow::ArrowColumn;
use crate::lane::{Lane, Value};
use crate::text::Str;
use crate::validity::Validity;

/// Most tuples in a vector.
pub const VECTOR_ROWS_MAX: usize = 2048;

/// Which of the values of a dictionary each row has.
#[derive(Clone, Debug)]
pub struct Codes {
    /// A code for each row, below `values`. That of a null means nothing.
    pub codes: ScalarBuffer<u16>,
    /// How many values there are.
    pub values: usize,
    /// Which dictionary it is: with equal numbers, equal codes are equal values.
    pub dictionary: u64,
}

/// Values of one lane, with nulls.
#[derive(Debug)]
pub struct Vector {
    lane: Lane,
    /// Memory of its own for [`VECTOR_ROWS_MAX`] values, allocated when first written to; 16 bytes are what the most
    /// demanding lane is aligned to.
    own: Vec<u128>,
    /// Read instead of `own`.
    shared: Option<Buffer>,
    codes: Option<Codes>,
    /// Which rows have a value. What lies under a null is initialized and means nothing.
    pub validity: Validity,
    /// Owns strings that were computed.
    pub(crate) arena: Arena,
}

impl Vector {
    /// A vector without values.
    pub fn new(lane: Lane) -> Vector {
        Vector {
            lane,
            own: Vec::new(),
            shared: None,
            codes: None,
            validity: Validity::default(),
            arena: Arena::default(),
        }
    }

    /// What its values are.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// The values, at least as many as there are rows.
    ///
    /// # Panics
    /// If they are of another lane.
    pub fn values<T: Value>(&self) -> &[T] {
        self.check::<T>();
        match &self.shared {
            Some(buffer) => cast_slice(buffer.as_slice()),
            None => cast_slice(&self.own),
        }
    }

    /// The value of a row, if it has one.
    ///
    /// # Panics
    /// If values are of another lane, or there are not so many.
    pub fn value<T: Value>(&self, row: usize) -> Option<T> {
        self.validity.is_valid(row).then(|| self.values::<T>()[row])
    }

    /// Memory for [`VECTOR_ROWS_MAX`] values to be written to. What was there before, validity included, stays if the
    /// vector owns it; else it is lost.
    ///
    /// # Panics
    /// If values are of another lane.
    pub fn values_mut<T: Value>(&mut self) -> &mut [T] {
        self.check::<T>();
        self.shared = None;
        self.codes = None;
        if self.own.is_empty() {
            self.own = vec![0; VECTOR_ROWS_MAX * self.lane.width() / size_of::<u128>()];
        }
        bytemuck::cast_slice_mut(&mut self.own)
    }

    /// Sees to it that the vector owns memory for values, whatever they are: somebody may look at them where they are
    /// null.
    pub fn make_room(&mut self) {
        crate::for_lane!(self.lane, T => {
            self.values_mut::<T>();
        });
    }

    /// Shares `buffer`, whose first bytes are the values.
    ///
    /// # Panics
    /// If it is not aligned for them, or holds more than [`VECTOR_ROWS_MAX`].
    pub fn share<T: Value>(&mut self, buffer: Buffer) {
        self.check::<T>();
        let values: &[T] = cast_slice(buffer.as_slice());
        assert!(values.len() <= VECTOR_ROWS_MAX, "{} values", values.len());
        self.shared = Some(buffer);
        self.codes = None;
    }

    /// Which values of a dictionary those are that the vector has, if that is known.
    pub fn codes(&self) -> Option<&Codes> {
        self.codes.as_ref()
    }

    /// Says which values of a dictionary those are that were just written, until others are.
    pub fn set_codes(&mut self, codes: Codes) {
        self.codes = Some(codes);
    }

    /// Forgets the strings of the tuples before.
    pub fn reset(&mut self) {
        self.arena.reset();
    }

    fn check<T: Value>(&self) {
        assert_eq!(T::LANE, self.lane, "values of another lane");
    }
}

/// Bytes of computed strings, which do not move until all are forgotten.
#[derive(Debug, Default)]
pub struct Arena {
    /// All but the last are full. None ever grows beyond the capacity that it was made with.
    chunks: Vec<Vec<u8>>,
    /// These own others.
    columns: Vec<ArrowColumn>,
}

const CHUNK_BYTES: usize = 32 << 10;

impl Arena {
    /// Copies `bytes` and gives a view of them, which is valid until [`Arena::reset`].
    pub fn add(&mut self, bytes: &[u8]) -> Str {
        if bytes.len() <= crate::text::INLINE_BYTES_MAX {
            return Str::new(bytes);
        }
        let has_room = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= bytes.len();
        if !self.chunks.last().is_some_and(has_room) {
            self.chunks.push(Vec::with_capacity(CHUNK_BYTES.max(bytes.len())));
        }
        let chunk = self.chunks.last_mut().expect("just added");
        let start = chunk.len();
        chunk.extend_from_slice(bytes);
        Str::new(&chunk[start..])
    }

    /// The same for bytes that somebody has made: many are not copied.
    pub(crate) fn add_made(&mut self, bytes: &mut Vec<u8>) -> Str {
        if bytes.len() <= CHUNK_BYTES {
            let view = self.add(bytes);
            bytes.clear();
            return view;
        }
        let mut chunk = std::mem::take(bytes);
        chunk.shrink_to_fit();
        let view = Str::new(&chunk);
        // Not the last one, which may have room.
        self.chunks.insert(self.chunks.len().saturating_sub(1), chunk);
        view
    }

    /// Keeps the strings of a column that was loaded: they are valid until [`Arena::reset`].
    pub(crate) fn keep(&mut self, column: ArrowColumn) {
        self.columns.push(column);
    }

    /// Forgets all strings, and keeps a little memory for the next.
    pub fn reset(&mut self) {
        self.columns.clear();
        self.chunks.truncate(1);
        match self.chunks.first_mut() {
            Some(chunk) if chunk.capacity() <= CHUNK_BYTES => chunk.clear(),
            _ => self.chunks.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_buffer::ScalarBuffer;

    use super::*;

    #[test]
    fn a_vector_shares_or_owns() {
        let mut vector = Vector::new(Lane::I64);
        vector.values_mut::<i64>()[3] = 7;
        assert_eq!(vector.value::<i64>(3), Some(7));
        let values = ScalarBuffer::from(vec![1i64, 2, 3, 4]);
        vector.share::<i64>(values.slice(1, 3).into_inner());
        assert_eq!(vector.values::<i64>(), [2, 3, 4]);
        vector.validity.set(1, false);
        assert_eq!((vector.value::<i64>(1), vector.value::<i64>(2)), (None, Some(4)));
        assert_eq!(vector.values_mut::<i64>()[3], 7, "its own memory is used again");
        assert_eq!(vector.values::<i64>().len(), VECTOR_ROWS_MAX);
    }

    #[test]
    fn an_arena_does_not_move_strings() {
        let mut arena = Arena::default();
        for round in 0..3 {
            let texts: Vec<String> =
                (0..5000).map(|n| format!("{round} a computed string, number {n}")).collect();
            let views: Vec<Str> = texts.iter().map(|text| arena.add(text.as_bytes())).collect();
            for (text, view) in texts.iter().zip(&views) {
                // SAFETY: the arena has not been reset since.
                assert_eq!(unsafe { view.bytes() }, text.as_bytes());
            }
            arena.reset();
        }
        let long = vec![b'x'; 100_000];
        let short = arena.add(b"a short one, but not inline");
        let views = [arena.add(&long), arena.add_made(&mut long.clone())];
        let other = arena.add_made(&mut b"another short one".to_vec());
        // SAFETY: the arena has not been reset since.
        unsafe {
            assert!(views.iter().all(|view| view.bytes() == long));
            assert_eq!(short.bytes(), b"a short one, but not inline");
            assert_eq!(other.bytes(), b"another short one");
        }
    }
}
