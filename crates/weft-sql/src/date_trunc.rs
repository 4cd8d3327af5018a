//! `date_trunc` for every year: DataFusion's goes through nanoseconds, which there are only from 1677 to 2262, and rounds fractions of
//! seconds up before 1970.

use std::sync::Arc;

use chrono::{DateTime, Datelike, NaiveDate};
use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{
    ArrowTimestampType, DataType, Field, FieldRef, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use datafusion::common::{Result as DfResult, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::functions::datetime::date_trunc;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::one_argument::compute_one;
use crate::types::ZONE;

/// Seconds of a day.
const DAY: i64 = 86_400;

/// What is cut off to, by its name in lower case; `None` for others.
fn part(name: &str) -> Option<Part> {
    Some(match name {
        "microsecond" => Part::Fraction(1_000_000),
        "millisecond" => Part::Fraction(1_000),
        "second" => Part::Seconds(1, 0),
        "minute" => Part::Seconds(60, 0),
        "hour" => Part::Seconds(3_600, 0),
        "day" => Part::Seconds(DAY, 0),
        // The first day of 1970 was a Thursday.
        "week" => Part::Seconds(7 * DAY, 3 * DAY),
        "month" => Part::Months(1),
        "quarter" => Part::Months(3),
        "year" => Part::Years(1, 0),
        "decade" => Part::Years(10, 0),
        // They begin with the years 1, 101 and so on.
        "century" => Part::Years(100, 1),
        "millennium" => Part::Years(1_000, 1),
        _ => return None,
    })
}

/// What is cut off to.
#[derive(Clone, Copy)]
enum Part {
    /// So many parts of a second.
    Fraction(i64),
    /// So many seconds, which would begin anew so long before 1970.
    Seconds(i64, i64),
    /// So many months.
    Months(u32),
    /// So many years, of which the first is so much more than a multiple.
    Years(i32, i32),
}

impl Part {
    /// A timestamp in units of which a second has so many, cut off; `None` if that is out of range.
    fn truncate(self, timestamp: i64, per_second: i64) -> Option<i64> {
        let step = |step: i64, offset: i64| {
            timestamp.checked_sub(timestamp.checked_add(offset)?.rem_euclid(step))
        };
        let first_day = match self {
            Part::Fraction(parts) => return step((per_second / parts).max(1), 0),
            Part::Seconds(seconds, offset) => {
                return step(seconds * per_second, offset * per_second);
            }
            Part::Months(months) => {
                let date = date_of(timestamp, per_second)?;
                let month = date.month0() / months * months + 1;
                NaiveDate::from_ymd_opt(date.year(), month, 1)?
            }
            Part::Years(years, first) => {
                let year = date_of(timestamp, per_second)?.year();
                NaiveDate::from_ymd_opt(year - (year - first).rem_euclid(years), 1, 1)?
            }
        };
        first_day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp().checked_mul(per_second)
    }
}

/// The day of a timestamp; `None` if it is out of range.
fn date_of(timestamp: i64, per_second: i64) -> Option<NaiveDate> {
    let seconds = timestamp.div_euclid(per_second);
    DateTime::from_timestamp(seconds, 0).map(|time| time.date_naive())
}

fn truncate<T: ArrowTimestampType>(
    timestamps: &ArrayRef,
    part: Part,
    per_second: i64,
) -> DfResult<ArrayRef> {
    let timestamps = timestamps.as_primitive::<T>();
    let truncated = timestamps.try_unary::<_, T, _>(|timestamp| {
        match part.truncate(timestamp, per_second) {
            Some(truncated) => Ok(truncated),
            None => exec_err!("date_trunc: a timestamp is out of range"),
        }
    })?;
    Ok(Arc::new(truncated.with_data_type(timestamps.data_type().clone())))
}

/// `date_trunc(part, timestamp)`; a date is its midnight.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct DateTrunc {
    /// DataFusion's, for times of day and other zones.
    inner: Arc<ScalarUDF>,
    signature: Signature,
    aliases: [String; 1],
}

impl DateTrunc {
    pub(crate) fn new() -> DateTrunc {
        let signature = Signature::user_defined(Volatility::Immutable);
        DateTrunc { inner: date_trunc(), signature, aliases: ["datetrunc".to_owned()] }
    }
}

impl ScalarUDFImpl for DateTrunc {
    fn name(&self) -> &str {
        "date_trunc"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let [_, of] = types else {
            return plan_err!("date_trunc has two arguments: a part and a timestamp");
        };
        let of = match of {
            DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => of.clone(),
            DataType::Date32 | DataType::Date64 | DataType::Null => {
                DataType::Timestamp(TimeUnit::Microsecond, None)
            }
            of if of.is_string() => DataType::Timestamp(TimeUnit::Microsecond, None),
            of => return plan_err!("date_trunc takes a date or a timestamp, not {of}"),
        };
        Ok(vec![DataType::Utf8, of])
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        internal_err!("the type of date_trunc is that of its field")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DfResult<FieldRef> {
        match args.arg_fields {
            [_, of] => {
                let data_type = of.data_type().clone();
                Ok(Arc::new(Field::new(self.name(), data_type, of.is_nullable())))
            }
            _ => plan_err!("date_trunc has two arguments: a part and a timestamp"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))), of] = &args.args[..] else {
            return exec_err!("the part of date_trunc must be a constant text, as in 'month'");
        };
        let DataType::Timestamp(unit, zone) = of.data_type() else {
            return self.inner.invoke_with_args(args);
        };
        if zone.is_some_and(|zone| *zone != *ZONE) {
            return self.inner.invoke_with_args(args);
        }
        let Some(part) = part(&name.to_lowercase()) else {
            return exec_err!(
                "date_trunc has no part '{name}': there are microsecond, millisecond, second, minute, hour, day, week, month, quarter, year, decade, century and millennium"
            );
        };
        let compute = |timestamps: &ArrayRef| match unit {
            TimeUnit::Second => truncate::<TimestampSecondType>(timestamps, part, 1),
            TimeUnit::Millisecond => truncate::<TimestampMillisecondType>(timestamps, part, 1_000),
            TimeUnit::Microsecond => {
                truncate::<TimestampMicrosecondType>(timestamps, part, 1_000_000)
            }
            TimeUnit::Nanosecond => {
                truncate::<TimestampNanosecondType>(timestamps, part, 1_000_000_000)
            }
        };
        compute_one(self.name(), std::slice::from_ref(of), compute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin() {
        let seconds = |year, month, day, hour| {
            let date = NaiveDate::from_ymd_opt(year, month, day).unwrap();
            date.and_hms_opt(hour, 0, 0).unwrap().and_utc().timestamp()
        };
        for (name, from, to) in [
            ("week", seconds(1969, 12, 31, 5), seconds(1969, 12, 29, 0)),
            ("day", seconds(9999, 12, 31, 5), seconds(9999, 12, 31, 0)),
            ("month", seconds(1582, 10, 15, 5), seconds(1582, 10, 1, 0)),
            ("quarter", seconds(1969, 12, 31, 5), seconds(1969, 10, 1, 0)),
            ("decade", seconds(1969, 12, 31, 5), seconds(1960, 1, 1, 0)),
            ("century", seconds(2000, 12, 31, 5), seconds(1901, 1, 1, 0)),
            ("millennium", seconds(2001, 1, 1, 5), seconds(2001, 1, 1, 0)),
        ] {
            let part = part(name).unwrap();
            assert_eq!(part.truncate(from, 1), Some(to), "{name}");
            let milli = part.truncate(from * 1_000 + 999, 1_000);
            assert_eq!(milli, Some(to * 1_000), "{name}");
        }
        assert_eq!(part("millisecond").unwrap().truncate(-1_500, 1_000_000), Some(-2_000));
        assert_eq!(part("microsecond").unwrap().truncate(-7, 1), Some(-7));
        assert_eq!(part("week").unwrap().truncate(i64::MIN, 1_000_000), None);
    }
}
