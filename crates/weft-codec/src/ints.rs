//! Integers of 8 to 64 bits: the chooser among their encodings, decoding, and point reads.
//!
//! The chooser knows the exact sizes of constant, plain, frame-of-reference and delta from a pass
//! over the block; a dictionary is tried if a sample of a few runs repeats itself, run-length if
//! runs are long. Children are encoded by the same chooser, one level down (BtrBlocks, SIGMOD 2023, §3).

use arrow_buffer::BooleanBuffer;

use crate::condition::{self, Condition};
use crate::dictionary::{self, Dictionary, gather};
use crate::encoding::Encoding;
use crate::error::{Result, damaged};
use crate::lane::{CHUNK, Lane};
use crate::packed::{self, Packed};
use crate::reader::put;
use crate::rows::Rows;
use crate::runs::{self, Runs};

/// A more elaborate encoding must save a tenth of the simpler one's size.
fn pays(elaborate: usize, simple: usize) -> bool {
    elaborate < simple - simple / 10
}

/// Appends a node that holds `values`, with at most `level` levels of cascading encodings.
/// `signed` says how the values are ordered.
pub(crate) fn encode<T: Lane>(values: &[T], signed: bool, level: u8, out: &mut Vec<u8>) {
    let plain = size_of_val(values);
    if values.is_empty() {
        return put(out, Encoding::Plain as u8);
    }
    let run_count = runs::count(values);
    if run_count == 1 {
        put(out, Encoding::Constant as u8);
        return put(out, values[0]);
    }
    let (mut best, mut best_size) = (Encoding::Plain, plain);
    for (encoding, delta) in [(Encoding::FrameOfReference, false), (Encoding::Delta, true)] {
        let size = packed::size(values, signed, delta);
        if pays(size, best_size) {
            (best, best_size) = (encoding, size);
        }
    }
    let mut cascade = Vec::new();
    if level > 0 && run_count <= values.len() / 4 {
        let (run_values, lasts) = runs::find(values);
        let mut node = vec![Encoding::RunLength as u8];
        let mut child = Vec::new();
        encode(&run_values, signed, level - 1, &mut child);
        runs::write(&child, &lasts, level - 1, &mut node);
        if pays(node.len(), best_size) {
            best_size = node.len();
            cascade = node;
        }
    }
    if level > 0
        && let Some(estimate) = dictionary::estimate(values)
        && pays(estimate, best_size)
        && let Some((entries, codes)) = dictionary::build(values)
    {
        let mut node = vec![Encoding::Dictionary as u8];
        let mut child = Vec::new();
        encode(&entries, signed, level - 1, &mut child);
        dictionary::write(&child, entries.len(), &codes, level - 1, &mut node);
        if pays(node.len(), best_size) {
            cascade = node;
        }
    }
    if !cascade.is_empty() {
        return out.extend_from_slice(&cascade);
    }
    put(out, best as u8);
    match best {
        Encoding::Plain => out.extend_from_slice(bytemuck::cast_slice(values)),
        _ => packed::encode(values, signed, best == Encoding::Delta, out),
    }
}

/// Decodes all `rows` values of a node at level `depth`.
pub(crate) fn decode<T: Lane>(node: &[u8], rows: usize, depth: u8) -> Result<Vec<T>> {
    read(node, Rows::All(rows), depth)
}

/// Decodes the values of `rows` of a node at level `depth`.
pub(crate) fn read<T: Lane>(node: &[u8], rows: Rows, depth: u8) -> Result<Vec<T>> {
    let (encoding, mut reader) = Encoding::open(node, depth)?;
    match encoding {
        Encoding::Plain => {
            let bytes = reader.take(rows.of() * size_of::<T>())?;
            reader.end()?;
            Ok(match rows {
                Rows::All(_) => bytemuck::pod_collect_to_vec(bytes),
                Rows::Range { start, len, .. } => {
                    let range = start * size_of::<T>()..(start + len) * size_of::<T>();
                    bytemuck::pod_collect_to_vec(&bytes[range])
                }
                Rows::Picked { rows, .. } => rows.iter().map(|&row| at(bytes, row)).collect(),
            })
        }
        Encoding::Constant => {
            let value = reader.value()?;
            reader.end()?;
            Ok(vec![value; rows.len()])
        }
        Encoding::FrameOfReference | Encoding::Delta => {
            let packed = Packed::open::<T>(reader, rows.of(), encoding == Encoding::Delta)?;
            Ok(match rows {
                Rows::All(rows) => packed.decode(0, rows),
                Rows::Range { start, len, .. } => packed.decode(start, len),
                Rows::Picked { rows, .. } => packed.pick(rows),
            })
        }
        Encoding::Dictionary => {
            let dictionary = Dictionary::open(reader)?;
            let codes = dictionary.codes(rows, depth + 1)?;
            let (used, codes) = dictionary.used(codes);
            gather(&read(dictionary.entries, used.rows(), depth + 1)?, &codes)
        }
        Encoding::RunLength => {
            let runs = Runs::open(reader, rows.of())?;
            if let Rows::Range { start, len, .. } = rows {
                return runs.range(start, len, depth + 1);
            }
            let values = decode::<T>(runs.values, runs.len, depth + 1)?;
            runs.pick(&values, rows, depth + 1)
        }
        _ => Err(encoding.misplaced("integers")),
    }
}

/// Whether to read all of a node's `rows` rows in ranges takes little more than to read them at once.
pub(crate) fn is_divisible(node: &[u8], rows: usize, depth: u8) -> Result<bool> {
    let (encoding, reader) = Encoding::open(node, depth)?;
    Ok(match encoding {
        Encoding::Dictionary => {
            let dictionary = Dictionary::open(reader)?;
            dictionary.len <= CHUNK && is_divisible(dictionary.codes, rows, depth + 1)?
        }
        Encoding::RunLength => {
            let runs = Runs::open(reader, rows)?;
            is_divisible(runs.values, runs.len, depth + 1)? && begins_chunks(runs.lasts, depth + 1)?
        }
        _ => true,
    })
}

/// Whether [`first_of_chunk`] can tell what each chunk of a node begins with.
fn begins_chunks(node: &[u8], depth: u8) -> Result<bool> {
    let (encoding, _) = Encoding::open(node, depth)?;
    Ok(matches!(encoding, Encoding::Plain | Encoding::FrameOfReference | Encoding::Delta))
}

/// The first value of chunk `chunk` of a node of `rows` ascending values.
pub(crate) fn first_of_chunk<T: Lane>(
    node: &[u8],
    chunk: usize,
    rows: usize,
    depth: u8,
) -> Result<T> {
    let (encoding, reader) = Encoding::open(node, depth)?;
    match encoding {
        Encoding::FrameOfReference | Encoding::Delta => {
            Ok(Packed::open::<T>(reader, rows, encoding == Encoding::Delta)?.first(chunk))
        }
        _ => value(node, chunk * CHUNK, rows, depth),
    }
}

/// The values of the runs of a node, and the last row of each; nothing if it has none.
pub(crate) fn read_runs<T: Lane>(node: &[u8], rows: usize) -> Result<Option<(Vec<T>, Vec<u16>)>> {
    let (encoding, reader) = Encoding::open(node, 0)?;
    if encoding != Encoding::RunLength {
        return Ok(None);
    }
    let runs = Runs::open(reader, rows)?;
    Ok(Some((decode(runs.values, runs.len, 1)?, runs.ends(rows, 1)?)))
}

/// The value of a row among plain ones.
fn at<T: Lane>(bytes: &[u8], row: u32) -> T {
    bytemuck::pod_read_unaligned(&bytes[row as usize * size_of::<T>()..][..size_of::<T>()])
}

/// A bit per row of a node at level `depth` that says whether its value satisfies `condition`.
pub(crate) fn filter<T: Lane>(
    node: &[u8],
    rows: usize,
    condition: &Condition<T>,
    depth: u8,
) -> Result<BooleanBuffer> {
    if let Condition::All(all) = condition {
        return Ok(condition::all(*all, rows));
    }
    let (encoding, mut reader) = Encoding::open(node, depth)?;
    match encoding {
        Encoding::Constant => {
            let mut word = Vec::new();
            condition.mask(&[reader.value()?], &mut word);
            Ok(condition::all(word == [1], rows))
        }
        Encoding::FrameOfReference | Encoding::Delta => {
            let packed = Packed::open::<T>(reader, rows, encoding == Encoding::Delta)?;
            Ok(packed.filter(rows, condition))
        }
        Encoding::Dictionary => {
            let dictionary = Dictionary::open(reader)?;
            let entries = filter(dictionary.entries, dictionary.len, condition, depth + 1)?;
            dictionary.filter(&entries, rows, depth + 1)
        }
        Encoding::RunLength => {
            let runs = Runs::open(reader, rows)?;
            let values = filter(runs.values, runs.len, condition, depth + 1)?;
            runs.spread(&values, rows, depth + 1)
        }
        _ => {
            let mut words = Vec::new();
            condition.mask(&decode(node, rows, depth)?, &mut words);
            Ok(condition::bits(words, rows))
        }
    }
}

/// Decodes the value of row `row` of a node of `rows` values.
pub(crate) fn value<T: Lane>(node: &[u8], row: usize, rows: usize, depth: u8) -> Result<T> {
    if row >= rows {
        return Err(damaged("node", format!("no value {row} among {rows}")));
    }
    let (encoding, mut reader) = Encoding::open(node, depth)?;
    match encoding {
        Encoding::Plain => {
            reader.take(row * size_of::<T>())?;
            reader.value()
        }
        Encoding::Constant => reader.value(),
        Encoding::FrameOfReference | Encoding::Delta => {
            Ok(Packed::open::<T>(reader, rows, encoding == Encoding::Delta)?.value(row))
        }
        Encoding::Dictionary => {
            let dictionary = Dictionary::open(reader)?;
            let code = dictionary.code(row, rows, depth + 1)?;
            value(dictionary.entries, code, dictionary.len, depth + 1)
        }
        Encoding::RunLength => {
            let runs = Runs::open(reader, rows)?;
            value(runs.values, runs.run(row, depth + 1)?, runs.len, depth + 1)
        }
        _ => Err(encoding.misplaced("integers")),
    }
}
