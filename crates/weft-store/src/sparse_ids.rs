//! The ids of a row group's rows, where ids between them have no rows any more: what is left of deleted rows when their row group was
//! written anew. Row ids never change, so indexes and transactions go on with them.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::UInt64Array;
use arrow_buffer::bit_iterator::BitIndexIterator;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};

use crate::wire::{Reader, WireResult, Writer, wrong};

/// Ids are bits if at least one in so many of them has a row, and are listed otherwise.
const BITS_PER_LISTED: u64 = 32;
/// Ids whose rows are counted together.
const BLOCK_BITS: usize = 512;

/// The ids of rows as their distances from the first one's, ascending: a row's place in the row group is the place of its id here. Copies
/// share memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SparseIds(Arc<Form>);

#[derive(Debug, PartialEq)]
enum Form {
    Listed(Box<[u32]>),
    Bits {
        bits: BooleanBuffer,
        /// Set bits before each block of [`BLOCK_BITS`] bits.
        before: Box<[u32]>,
    },
}

impl SparseIds {
    /// Of rows whose ids have these distances from the first one's, which ascend from 0 on; `None` if no id is left out.
    pub(crate) fn new(distances: &[u32]) -> Option<SparseIds> {
        let span = span_of(distances);
        if span == distances.len() as u64 {
            return None;
        }
        if is_listed(distances.len(), span) {
            return Some(SparseIds(Arc::new(Form::Listed(distances.into()))));
        }
        let mut bits = BooleanBufferBuilder::new(span as usize);
        bits.append_n(span as usize, false);
        distances.iter().for_each(|distance| bits.set_bit(*distance as usize, true));
        Some(SparseIds::of_bits(bits.finish()))
    }

    fn of_bits(bits: BooleanBuffer) -> SparseIds {
        let mut before = Vec::with_capacity(bits.len().div_ceil(BLOCK_BITS));
        let mut count = 0;
        for first in (0..bits.len()).step_by(BLOCK_BITS) {
            before.push(count as u32);
            count += bits.slice(first, BLOCK_BITS.min(bits.len() - first)).count_set_bits();
        }
        SparseIds(Arc::new(Form::Bits { bits, before: before.into() }))
    }

    /// The distance of the last id, and 1.
    pub(crate) fn span(&self) -> u64 {
        match &*self.0 {
            Form::Listed(distances) => span_of(distances),
            Form::Bits { bits, .. } => bits.len() as u64,
        }
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> u64 {
        match &*self.0 {
            Form::Listed(distances) => 4 * distances.len() as u64,
            Form::Bits { bits, before } => bits.len() as u64 / 8 + 4 * before.len() as u64,
        }
    }

    /// How many rows have an id of a lesser distance: their places are below this.
    pub(crate) fn rows_before(&self, distance: u64) -> usize {
        let distance = distance.min(self.span()) as usize;
        match &*self.0 {
            Form::Listed(distances) => {
                distances.partition_point(|other| (*other as usize) < distance)
            }
            Form::Bits { bits, before } => {
                let block = distance / BLOCK_BITS;
                let Some(count) = before.get(block) else {
                    return bits.count_set_bits();
                };
                let first = block * BLOCK_BITS;
                *count as usize + bits.slice(first, distance - first).count_set_bits()
            }
        }
    }

    /// The place of the row whose id has this distance.
    pub(crate) fn place_of(&self, distance: u64) -> Option<u32> {
        match &*self.0 {
            Form::Listed(distances) => {
                let distance = u32::try_from(distance).ok()?;
                distances.binary_search(&distance).ok().map(|place| place as u32)
            }
            Form::Bits { bits, .. } => {
                let is_there = distance < bits.len() as u64 && bits.value(distance as usize);
                is_there.then(|| self.rows_before(distance) as u32)
            }
        }
    }

    /// The distances of the rows at some places.
    pub(crate) fn distances(&self, places: Range<usize>) -> impl Iterator<Item = u32> + '_ {
        let rows = places.len();
        let (listed, set): (&[u32], _) = match &*self.0 {
            Form::Listed(distances) => {
                (&distances[places], BitIndexIterator::new(&[], 0, 0).map(at_bit(0)))
            }
            Form::Bits { bits, before } => {
                let block = before.partition_point(|count| *count as usize <= places.start) - 1;
                let first = block * BLOCK_BITS;
                let (bytes, offset) = (bits.values(), bits.offset() + first);
                let mut set = BitIndexIterator::new(bytes, offset, bits.len() - first);
                let skipped = places.start - before[block] as usize;
                if let Some(last_skipped) = skipped.checked_sub(1) {
                    set.nth(last_skipped);
                }
                (&[], set.map(at_bit(first)))
            }
        };
        listed.iter().copied().chain(set).take(rows)
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u64(self.span());
        match &*self.0 {
            Form::Listed(distances) => distances.iter().for_each(|distance| writer.u32(*distance)),
            Form::Bits { bits, .. } => {
                for first in (0..bits.len()).step_by(64) {
                    let bits = bits.slice(first, 64.min(bits.len() - first));
                    writer.u64(bits.set_indices().fold(0, |word, bit| word | 1 << bit));
                }
            }
        }
    }

    /// Reads the ids of `rows` rows.
    pub(crate) fn read(reader: &mut Reader<'_>, rows: u32) -> WireResult<SparseIds> {
        let span = reader.u64()?;
        let is_wrong = || wrong(format!("{rows} rows do not have these ids among {span}"));
        if span <= u64::from(rows) || span > u64::from(u32::MAX) {
            return is_wrong();
        }
        if is_listed(rows as usize, span) {
            reader.expect(rows as usize, 4)?;
            let distances: Vec<u32> = (0..rows).map(|_| reader.u32()).collect::<WireResult<_>>()?;
            let is_right = distances.is_sorted_by(|a, b| a < b)
                && distances.first() == Some(&0)
                && span_of(&distances) == span;
            return match is_right {
                true => Ok(SparseIds(Arc::new(Form::Listed(distances.into())))),
                false => is_wrong(),
            };
        }
        let words = span.div_ceil(64) as usize;
        reader.expect(words, 8)?;
        let words: Vec<u64> = (0..words).map(|_| reader.u64()).collect::<WireResult<_>>()?;
        let last_bits = (span - 1) % 64;
        let has_ends = words[0] & 1 == 1 && words[words.len() - 1] >> last_bits == 1;
        let count: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        if !has_ends || count != u64::from(rows) {
            return is_wrong();
        }
        let bits =
            BooleanBuffer::new(words.into_iter().map(u64::to_le).collect(), 0, span as usize);
        Ok(SparseIds::of_bits(bits))
    }
}

fn at_bit(first: usize) -> impl Fn(usize) -> u32 {
    move |bit| (first + bit) as u32
}

fn span_of(distances: &[u32]) -> u64 {
    distances.last().map_or(0, |last| u64::from(*last) + 1)
}

fn is_listed(rows: usize, span: u64) -> bool {
    rows as u64 * BITS_PER_LISTED <= span
}

/// The id of the first row, and those of all rows if ids between them have none; the ids ascend.
pub(crate) fn first_and_distances(ids: impl Iterator<Item = u64>) -> (u64, Option<SparseIds>) {
    let mut ids = ids.peekable();
    let first = ids.peek().copied().unwrap_or(0);
    let distance = |id| u32::try_from(id - first).expect("ids of a row group are close together");
    (first, SparseIds::new(&ids.map(distance).collect::<Vec<_>>()))
}

/// The ids of the rows at some places of a row group whose first row has the id `first_row`.
pub(crate) fn ids_of(first_row: u64, ids: Option<&SparseIds>, places: Range<usize>) -> UInt64Array {
    match ids {
        None => {
            let id = |place: usize| first_row + place as u64;
            UInt64Array::from_iter_values(places.map(id))
        }
        Some(ids) => {
            let distances = ids.distances(places);
            UInt64Array::from_iter_values(distances.map(|of| first_row + u64::from(of)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the ids are found as they are in the list, before and after they were written.
    fn check(distances: &[u32]) {
        let ids = SparseIds::new(distances).unwrap();
        let mut writer = Writer::default();
        ids.write(&mut writer);
        let mut reader = Reader::new(&writer.0);
        let read = SparseIds::read(&mut reader, distances.len() as u32).unwrap();
        reader.end().unwrap();
        assert_eq!(read, ids);
        assert_eq!(ids.span(), span_of(distances));
        for (place, distance) in distances.iter().enumerate() {
            let distance = u64::from(*distance);
            assert_eq!(read.place_of(distance), Some(place as u32));
            assert_eq!(read.rows_before(distance), place);
            assert_eq!(read.rows_before(distance + 1), place + 1);
            let next = distances.get(place + 1).map(|next| u64::from(*next));
            assert_eq!(read.place_of(distance + 1).is_some(), next == Some(distance + 1));
        }
        for places in [0..distances.len(), 1..2, distances.len() - 1..distances.len(), 2..2] {
            let found: Vec<u32> = read.distances(places.clone()).collect();
            assert_eq!(found, distances[places]);
        }
    }

    #[test]
    fn ids_are_found_by_places_and_places_by_ids() {
        check(&[0, 2, 3]);
        check(&[0, 1, 4_000_000_000]);
        check(&(0..2_000).map(|row| row * 3).collect::<Vec<_>>());
        check(&(0..2_000).map(|row| row * 31 + row % 7).collect::<Vec<_>>());
        check(&(0..2_000).map(|row| row * 40 + row % 7).collect::<Vec<_>>());
        check(&[(0..600).collect::<Vec<_>>(), (5_000..5_700).collect()].concat());
        assert_eq!(SparseIds::new(&[0, 1, 2]), None);
    }

    #[test]
    fn no_bytes_make_reading_panic() {
        for distances in [vec![0, 2, 3, 200], vec![0, 90, 4_000], (0..300).step_by(3).collect()] {
            let mut writer = Writer::default();
            SparseIds::new(&distances).unwrap().write(&mut writer);
            for at in 0..writer.0.len() {
                for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                    let mut bytes = writer.0.clone();
                    bytes[at] = value;
                    let read = SparseIds::read(&mut Reader::new(&bytes), distances.len() as u32);
                    if let Ok(ids) = read {
                        assert_eq!(ids.rows_before(u64::MAX), distances.len());
                    }
                }
                let cut = &writer.0[..at];
                assert!(SparseIds::read(&mut Reader::new(cut), distances.len() as u32).is_err());
            }
        }
    }
}
