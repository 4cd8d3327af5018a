//! Objects of Python as values of SQL.

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike, Utc};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDate, PyDateTime, PyDelta, PyDict, PyFloat, PyInt, PyList,
    PyMemoryView, PyString, PyTime, PyTuple, PyType,
};
use weft::Value;

use crate::error::of_kind;

/// Most digits of a decimal.
const DIGITS_MAX: u8 = 38;

/// Lists in lists, at most.
const DEPTH_MAX: usize = 64;

/// Why an object is no value.
pub(crate) enum NoValue {
    /// It has no type of SQL, or is beyond what the type holds.
    Unfit(String),
    /// Code of Python has failed.
    Raised(PyErr),
}

impl NoValue {
    /// The exception, which names the parameter.
    pub(crate) fn of_parameter(self, name: &str) -> PyErr {
        match self {
            NoValue::Unfit(why) => of_kind("data", &format!("parameter {name}: {why}")),
            NoValue::Raised(error) => error,
        }
    }

    /// Why, in words.
    pub(crate) fn in_words(&self, py: Python<'_>) -> String {
        match self {
            NoValue::Unfit(why) => why.clone(),
            NoValue::Raised(error) => crate::error::in_words(py, error),
        }
    }
}

impl From<PyErr> for NoValue {
    fn from(error: PyErr) -> NoValue {
        NoValue::Raised(error)
    }
}

fn unfit<T>(why: impl Into<String>) -> Result<T, NoValue> {
    Err(NoValue::Unfit(why.into()))
}

fn is_instance(
    object: &Bound<'_, PyAny>,
    class: &'static PyOnceLock<Py<PyType>>,
    module: &str,
    name: &str,
) -> PyResult<bool> {
    object.is_instance(class.import(object.py(), module, name)?)
}

static DECIMAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static UUID: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static INTERVAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The value that an object of Python stands for.
///
/// # Errors
/// If it stands for none.
pub(crate) fn value_of(object: &Bound<'_, PyAny>) -> Result<Value, NoValue> {
    value_within(object, 0)
}

fn value_within(object: &Bound<'_, PyAny>, depth: usize) -> Result<Value, NoValue> {
    if depth > DEPTH_MAX {
        return unfit(format!("lists lie in more than {DEPTH_MAX} lists"));
    }
    if object.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(Value::Boolean(value.is_true()));
    }
    if object.is_instance_of::<PyInt>() {
        return integer(object);
    }
    if let Ok(value) = object.cast::<PyFloat>() {
        return Ok(Value::Double(value.value()));
    }
    if let Ok(value) = object.cast::<PyString>() {
        return Ok(Value::Text(value.to_cow()?.into_owned()));
    }
    if let Ok(value) = object.cast::<PyBytes>() {
        return Ok(Value::Blob(value.as_bytes().to_vec()));
    }
    if let Ok(value) = object.cast::<PyByteArray>() {
        return Ok(Value::Blob(value.to_vec()));
    }
    if object.is_instance_of::<PyMemoryView>() {
        let bytes = object.call_method0("tobytes")?;
        return Ok(Value::Blob(bytes.extract::<Vec<u8>>()?));
    }
    match object.get_type().name()?.to_cow()?.as_ref() {
        "NaTType" | "NAType" => return Ok(Value::Null),
        _ => {}
    }
    if let Some(value) = of_time(object)? {
        return Ok(value);
    }
    if is_instance(object, &DECIMAL, "decimal", "Decimal")? {
        return decimal(object);
    }
    if is_instance(object, &INTERVAL, "weft._types", "Interval")? {
        let (months, days, nanoseconds) = object.extract().map_err(|_| {
            NoValue::Unfit(
                "an interval is beyond 32 bits of months and days, or 64 of nanoseconds".into(),
            )
        })?;
        return Ok(Value::Interval(months, days, nanoseconds));
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let values = object.try_iter()?.map(|item| value_within(&item?, depth + 1));
        return Ok(Value::List(values.collect::<Result<_, NoValue>>()?));
    }
    if let Ok(fields) = object.cast::<PyDict>() {
        let fields = fields.iter().map(|(name, value)| {
            let Ok(name) = name.extract::<String>() else {
                return unfit("the keys of a dict are texts: it becomes a STRUCT");
            };
            Ok((name, value_within(&value, depth + 1)?))
        });
        return Ok(Value::Struct(fields.collect::<Result<_, NoValue>>()?));
    }
    if is_instance(object, &UUID, "uuid", "UUID")? {
        return Ok(Value::Text(object.str()?.to_cow()?.into_owned()));
    }
    // Scalars of NumPy, and arrays.
    if object.hasattr("dtype")? && object.hasattr("tolist")? {
        if object.getattr("dtype")?.getattr("kind")?.eq("m")? {
            let item = object.call_method1("astype", ("timedelta64[us]",))?.call_method0("item")?;
            return value_within(&item, depth + 1);
        }
        if object.getattr("dtype")?.getattr("kind")?.eq("M")? {
            let item = object.call_method1("astype", ("datetime64[us]",))?.call_method0("item")?;
            return value_within(&item, depth + 1);
        }
        return value_within(&object.call_method0("tolist")?, depth + 1);
    }
    let class = object.get_type().name()?.to_string();
    unfit(format!("an object of the class {class} has no type of SQL"))
}

fn integer(object: &Bound<'_, PyAny>) -> Result<Value, NoValue> {
    if let Ok(value) = object.extract::<i64>() {
        return Ok(Value::Integer(value));
    }
    if let Ok(value) = object.extract::<u64>() {
        return Ok(Value::Unsigned(value));
    }
    let text = object.call_method0("__int__")?.str()?.to_cow()?.into_owned();
    let digits = text.trim_start_matches('-').len();
    match text.parse::<i128>() {
        Ok(value) if digits <= usize::from(DIGITS_MAX) => Ok(Value::Decimal(value, DIGITS_MAX, 0)),
        _ => unfit(format!("an integer of {digits} digits: there are at most {DIGITS_MAX}")),
    }
}

fn decimal(object: &Bound<'_, PyAny>) -> Result<Value, NoValue> {
    let text = object.call_method1("__format__", ("f",))?.extract::<String>()?;
    let (digits, scale) = match text.split_once('.') {
        Some((whole, fraction)) => (format!("{whole}{fraction}"), fraction.len()),
        None => (text.clone(), 0),
    };
    let significant = digits.trim_start_matches('-').trim_start_matches('0').len();
    let precision = significant.max(scale).max(1);
    match (digits.parse::<i128>(), u8::try_from(precision), i8::try_from(scale)) {
        (Ok(value), Ok(precision), Ok(scale)) if precision <= DIGITS_MAX => {
            Ok(Value::Decimal(value, precision, scale))
        }
        (Err(_), ..) if precision <= usize::from(DIGITS_MAX) => {
            unfit(format!("the decimal {text} is no number"))
        }
        _ => unfit(format!("a decimal of {precision} digits: there are at most {DIGITS_MAX}")),
    }
}

/// A date, time, timestamp or interval.
fn of_time(object: &Bound<'_, PyAny>) -> Result<Option<Value>, NoValue> {
    if object.is_instance_of::<PyDateTime>() {
        if object.getattr("tzinfo")?.is_none() {
            let value: NaiveDateTime = object.extract()?;
            return Ok(Some(Value::Timestamp(value.and_utc().timestamp_micros())));
        }
        let utc = pyo3::types::PyTzInfo::utc(object.py())?;
        let value: DateTime<Utc> = object.call_method1("astimezone", (utc,))?.extract()?;
        return Ok(Some(Value::TimestampUtc(value.timestamp_micros())));
    }
    if object.is_instance_of::<PyDate>() {
        let value: NaiveDate = object.extract()?;
        let days = value.signed_duration_since(NaiveDate::default()).num_days();
        return Ok(Some(Value::Date(i32::try_from(days).unwrap_or(i32::MAX))));
    }
    if object.is_instance_of::<PyTime>() {
        if !object.getattr("tzinfo")?.is_none() {
            return unfit("a time with a time zone: TIME has none");
        }
        let value: NaiveTime = object.extract()?;
        let micros = i64::from(value.num_seconds_from_midnight()) * 1_000_000
            + i64::from(value.nanosecond() / 1_000);
        return Ok(Some(Value::Time(micros)));
    }
    if object.is_instance_of::<PyDelta>() {
        let value: TimeDelta = object.extract()?;
        let days = value.num_days();
        let rest = value - TimeDelta::days(days);
        let nanoseconds = rest.num_nanoseconds().unwrap_or_default();
        return match i32::try_from(days) {
            Ok(days) => Ok(Some(Value::Interval(0, days, nanoseconds))),
            Err(_) => unfit("an interval of more days than 32 bits hold"),
        };
    }
    Ok(None)
}
