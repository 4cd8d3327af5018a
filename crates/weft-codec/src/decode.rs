//! From the bytes of a block to an Arrow array, of all rows or of selected ones.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, DictionaryArray, NullArray, PrimitiveArray,
    types::*,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;

use crate::block::Block;
use crate::encode::reinterpret;
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::mask;
use crate::nested::{self, Budget};
use crate::physical::Physical;
use crate::rows::Rows;
use crate::{bools, floats, intervals, ints, runs, strings, views, wide};

/// If more than one of so many rows is selected, all are decoded and then filtered.
const DENSE: usize = 4;

/// Values of a block that stand for several rows each.
#[derive(Clone, Debug)]
pub struct BlockRuns {
    /// A value per run.
    pub values: ArrayRef,
    /// The last row of every run.
    lasts: Vec<u16>,
}

impl BlockRuns {
    /// A bit per row, given one per run.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn spread(&self, bits: &BooleanBuffer) -> BooleanBuffer {
        assert_eq!(bits.len(), self.lasts.len(), "a bit per run");
        runs::spread(bits, &self.lasts)
    }
}

impl Block<'_> {
    /// Decodes all rows, as [`Block::data_type`].
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::Damaged`] if the bytes are not what an encoder wrote.
    pub fn decode(&self) -> Result<ArrayRef> {
        self.decode_as(&self.data_type()?)
    }

    /// Decodes all rows as `data_type`: any of Arrow's types that are stored as this block's type, and
    /// `Decimal64` where that is 128 bits. Strings as views are cheapest, but for `Dictionary(UInt16, views)`: that
    /// is what comes if they are stored as a dictionary of few entries, and views if they are not.
    ///
    /// # Errors
    /// [`Error::WrongType`] if a value does not fit into 64 bits, or the block holds something else;
    /// [`Error::Truncated`] or [`Error::Damaged`] if the bytes are not what an encoder wrote.
    pub fn decode_as(&self, data_type: &DataType) -> Result<ArrayRef> {
        self.read(Rows::All(self.rows()), data_type, &mut Budget::new())
    }

    /// Decodes some rows, as [`Block::decode_as`] does all, from a multiple of [`RANGE_ROWS`](crate::RANGE_ROWS) on.
    ///
    /// # Errors
    /// [`Error::NoSuchRow`] if a row lies beyond the end, otherwise as [`Block::decode_as`].
    ///
    /// # Panics
    /// If the range begins elsewhere.
    pub fn decode_range(&self, range: Range<usize>, data_type: &DataType) -> Result<ArrayRef> {
        let rows = self.rows();
        if range.end > rows || range.start > range.end {
            return Err(Error::NoSuchRow { row: range.end.saturating_sub(1), rows });
        }
        let range = Rows::range(rows, range.start, range.len());
        self.read(range, data_type, &mut Budget::new())
    }

    /// Whether [`Block::decode_range`] of one range after the other takes little more time than [`Block::decode`]: so it is
    /// with numbers and strings, unless the block is compressed, a dictionary (of numbers: a large one), runs that cannot be
    /// searched, or strings that are all the same or often empty.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::Damaged`] if the bytes are not what an encoder wrote.
    pub fn is_divisible(&self) -> Result<bool> {
        let (node, rows) = (self.node(), self.rows());
        match self.physical() {
            _ if self.is_compressed() => Ok(false),
            Physical::Boolean => Ok(true),
            Physical::Int128 => wide::is_divisible(node, rows),
            Physical::Float32 => floats::is_divisible::<f32>(node, rows),
            Physical::Float64 => floats::is_divisible::<f64>(node, rows),
            Physical::Utf8 | Physical::Binary => strings::is_divisible(node, rows, 0),
            Physical::Interval | Physical::List | Physical::Struct | Physical::Null => Ok(false),
            _ => ints::is_divisible(node, rows, 0),
        }
    }

    /// Decodes the rows whose bits in `selected` are set, as [`Block::decode_as`] does all: where few
    /// are, only their values or the chunks that hold these.
    ///
    /// # Errors
    /// [`Error::WrongSelection`] if there is not a bit per row, otherwise as [`Block::decode_as`].
    pub fn decode_selected(
        &self,
        selected: &BooleanBuffer,
        data_type: &DataType,
    ) -> Result<ArrayRef> {
        let rows = self.rows();
        if selected.len() != rows {
            return Err(Error::WrongSelection { selected: selected.len(), rows });
        }
        let count = mask::count(selected);
        if count == rows {
            return self.decode_as(data_type);
        }
        if count * DENSE > rows {
            let all = self.decode_as(data_type)?;
            let mask = BooleanArray::new(selected.clone(), None);
            return Ok(arrow_select::filter::filter(&all, &mask).expect("a bit per row"));
        }
        let picked = mask::positions(selected, count);
        self.read(Rows::picked(rows, &picked), data_type, &mut Budget::new())
    }

    /// Decodes integers of which each may stand for several rows one after the other, in the type that [`Block::decode_as`]
    /// would give. `None` if the block is not stored so, or has nulls.
    ///
    /// # Errors
    /// As [`Block::decode_as`].
    pub fn decode_runs(&self, data_type: &DataType) -> Result<Option<BlockRuns>> {
        if self.validity().is_some() || Physical::of(data_type)? != self.physical() {
            return Ok(None);
        }
        match self.physical() {
            Physical::Int32 => self.integer_runs::<Int32Type, u32>(data_type),
            Physical::Int64 => self.integer_runs::<Int64Type, u64>(data_type),
            Physical::UInt32 => self.integer_runs::<UInt32Type, u32>(data_type),
            Physical::UInt64 => self.integer_runs::<UInt64Type, u64>(data_type),
            _ => Ok(None),
        }
    }

    fn integer_runs<T: ArrowPrimitiveType, L: Lane>(
        &self,
        data_type: &DataType,
    ) -> Result<Option<BlockRuns>>
    where
        Buffer: From<Vec<L>>,
    {
        let runs = ints::read_runs::<L>(self.node(), self.rows())?;
        Ok(runs.map(|(values, lasts)| BlockRuns {
            values: primitive::<T>(Buffer::from(values), None, data_type),
            lasts,
        }))
    }

    /// The error for a block asked for as `requested`.
    pub(crate) fn wrong_type(&self, requested: &DataType) -> Error {
        Error::WrongType { physical: self.physical(), requested: requested.clone() }
    }

    pub(crate) fn read(
        &self,
        rows: Rows,
        data_type: &DataType,
        budget: &mut Budget,
    ) -> Result<ArrayRef> {
        if let DataType::Dictionary(keys, values) = data_type
            && **keys == DataType::UInt16
        {
            return match self.read_dictionary(rows, values)? {
                Some(dictionary) => Ok(dictionary),
                None => self.read(rows, values, budget),
            };
        }
        let narrows =
            self.physical() == Physical::Int128 && matches!(data_type, DataType::Decimal64(..));
        if !narrows && Physical::of(data_type)? != self.physical() {
            return Err(self.wrong_type(data_type));
        }
        let node = self.node();
        let nulls = self.nulls(rows)?;
        Ok(match self.physical() {
            Physical::Boolean => Arc::new(BooleanArray::new(bools::read(node, rows)?, nulls)),
            Physical::Int8 => integers::<Int8Type, u8>(node, rows, nulls, data_type)?,
            Physical::Int16 => integers::<Int16Type, u16>(node, rows, nulls, data_type)?,
            Physical::Int32 => integers::<Int32Type, u32>(node, rows, nulls, data_type)?,
            Physical::Int64 => integers::<Int64Type, u64>(node, rows, nulls, data_type)?,
            Physical::UInt8 => integers::<UInt8Type, u8>(node, rows, nulls, data_type)?,
            Physical::UInt16 => integers::<UInt16Type, u16>(node, rows, nulls, data_type)?,
            Physical::UInt32 => integers::<UInt32Type, u32>(node, rows, nulls, data_type)?,
            Physical::UInt64 => integers::<UInt64Type, u64>(node, rows, nulls, data_type)?,
            Physical::Int128 if narrows => {
                let values = wide::read_narrow(node, rows)?;
                let values = values.ok_or_else(|| self.wrong_type(data_type))?;
                primitive::<Int64Type>(Buffer::from(values), nulls, data_type)
            }
            Physical::Int128 => {
                primitive::<Decimal128Type>(Buffer::from(wide::read(node, rows)?), nulls, data_type)
            }
            Physical::Float32 => primitive::<Float32Type>(
                Buffer::from(floats::read::<f32>(node, rows)?),
                nulls,
                data_type,
            ),
            Physical::Float64 => primitive::<Float64Type>(
                Buffer::from(floats::read::<f64>(node, rows)?),
                nulls,
                data_type,
            ),
            Physical::Utf8 => views::strings(strings::read(node, rows, true, 0)?, nulls, data_type),
            Physical::Binary => {
                views::binaries(strings::read(node, rows, false, 0)?, nulls, data_type)?
            }
            Physical::Interval => intervals::read(node, rows, nulls, data_type)?,
            Physical::List => nested::read_list(self, rows, nulls, data_type, budget)?,
            Physical::Struct => nested::read_struct(self, rows, nulls, data_type, budget)?,
            Physical::Null => Arc::new(NullArray::new(rows.len())),
        })
    }

    /// Which rows have values; nothing if all have.
    fn nulls(&self, rows: Rows) -> Result<Option<NullBuffer>> {
        let Some(node) = self.validity() else { return Ok(None) };
        let nulls = NullBuffer::new(bools::read(node, rows)?);
        Ok((nulls.null_count() > 0).then_some(nulls))
    }

    /// Strings as codes and values; nothing if they are not stored so.
    fn read_dictionary(&self, rows: Rows, data_type: &DataType) -> Result<Option<ArrayRef>> {
        let utf8 = match (self.physical(), data_type) {
            (Physical::Utf8, DataType::Utf8View) => true,
            (Physical::Binary, DataType::BinaryView) => false,
            _ => return Ok(None),
        };
        let Some((entries, codes)) = strings::read_codes(self.node(), rows, utf8)? else {
            return Ok(None);
        };
        let nulls = self.nulls(rows)?;
        let codes = PrimitiveArray::<UInt16Type>::new(codes.into(), nulls);
        let entries = match utf8 {
            true => views::strings(entries, None, data_type),
            false => views::binaries(entries, None, data_type)?,
        };
        // SAFETY: every code is one of an entry, as `read_codes` says.
        Ok(Some(Arc::new(unsafe { DictionaryArray::new_unchecked(codes, entries) })))
    }
}

fn integers<T: ArrowPrimitiveType, L: Lane>(
    node: &[u8],
    rows: Rows,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef>
where
    Buffer: From<Vec<L>>,
{
    let values = ints::read::<L>(node, rows, 0)?;
    Ok(primitive::<T>(Buffer::from(values), nulls, data_type))
}

fn primitive<T: ArrowPrimitiveType>(
    values: Buffer,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> ArrayRef {
    let array = PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls);
    if *data_type == T::DATA_TYPE { Arc::new(array) } else { reinterpret(&array, data_type) }
}
