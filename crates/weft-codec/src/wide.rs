//! 128-bit integers (decimals): as 64-bit integers where all fit, else as two halves.

use arrow_buffer::BooleanBuffer;

use crate::condition::{self, Numbers};
use crate::encoding::Encoding;
use crate::error::Result;
use crate::ints;
use crate::reader::{put, put_child};
use crate::rows::Rows;

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

/// Decodes the values of `rows` of a node.
pub(crate) fn read(node: &[u8], rows: Rows) -> Result<Vec<i128>> {
    let (encoding, mut reader) = Encoding::open(node, 0)?;
    match encoding {
        Encoding::Narrow => {
            let low = ints::read::<u64>(reader.rest(), rows, 1)?;
            Ok(low.into_iter().map(|value| i128::from(value as i64)).collect())
        }
        Encoding::Wide => {
            let high = ints::read::<u64>(reader.child()?, rows, 1)?;
            let low = ints::read::<u64>(reader.rest(), rows, 1)?;
            Ok(high.into_iter().zip(low).map(|(high, low)| join(high, low)).collect())
        }
        _ => Err(encoding.misplaced("128-bit integers")),
    }
}

/// Decodes the values of `rows` of a node in 64 bits; `None` if one of them does not fit.
pub(crate) fn read_narrow(node: &[u8], rows: Rows) -> Result<Option<Vec<u64>>> {
    let (encoding, mut reader) = Encoding::open(node, 0)?;
    match encoding {
        Encoding::Narrow => ints::read::<u64>(reader.rest(), rows, 1).map(Some),
        Encoding::Wide => {
            let high = ints::read::<u64>(reader.child()?, rows, 1)?;
            let low = ints::read::<u64>(reader.rest(), rows, 1)?;
            let fits = |(high, low): (&u64, &u64)| *high == (*low as i64 >> 63) as u64;
            Ok(high.iter().zip(&low).all(fits).then_some(low))
        }
        _ => Err(encoding.misplaced("128-bit integers")),
    }
}

/// As [`ints::is_divisible`].
pub(crate) fn is_divisible(node: &[u8], rows: usize) -> Result<bool> {
    let (encoding, mut reader) = Encoding::open(node, 0)?;
    let high = match encoding {
        Encoding::Wide => ints::is_divisible(reader.child()?, rows, 1)?,
        _ => true,
    };
    Ok(high && ints::is_divisible(reader.rest(), rows, 1)?)
}

/// A bit per row of a node that says whether its value satisfies `condition`.
pub(crate) fn filter(node: &[u8], rows: usize, condition: &Numbers) -> Result<BooleanBuffer> {
    let (encoding, mut reader) = Encoding::open(node, 0)?;
    if encoding == Encoding::Narrow {
        return ints::filter::<u64>(reader.rest(), rows, &condition.lanes(true), 1);
    }
    let mut words = Vec::new();
    condition::append(&read(node, Rows::All(rows))?, &mut words, |value| condition.holds(value));
    Ok(condition::bits(words, rows))
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
