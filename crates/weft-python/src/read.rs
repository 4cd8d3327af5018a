//! Values of arrays as objects of Python.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, OffsetSizeTrait,
};
use arrow::array::{ArrowPrimitiveType, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowNativeType, DataType, Date32Type, Date64Type, Decimal128Type, Decimal256Type, DecimalType,
    DurationMicrosecondType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, IntervalUnit, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple, PyType};

use crate::error::of_kind;

/// Gives the value of a row, which is not NULL.
type Get<'py> = Box<dyn Fn(usize) -> PyResult<Bound<'py, PyAny>> + 'py>;

/// The values of a column, one at a time.
pub(crate) struct Reader<'py> {
    py: Python<'py>,
    array: ArrayRef,
    has_nulls: bool,
    get: Get<'py>,
}

static DECIMAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static INTERVAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static ZONE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

impl<'py> Reader<'py> {
    /// The values of an array.
    ///
    /// # Errors
    /// `NotSupportedError` for types that have no objects.
    pub(crate) fn new(py: Python<'py>, array: &ArrayRef) -> PyResult<Reader<'py>> {
        let has_nulls = array.logical_null_count() > 0;
        Ok(Reader { py, array: Arc::clone(array), has_nulls, get: get(py, array)? })
    }

    /// The value of a row.
    ///
    /// # Errors
    /// If Python has no object for it, such as for a date after the year 9999.
    pub(crate) fn value(&self, row: usize) -> PyResult<Bound<'py, PyAny>> {
        if self.has_nulls && self.array.is_null(row) {
            return Ok(self.py.None().into_bound(self.py));
        }
        (self.get)(row)
    }
}

/// Rows of a batch as tuples, appended to a list.
///
/// # Errors
/// As for [`Reader::value`].
pub(crate) fn append_rows(
    py: Python<'_>,
    batch: &RecordBatch,
    rows: std::ops::Range<usize>,
    list: &Bound<'_, PyList>,
) -> PyResult<()> {
    let readers = batch.columns().iter().map(|column| Reader::new(py, column));
    let readers = readers.collect::<PyResult<Vec<_>>>()?;
    for row in rows {
        let values = readers.iter().map(|reader| reader.value(row));
        list.append(PyTuple::new(py, values.collect::<PyResult<Vec<_>>>()?)?)?;
    }
    Ok(())
}

fn primitive<'py, T>(py: Python<'py>, array: &ArrayRef) -> Get<'py>
where
    T: ArrowPrimitiveType,
    T::Native: IntoPyObject<'py>,
{
    let array = array.as_primitive::<T>().clone();
    Box::new(move |row| array.value(row).into_bound_py_any(py))
}

fn get<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Get<'py>> {
    let as_type = |data_type: DataType| -> PyResult<ArrayRef> {
        cast(array, &data_type).map_err(|error| of_kind("data", &error.to_string()))
    };
    Ok(match array.data_type() {
        DataType::Null => Box::new(move |_| Ok(py.None().into_bound(py))),
        DataType::Boolean => {
            let array = array.as_boolean().clone();
            Box::new(move |row| array.value(row).into_bound_py_any(py))
        }
        DataType::Int8 => primitive::<Int8Type>(py, array),
        DataType::Int16 => primitive::<Int16Type>(py, array),
        DataType::Int32 => primitive::<Int32Type>(py, array),
        DataType::Int64 => primitive::<Int64Type>(py, array),
        DataType::UInt8 => primitive::<UInt8Type>(py, array),
        DataType::UInt16 => primitive::<UInt16Type>(py, array),
        DataType::UInt32 => primitive::<UInt32Type>(py, array),
        DataType::UInt64 => primitive::<UInt64Type>(py, array),
        DataType::Float16 => {
            let array = array.as_primitive::<Float16Type>().clone();
            Box::new(move |row| array.value(row).to_f64().into_bound_py_any(py))
        }
        DataType::Float32 => primitive::<Float32Type>(py, array),
        DataType::Float64 => primitive::<Float64Type>(py, array),
        DataType::Utf8View => {
            let array = array.as_string_view().clone();
            Box::new(move |row| Ok(PyString::new(py, array.value(row)).into_any()))
        }
        DataType::Utf8 | DataType::LargeUtf8 => get(py, &as_type(DataType::Utf8View)?)?,
        DataType::BinaryView => {
            let array = array.as_binary_view().clone();
            Box::new(move |row| Ok(PyBytes::new(py, array.value(row)).into_any()))
        }
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            get(py, &as_type(DataType::BinaryView)?)?
        }
        DataType::Decimal128(_, scale) => {
            let (array, scale) = (array.as_primitive::<Decimal128Type>().clone(), *scale);
            let class = DECIMAL.import(py, "decimal", "Decimal")?.clone();
            Box::new(move |row| {
                class.call1((Decimal128Type::format_decimal(array.value(row), 38, scale),))
            })
        }
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            get(py, &as_type(DataType::Decimal128(*precision, *scale))?)?
        }
        DataType::Decimal256(_, scale) => {
            let (array, scale) = (array.as_primitive::<Decimal256Type>().clone(), *scale);
            let class = DECIMAL.import(py, "decimal", "Decimal")?.clone();
            Box::new(move |row| {
                class.call1((Decimal256Type::format_decimal(array.value(row), 76, scale),))
            })
        }
        DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_)
        | DataType::Interval(_) => time(py, array)?,
        DataType::List(_) => list::<i32>(py, array)?,
        DataType::LargeList(_) => list::<i64>(py, array)?,
        DataType::FixedSizeList(..) => {
            let array: FixedSizeListArray = array.as_fixed_size_list().clone();
            let items = Reader::new(py, array.values())?;
            Box::new(move |row| {
                let start = usize::try_from(array.value_offset(row)).unwrap_or_default();
                let length = usize::try_from(array.value_length()).unwrap_or_default();
                sequence(py, &items, start..start + length)
            })
        }
        DataType::ListView(item) | DataType::LargeListView(item) => {
            get(py, &as_type(DataType::List(Arc::clone(item)))?)?
        }
        DataType::Struct(_) => structs(py, array)?,
        DataType::Map(..) => map(py, array)?,
        DataType::Dictionary(_, values) => get(py, &as_type(values.as_ref().clone())?)?,
        DataType::RunEndEncoded(_, values) => get(py, &as_type(values.data_type().clone())?)?,
        other => return Err(unsupported(other)),
    })
}

fn unsupported(data_type: &DataType) -> PyErr {
    of_kind("not_supported", &format!("values of the type {data_type} have no objects in Python"))
}

/// A value beyond what Python has.
fn beyond(what: &str) -> PyErr {
    of_kind(
        "data",
        &format!(
            "{what} is beyond what Python's datetime has: read it as Arrow, or cast it to VARCHAR"
        ),
    )
}

fn time<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Get<'py>> {
    let as_type = |data_type: &DataType| -> PyResult<ArrayRef> {
        cast(array, data_type).map_err(|error| of_kind("data", &error.to_string()))
    };
    Ok(match array.data_type() {
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>().clone();
            Box::new(move |row| {
                let date = Date32Type::to_naive_date_opt(array.value(row));
                date.filter(in_years).ok_or_else(|| beyond("a date"))?.into_bound_py_any(py)
            })
        }
        DataType::Date64 => {
            let array = array.as_primitive::<Date64Type>().clone();
            Box::new(move |row| {
                let date = Date64Type::to_naive_date_opt(array.value(row));
                date.filter(in_years).ok_or_else(|| beyond("a date"))?.into_bound_py_any(py)
            })
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let array = as_type(&DataType::Time64(TimeUnit::Nanosecond))?;
            let array = array.as_primitive::<Time64NanosecondType>().clone();
            Box::new(move |row| {
                let nanoseconds = array.value(row) / 1_000 * 1_000;
                let seconds = u32::try_from(nanoseconds / 1_000_000_000).unwrap_or(u32::MAX);
                let rest = u32::try_from(nanoseconds % 1_000_000_000).unwrap_or_default();
                let time = NaiveTime::from_num_seconds_from_midnight_opt(seconds, rest);
                time.ok_or_else(|| beyond("a time"))?.into_bound_py_any(py)
            })
        }
        DataType::Timestamp(_, zone) => {
            let zone = zone.clone();
            let array = as_type(&DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?;
            let array = array.as_primitive::<TimestampMicrosecondType>().clone();
            let is_utc = matches!(zone.as_deref(), Some("UTC" | "+00:00" | "Z" | "Etc/UTC"));
            let zone = match zone.as_deref() {
                Some(zone) if !is_utc => {
                    Some(ZONE.import(py, "zoneinfo", "ZoneInfo")?.call1((zone,))?)
                }
                _ => None,
            };
            Box::new(move |row| {
                let time = DateTime::from_timestamp_micros(array.value(row));
                let time = time.filter(|time| in_years(&time.date_naive()));
                let time = time.ok_or_else(|| beyond("a timestamp"))?;
                match &zone {
                    _ if is_utc => time.into_bound_py_any(py),
                    Some(zone) => time.into_bound_py_any(py)?.call_method1("astimezone", (zone,)),
                    None => time.naive_utc().into_bound_py_any(py),
                }
            })
        }
        DataType::Duration(_) => {
            let array = as_type(&DataType::Duration(TimeUnit::Microsecond))?;
            let array = array.as_primitive::<DurationMicrosecondType>().clone();
            Box::new(move |row| TimeDelta::microseconds(array.value(row)).into_bound_py_any(py))
        }
        _ => {
            let array = as_type(&DataType::Interval(IntervalUnit::MonthDayNano))?;
            let array = array.as_primitive::<IntervalMonthDayNanoType>().clone();
            let class = INTERVAL.import(py, "weft._types", "Interval")?.clone();
            Box::new(move |row| {
                let value = array.value(row);
                if value.months == 0 && value.nanoseconds % 1_000 == 0 {
                    let time = TimeDelta::microseconds(value.nanoseconds / 1_000);
                    return (TimeDelta::days(i64::from(value.days)) + time).into_bound_py_any(py);
                }
                class.call1((value.months, value.days, value.nanoseconds))
            })
        }
    })
}

/// True for the years that Python's dates have.
fn in_years(date: &NaiveDate) -> bool {
    use chrono::Datelike;
    (1..=9999).contains(&date.year())
}

fn sequence<'py>(
    py: Python<'py>,
    items: &Reader<'py>,
    rows: std::ops::Range<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let values = rows.map(|row| items.value(row)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, values)?.into_any())
}

fn list<'py, O: OffsetSizeTrait>(py: Python<'py>, array: &ArrayRef) -> PyResult<Get<'py>> {
    let array: GenericListArray<O> = array.as_list::<O>().clone();
    let items = Reader::new(py, array.values())?;
    Ok(Box::new(move |row| {
        let offsets = array.value_offsets();
        sequence(py, &items, offsets[row].as_usize()..offsets[row + 1].as_usize())
    }))
}

fn structs<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Get<'py>> {
    let array = array.as_struct();
    let names: Vec<String> = array.fields().iter().map(|field| field.name().clone()).collect();
    let columns = array.columns().iter().map(|column| Reader::new(py, column));
    let columns = columns.collect::<PyResult<Vec<_>>>()?;
    Ok(Box::new(move |row| {
        let dict = PyDict::new(py);
        for (name, column) in names.iter().zip(&columns) {
            dict.set_item(name, column.value(row)?)?;
        }
        Ok(dict.into_any())
    }))
}

fn map<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Get<'py>> {
    let array = array.as_map().clone();
    let (keys, values) = (Reader::new(py, array.keys())?, Reader::new(py, array.values())?);
    Ok(Box::new(move |row| {
        let dict = PyDict::new(py);
        let offsets = array.value_offsets();
        for entry in offsets[row].as_usize()..offsets[row + 1].as_usize() {
            dict.set_item(keys.value(entry)?, values.value(entry)?)?;
        }
        Ok(dict.into_any())
    }))
}
