//! Which rows of a vector are not null: a bit each, and nothing at all where no row is null.

use arrow_buffer::{BooleanBuffer, NullBuffer};

use crate::kernels::bits::pack;
use crate::vector::VECTOR_ROWS_MAX;

const WORDS: usize = VECTOR_ROWS_MAX.div_ceil(64);

/// A bit per row, set if the row has a value. Bits of rows beyond the vector's, and of rows that are not selected, say
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Validity {
    has_nulls: bool,
    /// Kept when there are no nulls, to be used again.
    words: Option<Box<[u64; WORDS]>>,
}

impl Validity {
    /// False if every row has a value; true if some may have none.
    pub fn has_nulls(&self) -> bool {
        self.has_nulls
    }

    /// True if `row` has a value.
    pub fn is_valid(&self, row: usize) -> bool {
        !self.has_nulls || self.words().is_some_and(|words| words[row / 64] >> (row % 64) & 1 == 1)
    }

    /// The bits; `None` if every row has a value.
    pub fn words(&self) -> Option<&[u64; WORDS]> {
        if self.has_nulls { self.words.as_deref() } else { None }
    }

    /// Every row has a value.
    pub fn set_all(&mut self) {
        self.has_nulls = false;
    }

    /// No row has a value.
    pub fn clear_all(&mut self) {
        self.words_mut().fill(0);
    }

    /// The bits, to be changed; all set if there were no nulls.
    pub fn words_mut(&mut self) -> &mut [u64; WORDS] {
        let words = self.words.get_or_insert_with(|| Box::new([u64::MAX; WORDS]));
        if !self.has_nulls {
            words.fill(u64::MAX);
            self.has_nulls = true;
        }
        words
    }

    /// Says whether `row` has a value.
    pub fn set(&mut self, row: usize, valid: bool) {
        if valid && !self.has_nulls {
            return;
        }
        let word = &mut self.words_mut()[row / 64];
        let bit = 1 << (row % 64);
        if valid { *word |= bit } else { *word &= !bit }
    }

    /// Says of each row, by a byte that is 0 or 1, whether it has a value.
    pub fn set_bytes(&mut self, bytes: &[u8]) {
        let bits = pack(bytemuck::cast_slice(bytes), bytes.len());
        let has_nulls = |(number, word): (usize, &u64)| {
            let rows = bytes.len().saturating_sub(number * 64).min(64);
            rows > 0 && !word & (u64::MAX >> (64 - rows)) != 0
        };
        match bits.iter().enumerate().any(has_nulls) {
            true => self.words_mut().copy_from_slice(&bits),
            false => self.set_all(),
        }
    }

    /// Valid where `other` is.
    pub fn copy_from(&mut self, other: &Validity) {
        match other.words() {
            Some(words) => self.words_mut().copy_from_slice(words),
            None => self.set_all(),
        }
    }

    /// Valid where both this and `other` are.
    pub fn and(&mut self, other: &Validity) {
        if let Some(words) = other.words() {
            for (word, other) in self.words_mut().iter_mut().zip(words) {
                *word &= other;
            }
        }
    }

    /// Valid where the rows from `start` of an Arrow array are.
    ///
    /// # Panics
    /// If `rows` are more than a vector has.
    pub fn load(&mut self, nulls: Option<&NullBuffer>, start: usize, rows: usize) {
        assert!(rows <= VECTOR_ROWS_MAX, "{rows} rows");
        self.set_all();
        let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else { return };
        let bits = nulls.inner().slice(start, rows);
        let words = self.words_mut();
        for (word, bits) in words.iter_mut().zip(bits.bit_chunks().iter_padded()) {
            *word = bits;
        }
    }

    /// As Arrow has it, for the first `rows` rows.
    pub fn to_nulls(&self, rows: usize) -> Option<NullBuffer> {
        let words = self.words()?;
        let nulls = NullBuffer::new(BooleanBuffer::collect_bool(rows, |row| {
            words[row / 64] >> (row % 64) & 1 == 1
        }));
        (nulls.null_count() > 0).then_some(nulls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back() {
        let mut random = fastrand::Rng::with_seed(7);
        let bits: Vec<bool> = (0..5000).map(|_| random.u8(..) < 200).collect();
        let nulls = NullBuffer::from(bits.clone());
        let mut validity = Validity::default();
        for (start, rows) in [(0, 2048), (1, 2048), (63, 1), (64, 64), (100, 777), (4999, 1)] {
            validity.load(Some(&nulls), start, rows);
            for row in 0..rows {
                assert_eq!(validity.is_valid(row), bits[start + row], "{start} {row}");
            }
            let expected = NullBuffer::from(&bits[start..start + rows]);
            let expected = (expected.null_count() > 0).then_some(expected);
            assert_eq!(validity.to_nulls(rows), expected);
        }
        validity.load(None, 0, 10);
        assert!(!validity.has_nulls() && validity.is_valid(2047));
        validity.set(5, true);
        assert!(!validity.has_nulls(), "nothing changed");
        validity.set(5, false);
        assert!(!validity.is_valid(5) && validity.is_valid(4));
        let mut other = Validity::default();
        other.and(&validity);
        assert!(!other.is_valid(5) && other.is_valid(6));
        other.clear_all();
        validity.copy_from(&other);
        assert!(!validity.is_valid(6));
    }
}
