//! Strings and binaries: the chooser among their encodings, decoding into views, and point reads.
//!
//! Where strings lie is written as their ends (u32), which delta turns into bit-packed lengths with a
//! restart each 1,024 rows; so a point read need not sum all lengths.

use std::borrow::Cow;

use arrow_array::builder::make_view;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};

use crate::condition;
use crate::dictionary::{self, Dictionary, gather};
use crate::encoding::Encoding;
use crate::error::{Error, Result, damaged};
use crate::fsst::{self, Fsst, Table};
use crate::ints;
use crate::reader::{Reader, put, put_child};
use crate::rows::Rows;
use crate::text::Text;

/// A dictionary of less than this fraction of the strings' bytes is taken at once.
const LITTLE: usize = 3;

/// Most entries of a dictionary that is decoded as such: so many views lie in a processor's own cache.
const ENTRIES_MAX: usize = 16 << 10;

/// Strings in Arrow's layout: 16-byte views into one buffer.
pub(crate) struct Views {
    pub(crate) views: Vec<u128>,
    pub(crate) bytes: Vec<u8>,
}

/// Appends a node that holds `values`.
///
/// A dictionary is tried first, where a sample repeats itself: it is cheaper to build and to decode
/// than symbols, which are not even tried when it takes little enough. `table` is kept from one block
/// to the next.
///
/// # Errors
/// [`Error::TooManyBytes`] if all values together exceed [`crate::MAX_BODY_BYTES`].
pub(crate) fn encode(
    values: &[&[u8]],
    level: u8,
    table: &mut Option<Table>,
    out: &mut Vec<u8>,
) -> Result<()> {
    if !values.is_empty() && values.iter().all(|value| *value == values[0]) {
        if values[0].len() > crate::MAX_BODY_BYTES {
            return Err(Error::TooManyBytes { bytes: values[0].len() });
        }
        put(out, Encoding::Constant as u8);
        out.extend_from_slice(values[0]);
        return Ok(());
    }
    let bytes = values.iter().map(|value| value.len()).sum();
    if bytes > crate::MAX_BODY_BYTES {
        return Err(Error::TooManyBytes { bytes });
    }
    let mut dictionary = Vec::new();
    if level > 0 && bytes > 0 {
        dictionary = encode_dictionary(values, level)?;
        if !dictionary.is_empty() && dictionary.len() < bytes / LITTLE {
            out.extend_from_slice(&dictionary);
            return Ok(());
        }
    }
    let ends = encode_ends(values.iter().map(|value| value.len()), level);
    let mut least = ends.len() + bytes;
    if !dictionary.is_empty() && dictionary.len() < least {
        least = dictionary.len();
    } else {
        dictionary.clear();
    }
    if level > 0
        && let Some(table) = fsst::table(values, bytes, table)
        && table.encode(values, &ends, level, least - least / 10, out)
    {
        return Ok(());
    }
    if !dictionary.is_empty() {
        out.extend_from_slice(&dictionary);
        return Ok(());
    }
    out.reserve(ends.len() + bytes + 5);
    out.push(Encoding::Plain as u8);
    put_child(out, &ends);
    values.iter().for_each(|value| out.extend_from_slice(value));
    Ok(())
}

/// A dictionary node; empty if values seldom repeat.
fn encode_dictionary(values: &[&[u8]], level: u8) -> Result<Vec<u8>> {
    let mut node = Vec::new();
    if dictionary::estimate(values).is_some()
        && let Some((entries, codes)) = dictionary::build(values)
    {
        node.push(Encoding::Dictionary as u8);
        let mut child = Vec::new();
        encode(&entries, level - 1, &mut None, &mut child)?;
        dictionary::write(&child, entries.len(), &codes, level - 1, &mut node);
    }
    Ok(node)
}

/// A node of where strings of the lengths given end, in bytes.
pub(crate) fn encode_ends(lengths: impl Iterator<Item = usize>, level: u8) -> Vec<u8> {
    let mut end = 0;
    let next = |len| {
        end += len as u32;
        end
    };
    let ends: Vec<u32> = lengths.map(next).collect();
    let mut node = Vec::new();
    ints::encode(&ends, false, level.saturating_sub(1), &mut node);
    node
}

/// The range of string `row`, within `bytes` bytes.
pub(crate) fn range(
    ends: &[u8],
    row: usize,
    rows: usize,
    bytes: usize,
    depth: u8,
) -> Result<(usize, usize)> {
    let mut start = 0;
    let mut end = 0;
    // Both lie in one chunk as a rule, which is then decoded once.
    let picked = [row.wrapping_sub(1) as u32, row as u32];
    let picked = if row == 0 { &picked[1..] } else { &picked };
    for next in ints::read::<u32>(ends, Rows::picked(rows, picked), depth)? {
        (start, end) = (end, next as usize);
    }
    if start > end || end > bytes {
        return Err(outside(start, end, bytes));
    }
    Ok((start, end))
}

/// Checks `ends` and makes the views of the strings in `bytes`.
pub(crate) fn views(bytes: Vec<u8>, ends: &[u32], utf8: bool) -> Result<Views> {
    let text = if utf8 { Some(text(&bytes)?) } else { None };
    let mut views = Vec::with_capacity(ends.len());
    let mut start = 0;
    for &end in ends {
        let whole = text.is_none_or(|text| text.is_char_boundary(end as usize));
        let string = bytes.get(start as usize..end as usize).filter(|_| whole);
        let Some(string) = string else {
            return Err(damaged("strings", format!("a string is {start}..{end}")));
        };
        views.push(view(string, &bytes[start as usize..], start));
        start = end;
    }
    if start as usize != bytes.len() {
        let what = format!("strings of {start} bytes instead of {}", bytes.len());
        return Err(damaged("strings", what));
    }
    Ok(Views { views, bytes })
}

/// Bytes of a view that are the string's, if it is no longer.
const INLINE_BYTES: usize = 12;

/// The view of a string of buffer 0 that begins at byte `start`; `rest` is the buffer from there on. As Arrow's, without a call or
/// a copy of varying length.
#[inline(always)]
fn view(string: &[u8], rest: &[u8], start: u32) -> u128 {
    let Some(head) = rest.first_chunk::<INLINE_BYTES>() else {
        return make_view(string, 0, start);
    };
    let (first, second) = head.split_at(size_of::<u64>());
    let (first, second) = (
        u64::from_le_bytes(first.try_into().expect("8 bytes")),
        u32::from_le_bytes(second.try_into().expect("4 bytes")),
    );
    let length = string.len() as u128;
    let head = u128::from(first) | u128::from(second) << u64::BITS;
    if string.len() <= INLINE_BYTES {
        return length | (head & ((1 << (8 * string.len())) - 1)) << u32::BITS;
    }
    let prefix = u128::from(first as u32);
    length | prefix << u32::BITS | u128::from(start) << (3 * u32::BITS)
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| damaged("strings", error.to_string()))
}

/// Decodes the values of `rows` of a node at level `depth`; `utf8` has them checked.
pub(crate) fn read(node: &[u8], rows: Rows, utf8: bool, depth: u8) -> Result<Views> {
    let (encoding, mut reader) = Encoding::open(node, depth)?;
    match encoding {
        Encoding::Constant => {
            let bytes = reader.rest().to_vec();
            let end = u32::try_from(bytes.len())
                .map_err(|_| damaged("constant", format!("a string of {} bytes", bytes.len())))?;
            let one = views(bytes, &[end], utf8)?;
            Ok(Views { views: vec![one.views[0]; rows.len()], bytes: one.bytes })
        }
        Encoding::Plain => {
            let (ends, bytes) = (reader.child()?, reader.rest());
            if let Rows::Range { of, start, len } = rows {
                let (first, ends) = ends_of(ends, of, start, len, depth + 1)?;
                return views(bytes_of(bytes, first, &ends)?.to_vec(), &ends, utf8);
            }
            let ends = ints::decode::<u32>(ends, rows.of(), depth + 1)?;
            match rows {
                Rows::Picked { rows, .. } => {
                    let (bytes, ends) = picked(bytes, &ends, rows)?;
                    views(bytes, &ends, utf8)
                }
                _ => views(bytes.to_vec(), &ends, utf8),
            }
        }
        Encoding::Fsst => Fsst::open(reader)?.read(rows, utf8, depth + 1),
        Encoding::Dictionary => {
            let dictionary = Dictionary::open(reader)?;
            let codes = dictionary.codes(rows, depth + 1)?;
            let (used, codes) = dictionary.used(codes);
            let entries = read(dictionary.entries, used.rows(), utf8, depth + 1)?;
            Ok(Views { views: gather(&entries.views, &codes)?, bytes: entries.bytes })
        }
        _ => Err(encoding.misplaced("strings")),
    }
}

/// The entries of a node that is a dictionary of few, or a constant, and the code of each of `rows`, which is that of an
/// entry; nothing for other nodes.
pub(crate) fn read_codes(node: &[u8], rows: Rows, utf8: bool) -> Result<Option<(Views, Vec<u16>)>> {
    let (encoding, reader) = Encoding::open(node, 0)?;
    match encoding {
        Encoding::Constant => Ok(Some((read(node, Rows::All(1), utf8, 0)?, vec![0; rows.len()]))),
        Encoding::Dictionary => {
            let dictionary = Dictionary::open(reader)?;
            if dictionary.len > ENTRIES_MAX {
                return Ok(None);
            }
            let (used, codes) = dictionary.used(dictionary.codes(rows, 1)?);
            let entries = read(dictionary.entries, used.rows(), utf8, 1)?;
            let (found, wanted) = (entries.views.len(), used.rows().len());
            if found < wanted {
                return Err(damaged("dictionary", format!("{found} entries instead of {wanted}")));
            }
            Ok(Some((entries, codes)))
        }
        _ => Ok(None),
    }
}

/// The bytes of some strings, one after the other, and where each then ends.
pub(crate) fn picked(bytes: &[u8], ends: &[u32], rows: &[u32]) -> Result<(Vec<u8>, Vec<u32>)> {
    let mut out = Vec::new();
    let mut out_ends = Vec::with_capacity(rows.len());
    for &row in rows {
        let (start, end) = bounds(ends, row as usize);
        let string = bytes.get(start..end);
        out.extend_from_slice(string.ok_or_else(|| outside(start, end, bytes.len()))?);
        out_ends.push(out.len() as u32);
    }
    Ok((out, out_ends))
}

/// Where `len` strings from string `start` on end, counted from where the first of them begins; and where that is. `ends` is a
/// node at level `depth`, of `of` strings.
pub(crate) fn ends_of(
    ends: &[u8],
    of: usize,
    start: usize,
    len: usize,
    depth: u8,
) -> Result<(usize, Vec<u32>)> {
    let first = if start == 0 { 0 } else { ints::value::<u32>(ends, start - 1, of, depth)? };
    let mut ends = ints::read::<u32>(ends, Rows::range(of, start, len), depth)?;
    ends.iter_mut().for_each(|end| *end = end.wrapping_sub(first));
    Ok((first as usize, ends))
}

/// The bytes of strings that begin at `first` and end, from there on, at `ends`.
pub(crate) fn bytes_of<'a>(bytes: &'a [u8], first: usize, ends: &[u32]) -> Result<&'a [u8]> {
    let end = first + ends.last().map_or(0, |&end| end as usize);
    bytes.get(first..end).ok_or_else(|| outside(first, end, bytes.len()))
}

/// Whether to read all rows of a node in ranges takes little more than to read them at once. Not if the ends of strings are
/// runs: all of those would be decoded to find where a range begins.
pub(crate) fn is_divisible(node: &[u8], rows: usize, depth: u8) -> Result<bool> {
    let (encoding, mut reader) = Encoding::open(node, depth)?;
    let is = |ends: &[u8]| {
        let (encoding, _) = Encoding::open(ends, depth + 1)?;
        Ok(encoding != Encoding::RunLength && ints::is_divisible(ends, rows, depth + 1)?)
    };
    match encoding {
        Encoding::Plain => is(reader.child()?),
        Encoding::Fsst => {
            let fsst = Fsst::open(reader)?;
            Ok(is(fsst.ends)? && is(fsst.code_ends)?)
        }
        _ => Ok(false),
    }
}

/// Where string `row` lies.
pub(crate) fn bounds(ends: &[u32], row: usize) -> (usize, usize) {
    let start = if row == 0 { 0 } else { ends[row - 1] as usize };
    (start, ends[row] as usize)
}

fn outside(start: usize, end: usize, bytes: usize) -> Error {
    damaged("strings", format!("a string is {start}..{end} of {bytes} bytes"))
}

/// A bit per row of a node at level `depth` that says whether its value satisfies `condition`.
pub(crate) fn filter(
    node: &[u8],
    rows: usize,
    condition: &Text,
    depth: u8,
) -> Result<BooleanBuffer> {
    let (encoding, mut reader) = Encoding::open(node, depth)?;
    match encoding {
        Encoding::Constant => Ok(condition::all(condition.holds(reader.rest()), rows)),
        Encoding::Plain => {
            let ends = ints::decode::<u32>(reader.child()?, rows, depth + 1)?;
            each(reader.rest(), &ends, condition)
        }
        Encoding::Fsst => Fsst::open(reader)?.filter(rows, condition, depth + 1),
        Encoding::Dictionary => {
            let dictionary = Dictionary::open(reader)?;
            let entries = filter(dictionary.entries, dictionary.len, condition, depth + 1)?;
            dictionary.filter(&entries, rows, depth + 1)
        }
        _ => Err(encoding.misplaced("strings")),
    }
}

/// A bit for each of the strings in `bytes`.
pub(crate) fn each(bytes: &[u8], ends: &[u32], condition: &Text) -> Result<BooleanBuffer> {
    let mut out = BooleanBufferBuilder::new(ends.len());
    for row in 0..ends.len() {
        let (start, end) = bounds(ends, row);
        let string = bytes.get(start..end).ok_or_else(|| outside(start, end, bytes.len()))?;
        out.append(condition.holds(string));
    }
    Ok(out.finish())
}

/// Decodes the bytes of row `row` of a node of `rows` values at level `depth`.
pub(crate) fn value(node: &[u8], row: usize, rows: usize, depth: u8) -> Result<Cow<'_, [u8]>> {
    let (encoding, mut reader) = Encoding::open(node, depth)?;
    match encoding {
        Encoding::Constant => Ok(reader.rest().into()),
        Encoding::Plain => plain_value(reader, row, rows, depth + 1).map(Cow::Borrowed),
        Encoding::Fsst => Fsst::open(reader)?.value(row, rows, depth + 1).map(Cow::Owned),
        Encoding::Dictionary => {
            let dictionary = Dictionary::open(reader)?;
            let code = dictionary.code(row, rows, depth + 1)?;
            value(dictionary.entries, code, dictionary.len, depth + 1)
        }
        _ => Err(encoding.misplaced("strings")),
    }
}

fn plain_value<'a>(mut reader: Reader<'a>, row: usize, rows: usize, depth: u8) -> Result<&'a [u8]> {
    let ends = reader.child()?;
    let bytes = reader.rest();
    let (start, end) = range(ends, row, rows, bytes.len(), depth)?;
    Ok(&bytes[start..end])
}

/// The first eight bytes as a number of the same order, so that most strings are compared by it.
#[inline(always)]
pub(crate) fn head(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        // Four to seven bytes, of which the first and last four overlap.
        let rest = u64::from(u32::from_be_bytes(*last)) << (8 * (8 - bytes.len()));
        return u64::from(u32::from_be_bytes(*first)) << 32 | rest & u64::from(u32::MAX);
    }
    let shifted = |(i, &byte): (usize, &u8)| u64::from(byte) << (56 - 8 * i);
    bytes.iter().enumerate().map(shifted).sum()
}
