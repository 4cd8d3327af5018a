//! An Arrow array, looked at once, from which vectors are loaded again and again.
//!
//! Numbers are shared, not copied, if the array has the register's lane. Strings become views with addresses, decimals
//! of 128 bits are narrowed where the register has 64.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{ByteArrayType, ByteViewType, UInt16Type};
use arrow_array::{Array, ArrayRef, GenericByteArray, GenericByteViewArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::DataType;

use super::is_encoded;
use crate::apart::LONG_BYTES;
use crate::error::{ExecError, Result, check_length};
use crate::for_lane;
use crate::lane::{Bool, Lane, Value};
use crate::text::{INLINE_BYTES_MAX, Str};
use crate::vector::{Codes, VECTOR_ROWS_MAX, Vector};

/// Most values of a dictionary that is kept as one.
const DICTIONARY_MAX: usize = 1 << 16;

/// Numbers for dictionaries.
static DICTIONARIES: AtomicU64 = AtomicU64::new(0);

/// An array in the form from which vectors are loaded.
#[derive(Debug)]
pub struct ArrowColumn {
    lane: Lane,
    rows: usize,
    nulls: Option<NullBuffer>,
    values: Values,
}

#[derive(Debug)]
enum Values {
    /// As they lie in a vector.
    Shared(Buffer),
    Bits(BooleanBuffer),
    /// To become 64 bits.
    Wide(ScalarBuffer<i128>),
    /// To become 64 or 128 bits.
    Narrow(Buffer, Lane),
    Views(ScalarBuffer<u128>, Vec<Buffer>),
    Dictionary(Dictionary),
    Offsets32(OffsetBuffer<i32>, Buffer),
    Offsets64(OffsetBuffer<i64>, Buffer),
    /// So many bytes each.
    Fixed(Buffer, usize),
    Rows(Rows),
}

#[derive(Debug)]
struct Dictionary {
    /// Which of the entries each is.
    codes: ScalarBuffer<u16>,
    entries: Arc<Entries>,
}

/// The values of a dictionary, prepared once for all arrays that have them.
#[derive(Debug)]
pub struct Entries {
    values: ArrayRef,
    number: u64,
    strings: Vec<Str>,
    /// Owns what the strings refer to.
    column: ArrowColumn,
}

impl Entries {
    fn new(values: &ArrayRef) -> Result<Arc<Entries>> {
        let column = ArrowColumn::new(values, Lane::Str)?;
        let mut strings = Vec::with_capacity(column.rows);
        let mut vector = Vector::new(Lane::Str);
        for start in (0..column.rows).step_by(VECTOR_ROWS_MAX) {
            let rows = VECTOR_ROWS_MAX.min(column.rows - start);
            column.load(start, rows, &mut vector)?;
            strings.extend_from_slice(&vector.values::<Str>()[..rows]);
        }
        let number = DICTIONARIES.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Entries { values: values.clone(), number, strings, column }))
    }
}

impl ArrowColumn {
    /// Prepares `array` for registers of `lane`: that of its type ([`Lane::of`]), or another one for decimals.
    ///
    /// # Errors
    /// If the lane is none for such an array, or values have no row format.
    pub fn new(array: &ArrayRef, lane: Lane) -> Result<ArrowColumn> {
        ArrowColumn::following(array, lane, None)
    }

    /// The same for an array that may have the dictionary of one before, whose entries are given.
    ///
    /// # Errors
    /// As [`ArrowColumn::new`].
    pub fn following(
        array: &ArrayRef,
        lane: Lane,
        before: Option<&Arc<Entries>>,
    ) -> Result<ArrowColumn> {
        let data_type = array.data_type();
        if let DataType::Dictionary(..) = data_type {
            return ArrowColumn::of_dictionary(array, lane, before);
        }
        let own = Lane::of(data_type);
        let mut nulls = array.nulls().cloned();
        let values = match data_type {
            DataType::Boolean => Values::Bits(array.as_boolean().values().clone()),
            DataType::Utf8 => offsets32(array.as_string::<i32>()),
            DataType::Binary => offsets32(array.as_binary::<i32>()),
            DataType::LargeUtf8 => offsets64(array.as_string::<i64>()),
            DataType::LargeBinary => offsets64(array.as_binary::<i64>()),
            DataType::Utf8View => views(array.as_string_view()),
            DataType::BinaryView => views(array.as_binary_view()),
            DataType::FixedSizeBinary(_) => {
                let array = array.as_fixed_size_binary();
                Values::Fixed(array.values().clone(), array.value_length() as usize)
            }
            _ if own == Lane::Str => {
                nulls = array.logical_nulls();
                let converter = RowConverter::new(vec![SortField::new(data_type.clone())])?;
                Values::Rows(converter.convert_columns(std::slice::from_ref(array))?)
            }
            DataType::Decimal128(..) if lane == Lane::I64 => {
                let values = array.as_primitive::<arrow_array::types::Decimal128Type>().values();
                Values::Wide(values.clone())
            }
            _ => fixed_width(array, own, lane),
        };
        let wide_decimal = matches!(data_type, DataType::Decimal128(..)) && lane == Lane::I128;
        let widened = matches!(values, Values::Narrow(..));
        if lane != own && !widened && !wide_decimal && !matches!(values, Values::Wide(_)) {
            let problem = format!("a column of {data_type} is loaded into a register of {lane}");
            return Err(arrow_schema::ArrowError::InvalidArgumentError(problem).into());
        }
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        Ok(ArrowColumn { lane, rows: array.len(), nulls, values })
    }

    /// The values of a dictionary are prepared once, not for each row that has them.
    fn of_dictionary(
        array: &ArrayRef,
        lane: Lane,
        before: Option<&Arc<Entries>>,
    ) -> Result<ArrowColumn> {
        let dictionary = array.as_any_dictionary();
        let values = dictionary.values().len();
        if lane != Lane::Str || !(1..=DICTIONARY_MAX).contains(&values) {
            let values = arrow_select::take::take(dictionary.values(), dictionary.keys(), None)?;
            return ArrowColumn::new(&values, lane);
        }
        let is_same = |entries: &&Arc<Entries>| Arc::ptr_eq(&entries.values, dictionary.values());
        let entries = match before.filter(is_same) {
            Some(entries) => entries.clone(),
            None => Entries::new(dictionary.values())?,
        };
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let codes = match dictionary.keys().as_primitive_opt::<UInt16Type>() {
            Some(keys)
                if usize::from(keys.values().iter().fold(0, |most, key| most.max(*key)))
                    < values =>
            {
                keys.values().clone()
            }
            _ => dictionary.normalized_keys().into_iter().map(|key| key as u16).collect(),
        };
        let values = Values::Dictionary(Dictionary { codes, entries });
        Ok(ArrowColumn { lane, rows: array.len(), nulls, values })
    }

    /// True if [`ArrowColumn::new`] takes long for an array, which had better be done [apart](crate::apart).
    pub(crate) fn takes_long(array: &ArrayRef) -> bool {
        let bytes = || array.to_data().get_slice_memory_size();
        is_encoded(array.data_type()) && bytes().is_ok_and(|bytes| bytes >= LONG_BYTES)
    }

    /// The entries of its dictionary, if it is kept as one.
    pub fn entries(&self) -> Option<&Arc<Entries>> {
        match &self.values {
            Values::Dictionary(dictionary) => Some(&dictionary.entries),
            _ => None,
        }
    }

    /// Bytes of the memory that its strings lie in.
    pub(crate) fn string_bytes(&self) -> usize {
        match &self.values {
            Values::Views(_, buffers) => buffers.iter().map(Buffer::capacity).sum(),
            Values::Offsets32(_, bytes) | Values::Offsets64(_, bytes) | Values::Fixed(bytes, _) => {
                bytes.capacity()
            }
            Values::Dictionary(dictionary) => dictionary.entries.column.string_bytes(),
            Values::Rows(rows) => rows.size(),
            Values::Shared(_) | Values::Bits(_) | Values::Wide(_) | Values::Narrow(..) => 0,
        }
    }

    /// Number of values.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Loads `rows` values from `start` on. Strings are valid as long as the column is.
    ///
    /// # Errors
    /// [`ExecError::Overflow`] if a decimal does not fit into the register.
    ///
    /// # Panics
    /// If there are not so many values, or the vector is of another lane.
    pub fn load(&self, start: usize, rows: usize, vector: &mut Vector) -> Result<()> {
        assert!(start + rows <= self.rows, "rows {start} and {rows} more of {}", self.rows);
        match &self.values {
            Values::Shared(buffer) => {
                for_lane!(self.lane, T => share::<T>(buffer, start, rows, vector));
            }
            Values::Bits(bits) => {
                let out = &mut vector.values_mut::<Bool>()[..rows];
                let bits = bits.slice(start, rows);
                for (chunk, word) in out.chunks_mut(64).zip(bits.bit_chunks().iter_padded()) {
                    for (bit, value) in chunk.iter_mut().enumerate() {
                        *value = Bool((word >> bit & 1) as u8);
                    }
                }
            }
            Values::Wide(values) => self.narrow(&values[start..start + rows], start, vector)?,
            Values::Narrow(buffer, from) => {
                let width = from.width();
                let bytes = buffer.slice_with_length(start * width, rows * width);
                widen(&bytes, *from, rows, vector);
            }
            Values::Views(views, buffers) if buffers.is_empty() => {
                // All of them are short, and as they have to be.
                share::<Str>(views.inner(), start, rows, vector);
            }
            Values::Views(views, buffers) => {
                let out = &mut vector.values_mut::<Str>()[..rows];
                for (view, value) in views[start..start + rows].iter().zip(out) {
                    *value = from_view(*view, buffers);
                }
            }
            Values::Dictionary(Dictionary { codes, entries }) => {
                let codes = codes.slice(start, rows);
                // A slice of its own: nothing that is written can change where it lies.
                let (number, strings) = (entries.number, entries.strings.as_slice());
                for (code, value) in codes.iter().zip(vector.values_mut::<Str>()) {
                    *value = strings[usize::from(*code)];
                }
                vector.set_codes(Codes { codes, values: strings.len(), dictionary: number });
            }
            Values::Offsets32(offsets, values) => {
                let offsets = &offsets[start..=start + rows];
                let bounds = offsets.windows(2).map(|pair| (pair[0] as usize, pair[1] as usize));
                slices(bounds, values, vector);
            }
            Values::Offsets64(offsets, values) => {
                let offsets = &offsets[start..=start + rows];
                let bounds = offsets.windows(2).map(|pair| (pair[0] as usize, pair[1] as usize));
                bounds.clone().try_for_each(|(start, end)| check_value(end - start))?;
                slices(bounds, values, vector);
            }
            Values::Fixed(values, width) => {
                slices(
                    (start..start + rows).map(|row| (row * width, (row + 1) * width)),
                    values,
                    vector,
                );
            }
            Values::Rows(encoded) => {
                let out = vector.values_mut::<Str>();
                for (row, value) in (start..start + rows).zip(out) {
                    let encoded = encoded.row(row);
                    check_value(encoded.data().len())?;
                    *value = Str::new(encoded.data());
                }
            }
        }
        vector.validity.load(self.nulls.as_ref(), start, rows);
        Ok(())
    }

    fn narrow(&self, values: &[i128], start: usize, vector: &mut Vector) -> Result<()> {
        let mut fit = true;
        for (value, out) in values.iter().zip(vector.values_mut::<i64>()) {
            *out = *value as i64;
            fit &= i128::from(*value as i64) == *value;
        }
        let is_valid =
            |row: usize| self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(start + row));
        let does_not_fit =
            |(row, value): &(usize, &i128)| is_valid(*row) && i128::from(**value as i64) != **value;
        match values.iter().enumerate().find(does_not_fit).filter(|_| !fit) {
            None => Ok(()),
            Some((_, value)) => Err(ExecError::Overflow {
                operation: format!("the decimal {value} (without its point)"),
                into: Lane::I64.to_string(),
            }),
        }
    }
}

fn offsets32<T: ByteArrayType<Offset = i32>>(array: &GenericByteArray<T>) -> Values {
    Values::Offsets32(array.offsets().clone(), array.values().clone())
}

fn offsets64<T: ByteArrayType<Offset = i64>>(array: &GenericByteArray<T>) -> Values {
    Values::Offsets64(array.offsets().clone(), array.values().clone())
}

fn views<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> Values {
    Values::Views(array.views().clone(), array.data_buffers().to_vec())
}

/// An array of values of one width, of the lane `own`.
fn fixed_width(array: &ArrayRef, own: Lane, lane: Lane) -> Values {
    let data = array.to_data();
    let is_wide = matches!(data.data_type(), DataType::Decimal128(..));
    let own = if is_wide { Lane::I128 } else { own };
    let width = own.width();
    let values = data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width);
    let is_decimal = matches!(data.data_type(), DataType::Decimal32(..) | DataType::Decimal64(..));
    if own != lane && is_decimal && matches!(lane, Lane::I64 | Lane::I128) {
        return Values::Narrow(values, own);
    }
    Values::Shared(values)
}

fn share<T: Value>(buffer: &Buffer, start: usize, rows: usize, vector: &mut Vector) {
    let width = size_of::<T>();
    let bytes = buffer.slice_with_length(start * width, rows * width);
    if bytes.as_ptr().cast::<T>().is_aligned() {
        vector.share::<T>(bytes);
    } else {
        let out = &mut vector.values_mut::<T>()[..rows];
        bytemuck::cast_slice_mut::<T, u8>(out).copy_from_slice(&bytes);
    }
}

fn widen(bytes: &Buffer, from: Lane, rows: usize, vector: &mut Vector) {
    let value = |row: usize| match from {
        Lane::I32 => bytemuck::pod_read_unaligned::<i32>(&bytes[row * 4..][..4]).into(),
        _ => bytemuck::pod_read_unaligned::<i64>(&bytes[row * 8..][..8]),
    };
    if vector.lane() == Lane::I64 {
        let out = vector.values_mut::<i64>();
        (0..rows).for_each(|row| out[row] = value(row));
    } else {
        let out = vector.values_mut::<i128>();
        (0..rows).for_each(|row| out[row] = value(row).into());
    }
}

/// Arrow's view as ours. Under a null there may be anything.
#[inline]
fn from_view(view: u128, buffers: &[Buffer]) -> Str {
    let is_inline = (view as u32) as usize <= INLINE_BYTES_MAX;
    // Looked up for short ones too, which may have any bytes there: that is faster than to decide.
    let buffer = if is_inline { 0 } else { (view >> 64) as u32 as usize };
    let address =
        buffers[buffer.min(buffers.len() - 1)].as_ptr().wrapping_add((view >> 96) as usize);
    if is_inline { Str::from_inline(view) } else { Str::at(view as u64, address) }
}

fn check_value(bytes: usize) -> Result<()> {
    check_length("a value", bytes, Str::BYTES_MAX)
}

fn slices(bounds: impl Iterator<Item = (usize, usize)>, values: &Buffer, vector: &mut Vector) {
    for ((start, end), value) in bounds.zip(vector.values_mut::<Str>()) {
        *value = Str::within(values, start, end);
    }
}
