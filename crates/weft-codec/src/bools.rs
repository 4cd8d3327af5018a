//! Booleans, and the validity of every other type: constant, runs, or a bitmap (least bit first).

use arrow_buffer::{BooleanBuffer, Buffer};

use crate::condition;
use crate::encoding::Encoding;
use crate::error::{Result, damaged};
use crate::ints;
use crate::reader::put;
use crate::rows::Rows;
use crate::runs::{self, Runs};

/// Appends a node that holds `values`.
pub(crate) fn encode(values: &BooleanBuffer, level: u8, out: &mut Vec<u8>) {
    let set = values.count_set_bits();
    if set == 0 || set == values.len() {
        put(out, Encoding::Constant as u8);
        return put(out, u8::from(set > 0));
    }
    let bytes: Vec<u8> = values.iter().map(u8::from).collect();
    if level > 0 && runs::count(&bytes) <= values.len() / 16 {
        let (run_values, lasts) = runs::find(&bytes);
        let mut child = Vec::new();
        ints::encode(&run_values, false, level - 1, &mut child);
        put(out, Encoding::RunLength as u8);
        return runs::write(&child, &lasts, level - 1, out);
    }
    put(out, Encoding::Plain as u8);
    let bitmap = values.sliced();
    out.extend_from_slice(&bitmap[..values.len().div_ceil(8)]);
}

/// The error for a boolean that is neither 0 nor 1.
fn boolean(encoding: Encoding, value: u8) -> Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(damaged(encoding.name(), format!("boolean {value}"))),
    }
}

/// Decodes all `rows` values of a node.
pub(crate) fn decode(node: &[u8], rows: usize) -> Result<BooleanBuffer> {
    let (encoding, mut reader) = Encoding::open(node, 0)?;
    match encoding {
        Encoding::Constant => {
            let value = boolean(encoding, reader.value()?)?;
            reader.end()?;
            Ok(condition::all(value, rows))
        }
        Encoding::Plain => {
            let bitmap = reader.take(rows.div_ceil(8))?;
            reader.end()?;
            Ok(BooleanBuffer::new(Buffer::from(bitmap), 0, rows))
        }
        Encoding::RunLength => {
            let runs = Runs::open(reader, rows)?;
            let values = ints::decode::<u8>(runs.values, runs.len, 1)?;
            let values = values.into_iter().map(|value| boolean(encoding, value));
            runs.spread(&values.collect::<Result<_>>()?, rows, 1)
        }
        _ => Err(encoding.misplaced("booleans")),
    }
}

/// Decodes the values of `rows` of a node.
pub(crate) fn read(node: &[u8], rows: Rows) -> Result<BooleanBuffer> {
    Ok(rows.pick_bits(decode(node, rows.of())?))
}

/// Decodes the value of row `row` of a node of `rows` values.
pub(crate) fn value(node: &[u8], row: usize, rows: usize) -> Result<bool> {
    let (encoding, mut reader) = Encoding::open(node, 0)?;
    match encoding {
        Encoding::Constant => boolean(encoding, reader.value()?),
        Encoding::Plain => {
            let bitmap = reader.take(rows.div_ceil(8))?;
            Ok(bitmap[row / 8] >> (row % 8) & 1 == 1)
        }
        Encoding::RunLength => {
            let runs = Runs::open(reader, rows)?;
            let run = runs.run(row, 1)?;
            boolean(encoding, ints::value::<u8>(runs.values, run, runs.len, 1)?)
        }
        _ => Err(encoding.misplaced("booleans")),
    }
}
