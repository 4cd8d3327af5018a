//! `x AT TIME ZONE zone`: of a point in time the date and time that clocks show there, of a date and time the point in time
//! at which they show it. DataFusion has a point in time in both cases.

use std::sync::Arc;

use chrono::{DateTime, LocalResult, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{Result as DfResult, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::types::{ZONE, type_name};

/// The name of the function, as in PostgreSQL.
pub(crate) const NAME: &str = "timezone";

/// `timezone(zone, x)`, which AT TIME ZONE is written as.
pub(crate) fn at_time_zone() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(AtTimeZone { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AtTimeZone {
    signature: Signature,
}

impl ScalarUDFImpl for AtTimeZone {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let [zone, of] = types else {
            return plan_err!("timezone has two arguments: a time zone and a timestamp");
        };
        if !(zone.is_string() || zone.is_null()) {
            return plan_err!(
                "a time zone is a text such as 'Europe/Berlin', not {}",
                type_name(zone)
            );
        }
        let zone = match of {
            DataType::Timestamp(_, zone) => zone.clone(),
            DataType::Date32 | DataType::Date64 => None,
            of if of.is_string() || of.is_null() => Some(ZONE.into()),
            of => return plan_err!("AT TIME ZONE takes a timestamp, not {}", type_name(of)),
        };
        Ok(vec![DataType::Utf8, DataType::Timestamp(TimeUnit::Microsecond, zone)])
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        let zone = match types {
            [_, DataType::Timestamp(_, None)] => Some(ZONE.into()),
            _ => None,
        };
        Ok(DataType::Timestamp(TimeUnit::Microsecond, zone))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_local = matches!(args.args[1].data_type(), DataType::Timestamp(_, None));
        let rows = args.number_rows;
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [zones, times] = &arrays[..] else {
            return plan_err!("timezone has two arguments: a time zone and a timestamp");
        };
        let times = cast(times, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        let times = times.as_primitive::<TimestampMicrosecondType>();
        let mut known: Option<(String, Tz)> = None;
        let mut converted = Vec::with_capacity(rows);
        for (zone, time) in zones.as_string::<i32>().iter().zip(times) {
            let (Some(zone), Some(time)) = (zone, time) else {
                converted.push(None);
                continue;
            };
            let tz = match &known {
                Some((name, tz)) if name == zone => *tz,
                _ => {
                    let tz = parsed(zone)?;
                    known = Some((zone.to_owned(), tz));
                    tz
                }
            };
            converted.push(Some(if is_local { instant(tz, time) } else { local(tz, time) }?));
        }
        let converted = TimestampMicrosecondArray::from(converted);
        let converted: ArrayRef = Arc::new(match is_local {
            true => converted.with_timezone(ZONE),
            false => converted,
        });
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        match is_scalar {
            true => {
                let value = datafusion::common::ScalarValue::try_from_array(&converted, 0)?;
                Ok(ColumnarValue::Scalar(value))
            }
            false => Ok(ColumnarValue::Array(converted)),
        }
    }
}

fn parsed(zone: &str) -> DfResult<Tz> {
    match zone.parse() {
        Ok(tz) => Ok(tz),
        Err(_) => exec_err!(
            "there is no time zone '{zone}': write one such as 'Europe/Berlin', 'UTC' or '+02:00'"
        ),
    }
}

fn naive(micros: i64) -> DfResult<NaiveDateTime> {
    match DateTime::from_timestamp_micros(micros) {
        Some(time) => Ok(time.naive_utc()),
        None => exec_err!("AT TIME ZONE: a timestamp is out of range"),
    }
}

/// What clocks show at a point in time, in microseconds.
fn local(tz: Tz, micros: i64) -> DfResult<i64> {
    let offset = tz.offset_from_utc_datetime(&naive(micros)?).fix();
    Ok(micros + i64::from(offset.local_minus_utc()) * 1_000_000)
}

/// The point in time at which clocks show this. Of two it is the first; what they never show, as they are put forward, is
/// counted from the time before.
fn instant(tz: Tz, micros: i64) -> DfResult<i64> {
    let time = naive(micros)?;
    let offset = match tz.offset_from_local_datetime(&time) {
        LocalResult::Single(offset) | LocalResult::Ambiguous(offset, _) => offset.fix(),
        LocalResult::None => {
            let before = time.checked_sub_signed(TimeDelta::hours(3)).unwrap_or(time);
            match tz.offset_from_local_datetime(&before).earliest() {
                Some(offset) => offset.fix(),
                None => return exec_err!("AT TIME ZONE: there is no {time} in this time zone"),
            }
        }
    };
    Ok(micros - i64::from(offset.local_minus_utc()) * 1_000_000)
}
