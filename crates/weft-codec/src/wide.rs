//! 128-bit integers (decimals): as 64-bit integers where all fit, else as two halves.

use crate::encoding::Encoding;
use crate::error::Result;
use crate::ints;
use crate::reader::{put, put_child};

/// Appends a node that holds `values`.
pub(crate) fn encode(values: &[i128], level: u8, out: &mut Vec<u8>) {
    let low: Vec<u64> = values.iter().map(|&value| value as u64).collect();
    if values.iter().all(|&value| i64::try_from(value).is_ok()) {
        put(out, Encoding::Narrow as u8);
        return ints::encode(&low, true, level, out);
    }
    let high: Vec<u64> = values.iter().map(|&value| (value >> 64) as u64).collect();
    let mut child = Vec::new();
    ints::encode(&high, true, level, &mut child);
    put(out, Encoding::Wide as u8);
    put_child(out, &child);
    ints::encode(&low, false, level, out);
}

fn join(high: u64, low: u64) -> i128 {
    (i128::from(high as i64) << 64) | i128::from(low)
}

/// Decodes all `rows` values of a node.
pub(crate) fn decode(node: &[u8], rows: usize) -> Result<Vec<i128>> {
    let (encoding, mut reader) = Encoding::open(node, 0)?;
    match encoding {
        Encoding::Narrow => {
            let low = ints::decode::<u64>(reader.rest(), rows, 1)?;
            Ok(low.into_iter().map(|value| i128::from(value as i64)).collect())
        }
        Encoding::Wide => {
            let high = ints::decode::<u64>(reader.child()?, rows, 1)?;
            let low = ints::decode::<u64>(reader.rest(), rows, 1)?;
            Ok(high.into_iter().zip(low).map(|(high, low)| join(high, low)).collect())
        }
        _ => Err(encoding.misplaced("128-bit integers")),
    }
}

/// Decodes the value of row `row` of a node of `rows` values.
pub(crate) fn value(node: &[u8], row: usize, rows: usize) -> Result<i128> {
    let (encoding, mut reader) = Encoding::open(node, 0)?;
    match encoding {
        Encoding::Narrow => Ok(i128::from(ints::value::<u64>(reader.rest(), row, rows, 1)? as i64)),
        Encoding::Wide => {
            let high = ints::value(reader.child()?, row, rows, 1)?;
            Ok(join(high, ints::value(reader.rest(), row, rows, 1)?))
        }
        _ => Err(encoding.misplaced("128-bit integers")),
    }
}
