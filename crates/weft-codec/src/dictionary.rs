//! Distinct values and codes, for integers (and the bits of floats) and for strings.
//!
//! Payload: number of entries (u32), the entries as a child, the codes (u16) as the rest. Entries are
//! sorted, so that a predicate on values can become one on codes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use arrow_buffer::BooleanBuffer;

use crate::condition::Condition;
use crate::error::{Result, damaged};
use crate::ints;
use crate::reader::{Reader, put, put_child};
use crate::rows::Rows;

/// A multiplicative hash: dictionaries are built once per block, from our own data.
#[derive(Default)]
pub(crate) struct FastHasher(u64);

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &word in bytes.as_chunks().0 {
            self.write_u64(u64::from_le_bytes(word));
        }
        // The last bytes: of eight that overlap those before, or of fewer than eight in all.
        match bytes.last_chunk() {
            Some(last) => self.write_u64(u64::from_le_bytes(*last)),
            None => self.write_u64(crate::strings::head(bytes)),
        }
    }
    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }
    fn write_u16(&mut self, value: u16) {
        self.write_u64(value.into());
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

type Codes<T> = HashMap<T, u16, BuildHasherDefault<FastHasher>>;

/// Runs of the sample, and their length in rows.
const SAMPLE: (usize, usize) = (16, 64);

/// A few runs of `values`, spread evenly: what the chooser looks at first.
pub(crate) fn sample<T: Copy>(values: &[T]) -> Vec<T> {
    let (runs, len) = SAMPLE;
    if values.len() <= runs * len {
        return values.to_vec();
    }
    let stride = (values.len() - len) / (runs - 1);
    (0..runs).flat_map(|run| values[run * stride..][..len].iter().copied()).collect()
}

/// Bytes that codes and entries take, judging by the distinct values of a sample; nothing if that does not repeat
/// itself enough to build a dictionary. Among `n` values of `d` equally frequent ones, some `n² / 2d`
/// repeat another, if `d` is large.
pub(crate) fn estimate<T: Copy + Eq + Hash>(values: &[T]) -> Option<usize> {
    let sample = sample(values);
    let mut seen = Codes::default();
    seen.extend(sample.iter().map(|&value| (value, 0)));
    let repeated = sample.len() - seen.len();
    let distinct = match repeated {
        0 => return None,
        _ if repeated * 2 >= sample.len() => seen.len(),
        _ => sample.len() * sample.len() / (2 * repeated),
    };
    let bits = usize::BITS - (distinct - 1).leading_zeros();
    let worth = if sample.len() == values.len() { values.len() / 2 } else { values.len() / 4 };
    (distinct <= worth).then(|| values.len() * bits as usize / 8 + distinct * size_of::<T>() / 2)
}

/// Sorted entries and a code per row; nothing if more than half of the values are distinct.
pub(crate) fn build<T: Copy + Ord + Hash>(values: &[T]) -> Option<(Vec<T>, Vec<u16>)> {
    let mut codes = Codes::default();
    let mut entries = Vec::new();
    let mut rows = Vec::with_capacity(values.len());
    for &value in values {
        let code = *codes.entry(value).or_insert_with(|| {
            entries.push(value);
            (entries.len() - 1) as u16
        });
        if entries.len() * 2 > values.len() {
            return None;
        }
        rows.push(code);
    }
    let mut order: Vec<u16> = (0..entries.len()).map(|code| code as u16).collect();
    order.sort_unstable_by_key(|&code| entries[usize::from(code)]);
    let mut ranks = vec![0; entries.len()];
    for (rank, &code) in order.iter().enumerate() {
        ranks[usize::from(code)] = rank as u16;
    }
    rows.iter_mut().for_each(|code| *code = ranks[usize::from(*code)]);
    Some((order.iter().map(|&code| entries[usize::from(code)]).collect(), rows))
}

/// Appends the payload, given the encoded `entries`, their number, and the codes.
pub(crate) fn write(entries: &[u8], len: usize, codes: &[u16], level: u8, out: &mut Vec<u8>) {
    put(out, len as u32);
    put_child(out, entries);
    ints::encode(codes, false, level, out);
}

/// A dictionary payload: the number of entries, their node, and the node of the codes.
pub(crate) struct Dictionary<'a> {
    pub(crate) len: usize,
    pub(crate) entries: &'a [u8],
    pub(crate) codes: &'a [u8],
}

impl<'a> Dictionary<'a> {
    pub(crate) fn open(mut reader: Reader<'a>) -> Result<Self> {
        let len = reader.length()?;
        if len == 0 || len > crate::MAX_ROWS {
            return Err(damaged("dictionary", format!("{len} entries")));
        }
        let entries = reader.child()?;
        Ok(Self { len, entries, codes: reader.rest() })
    }

    /// The codes of `rows`, each of which is one of an entry.
    pub(crate) fn codes(&self, rows: Rows, depth: u8) -> Result<Vec<u16>> {
        let codes = ints::read::<u16>(self.codes, rows, depth)?;
        let greatest = usize::from(codes.iter().copied().max().unwrap_or(0));
        if greatest >= self.len {
            return Err(damaged("dictionary", format!("code {greatest} of {} entries", self.len)));
        }
        Ok(codes)
    }

    /// The entries that must be read for `codes`, and the codes by their places among these.
    pub(crate) fn used(&self, mut codes: Vec<u16>) -> (Used, Vec<u16>) {
        if codes.len() * 4 > self.len {
            return (Used { of: self.len, entries: None }, codes);
        }
        let mut entries: Vec<u32> = codes.iter().map(|&code| code.into()).collect();
        entries.sort_unstable();
        entries.dedup();
        for code in &mut codes {
            *code = entries.partition_point(|&entry| entry < u32::from(*code)) as u16;
        }
        (Used { of: self.len, entries: Some(entries) }, codes)
    }

    /// A bit per row, given which entries satisfy a condition.
    pub(crate) fn filter(
        &self,
        entries: &BooleanBuffer,
        rows: usize,
        depth: u8,
    ) -> Result<BooleanBuffer> {
        ints::filter::<u16>(self.codes, rows, &Condition::codes(entries), depth)
    }

    /// The code of row `row` of `rows`.
    pub(crate) fn code(&self, row: usize, rows: usize, depth: u8) -> Result<usize> {
        let code = usize::from(ints::value::<u16>(self.codes, row, rows, depth)?);
        if code >= self.len {
            return Err(damaged("dictionary", format!("code {code} of {} entries", self.len)));
        }
        Ok(code)
    }
}

/// The entries of a dictionary that must be read.
pub(crate) struct Used {
    of: usize,
    entries: Option<Vec<u32>>,
}

impl Used {
    pub(crate) fn rows(&self) -> Rows<'_> {
        match &self.entries {
            None => Rows::All(self.of),
            Some(entries) => Rows::picked(self.of, entries),
        }
    }
}

/// Replaces each code by its entry.
pub(crate) fn gather<T: Copy>(entries: &[T], codes: &[u16]) -> Result<Vec<T>> {
    let greatest = usize::from(codes.iter().copied().max().unwrap_or(0));
    if !codes.is_empty() && greatest >= entries.len() {
        let what = format!("code {greatest} of {} entries", entries.len());
        return Err(damaged("dictionary", what));
    }
    // SAFETY: no code is greater than `greatest`, which is an index of `entries` if there is a code.
    let entry = |&code: &u16| unsafe { *entries.get_unchecked(usize::from(code)) };
    Ok(codes.iter().map(entry).collect())
}
