//! Floats: their bits as integers, or ALP (Afroozeh et al., SIGMOD 2024): integers times a power of
//! ten, with the values that do not come back bit for bit as exceptions.

use arrow_buffer::BooleanBuffer;

use crate::alp::{self, Exponents, Real};
use crate::condition::{self, Condition};
use crate::encoding::Encoding;
use crate::error::{Result, damaged};
use crate::ints;
use crate::reader::{Reader, put};
use crate::rows::Rows;

/// Appends a node that holds `values`.
pub(crate) fn encode<F: Real>(values: &[F], level: u8, out: &mut Vec<u8>) {
    let mut bits = Vec::new();
    ints::encode::<F::Bits>(bytemuck::cast_slice(values), false, level, &mut bits);
    match encode_alp(values, level) {
        Some(alp) if alp.len() < bits.len() => out.extend_from_slice(&alp),
        _ => out.extend_from_slice(&bits),
    }
}

/// An ALP node; nothing if more than a tenth of the values would be exceptions.
fn encode_alp<F: Real>(values: &[F], level: u8) -> Option<Vec<u8>> {
    if values.is_empty() || level == 0 {
        return None;
    }
    let exponents = alp::choose(values);
    let (integers, exceptions) = alp::shrink(values, exponents);
    if exceptions.len() > values.len() / 10 {
        return None;
    }
    let mut out = vec![Encoding::Alp as u8, exponents.exponent, exponents.factor];
    put(&mut out, exceptions.len() as u32);
    out.extend_from_slice(bytemuck::cast_slice(&exceptions));
    exceptions.iter().for_each(|&row| put(&mut out, values[usize::from(row)]));
    ints::encode::<F::Bits>(&integers, true, level - 1, &mut out);
    Some(out)
}

/// An ALP payload: exponent and factor, the positions and bits of exceptions, and the integers.
pub(crate) struct Alp<'a> {
    exponents: Exponents,
    positions: &'a [u8],
    exceptions: &'a [u8],
    pub(crate) integers: &'a [u8],
}

impl<'a> Alp<'a> {
    pub(crate) fn open<F: Real>(mut reader: Reader<'a>, rows: usize) -> Result<Self> {
        let exponents = Exponents { exponent: reader.value()?, factor: reader.value()? };
        if usize::from(exponents.exponent.max(exponents.factor)) >= F::POWERS {
            return Err(damaged("alp", format!("{exponents:?}")));
        }
        let len = reader.length()?;
        if len > rows {
            return Err(damaged("alp", format!("{len} exceptions in {rows} rows")));
        }
        let positions = reader.take(len * 2)?;
        let exceptions = reader.take(len * size_of::<F>())?;
        Ok(Self { exponents, positions, exceptions, integers: reader.rest() })
    }

    /// Row and value of every exception.
    fn exceptions<F: Real>(&self) -> impl Iterator<Item = (usize, F)> {
        let rows = self.positions.as_chunks::<2>().0.iter().map(|&row| u16::from_le_bytes(row));
        let values = self.exceptions.chunks_exact(size_of::<F>());
        rows.map(usize::from).zip(values.map(bytemuck::pod_read_unaligned))
    }
}

/// Decodes the values of `rows` of a node.
pub(crate) fn read<F: Real>(node: &[u8], rows: Rows) -> Result<Vec<F>> {
    let (encoding, reader) = Encoding::open(node, 0)?;
    if encoding != Encoding::Alp {
        return Ok(bytemuck::cast_vec(ints::read::<F::Bits>(node, rows, 0)?));
    }
    let alp = Alp::open::<F>(reader, rows.of())?;
    let integers = ints::read::<F::Bits>(alp.integers, rows, 1)?;
    let grow = |integer| F::grow(integer, alp.exponents);
    let mut values: Vec<F> = integers.into_iter().map(grow).collect();
    for (row, value) in alp.exceptions() {
        if row >= rows.of() {
            return Err(damaged("alp", format!("an exception in row {row} of {}", rows.of())));
        }
        if let Some(position) = rows.position(row) {
            values[position] = value;
        }
    }
    Ok(values)
}

/// As [`ints::is_divisible`].
pub(crate) fn is_divisible<F: Real>(node: &[u8], rows: usize) -> Result<bool> {
    let (encoding, reader) = Encoding::open(node, 0)?;
    match encoding {
        Encoding::Alp => ints::is_divisible(Alp::open::<F>(reader, rows)?.integers, rows, 1),
        _ => ints::is_divisible(node, rows, 0),
    }
}

/// A bit per row of a node that says whether the bits of its value satisfy `condition`.
pub(crate) fn filter<F: Real>(
    node: &[u8],
    rows: usize,
    condition: &Condition<F::Bits>,
) -> Result<BooleanBuffer> {
    let (encoding, _) = Encoding::open(node, 0)?;
    if encoding != Encoding::Alp {
        return ints::filter(node, rows, condition, 0);
    }
    let mut words = Vec::new();
    condition.mask(bytemuck::cast_slice(&read::<F>(node, Rows::All(rows))?), &mut words);
    Ok(condition::bits(words, rows))
}

/// Decodes the value of row `row` of a node of `rows` values.
pub(crate) fn value<F: Real>(node: &[u8], row: usize, rows: usize) -> Result<F> {
    let (encoding, reader) = Encoding::open(node, 0)?;
    if encoding != Encoding::Alp {
        return Ok(bytemuck::cast(ints::value::<F::Bits>(node, row, rows, 0)?));
    }
    let alp = Alp::open::<F>(reader, rows)?;
    if let Some((_, value)) = alp.exceptions().find(|&(position, _)| position == row) {
        return Ok(value);
    }
    let integer = ints::value::<F::Bits>(alp.integers, row, rows, 1)?;
    Ok(F::grow(integer, alp.exponents))
}
