//! Distances between moments: `age`, `date_diff` (boundaries crossed) and `date_sub` (whole units), and `time_bucket`.

use std::sync::Arc;

use chrono::{Datelike, NaiveDateTime, Timelike};
use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{
    ArrayRef, Int64Array, IntervalMonthDayNanoArray, StringViewArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, exec_err};
use datafusion::logical_expr::ScalarUDF;

use super::calendar::{DAY_US, add_months, date_time, micros, moments};
use super::scalar::{Call, INTERVAL, Kind, Rows, Scalar, TIMESTAMP, Types, gives, moment_type};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Scalar::function(
            &["age"],
            |call| gives(call.takes(&[Kind::Timestamp; 2]).map(|_| vec![TIMESTAMP; 2]), INTERVAL),
            age,
        ),
        Scalar::function(&["date_diff", "datediff"], distance_types, |rows| {
            distances(rows, crossed)
        }),
        Scalar::function(&["date_sub", "datesub"], distance_types, |rows| distances(rows, whole)),
        Scalar::function(&["time_bucket"], bucket_types, time_bucket),
    ]
}

/// The years, months, days and time from the second argument to the first one, in terms of the calendar.
fn age(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let (to, from) = (moments(rows, 0)?, moments(rows, 1)?);
    rows.each::<IntervalMonthDayNano, IntervalMonthDayNanoArray>(|row| {
        match (to.get(row), from.get(row)) {
            (Some(to), Some(from)) => age_of(to, from).map(Some),
            _ => Ok(None),
        }
    })
}

fn age_of(to: i64, from: i64) -> DfResult<IntervalMonthDayNano> {
    let sign = if to < from { -1 } else { 1 };
    let (late, early) = (date_time(to.max(from))?, date_time(to.min(from))?);
    let months = |moment: &NaiveDateTime| moment.year() * 12 + moment.month0() as i32;
    let time = |moment: &NaiveDateTime| micros(*moment).rem_euclid(DAY_US);
    let mut months = months(&late) - months(&early);
    let mut days = late.day() as i32 - early.day() as i32;
    let mut time = time(&late) - time(&early);
    if time < 0 {
        time += DAY_US;
        days -= 1;
    }
    if days < 0 {
        days += i32::from(early.num_days_in_month());
        months -= 1;
    }
    Ok(IntervalMonthDayNano {
        months: sign * months,
        days: sign * days,
        nanoseconds: i64::from(sign) * time * 1_000,
    })
}

/// A part of a date or time that distances are counted in.
#[derive(Clone, Copy)]
enum Unit {
    /// So many months.
    Months(i64),
    /// So many microseconds.
    Micros(i64),
    /// Years of weeks.
    IsoYear,
}

/// True of the name of a part that distances are counted in.
pub(super) fn is_unit(part: &str) -> bool {
    unit("date_diff", part).is_ok()
}

fn unit(name: &str, part: &str) -> DfResult<Unit> {
    const HOUR_US: i64 = 3_600_000_000;
    Ok(match part.to_lowercase().as_str() {
        "millennium" | "millennia" | "mil" | "millenniums" => Unit::Months(12_000),
        "century" | "centuries" | "cent" | "c" => Unit::Months(1_200),
        "decade" | "decades" | "dec" | "decs" => Unit::Months(120),
        "year" | "years" | "yr" | "y" | "yrs" => Unit::Months(12),
        "isoyear" => Unit::IsoYear,
        "quarter" | "quarters" => Unit::Months(3),
        "month" | "months" | "mon" | "mons" => Unit::Months(1),
        "week" | "weeks" | "w" | "weekofyear" | "yearweek" => Unit::Micros(7 * DAY_US),
        "day" | "days" | "d" | "dayofmonth" | "dow" | "dayofweek" | "weekday" | "doy"
        | "dayofyear" | "isodow" | "julian" => Unit::Micros(DAY_US),
        "hour" | "hours" | "hr" | "h" | "hrs" => Unit::Micros(HOUR_US),
        "minute" | "minutes" | "min" | "m" | "mins" => Unit::Micros(HOUR_US / 60),
        "second" | "seconds" | "sec" | "s" | "secs" | "epoch" => Unit::Micros(1_000_000),
        "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => Unit::Micros(1_000),
        "microsecond" | "microseconds" | "us" | "usec" | "usecs" => Unit::Micros(1),
        _ => {
            return exec_err!(
                "{name} cannot count '{part}': the first argument is 'year', 'quarter', 'month', 'week', \
                 'day', 'hour', 'minute', 'second', 'millisecond', 'microsecond', 'decade', \
                 'century', 'millennium' or 'isoyear'"
            );
        }
    })
}

fn distance_types(call: &Call<'_>) -> DfResult<Types> {
    let is_time = |given: &DataType| matches!(given, DataType::Time32(_) | DataType::Time64(_));
    if let [part, from, to] = call.types
        && is_time(from)
        && is_time(to)
    {
        let part = Call { name: call.name, types: std::slice::from_ref(part) };
        let mut arguments = part.takes(&[Kind::Text])?;
        arguments.extend([super::scalar::TIME, super::scalar::TIME]);
        return gives(Ok(arguments), DataType::Int64);
    }
    gives(call.takes(&[Kind::Text, Kind::Timestamp, Kind::Timestamp]), DataType::Int64)
}

fn distances(rows: &Rows<'_>, distance: fn(Unit, i64, i64) -> DfResult<i64>) -> DfResult<ArrayRef> {
    let parts = rows.column::<StringViewArray>(0)?;
    // Times of day are moments of the first day.
    let ends = [1, 2].map(|at| cast(&rows.arguments[at].values, &DataType::Int64));
    let [from, to] = ends;
    let (from, to) = (from?, to?);
    let micros_of = |values: &ArrayRef, at: usize, row: usize| {
        let values = values.as_any().downcast_ref::<Int64Array>()?;
        rows.arguments[at].known(row).map(|place| values.value(place))
    };
    rows.each::<i64, Int64Array>(|row| {
        let (from, to) = (micros_of(&from, 1, row), micros_of(&to, 2, row));
        match (parts.get(row), from, to) {
            (Some(part), Some(from), Some(to)) => {
                distance(unit(rows.name, part)?, from, to).map(Some)
            }
            _ => Ok(None),
        }
    })
}

/// How many boundaries of units lie between two moments.
fn crossed(unit: Unit, from: i64, to: i64) -> DfResult<i64> {
    Ok(match unit {
        Unit::Months(count) => {
            let months = |at: i64| -> DfResult<i64> {
                let moment = date_time(at)?;
                Ok((i64::from(moment.year()) * 12 + i64::from(moment.month0())).div_euclid(count))
            };
            months(to)? - months(from)?
        }
        Unit::IsoYear => {
            let year = |at: i64| date_time(at).map(|moment| moment.iso_week().year());
            i64::from(year(to)?) - i64::from(year(from)?)
        }
        Unit::Micros(count) => {
            // Weeks are of seven days that end, whatever day they begin with.
            let (day, days) = if count > DAY_US { (DAY_US, count / DAY_US) } else { (count, 1) };
            let place = |at: i64| i128::from(at).div_euclid(day.into());
            i64::try_from((place(to) - place(from)) / i128::from(days)).unwrap_or(i64::MAX)
        }
    })
}

/// How many whole units lie between two moments.
fn whole(unit: Unit, from: i64, to: i64) -> DfResult<i64> {
    Ok(match unit {
        Unit::Micros(count) => {
            i64::try_from((i128::from(to) - i128::from(from)) / i128::from(count))
                .unwrap_or(i64::MAX)
        }
        Unit::Months(count) => whole_months(from, to)? / count,
        Unit::IsoYear => whole_months(from, to)? / 12,
    })
}

/// Whole months between two moments: the last day of a month is as far as a later one would be.
fn whole_months(from: i64, to: i64) -> DfResult<i64> {
    if from > to {
        return whole_months(to, from).map(|months| -months);
    }
    let (start, end) = (date_time(from)?, date_time(to)?);
    let years = i64::from(end.year()) - i64::from(start.year());
    let mut months = years * 12 + i64::from(end.month0()) - i64::from(start.month0());
    let is_last = u32::from(end.num_days_in_month()) == end.day() && start.day() > end.day();
    let time = |moment: &NaiveDateTime| {
        (u64::from(moment.num_seconds_from_midnight()), moment.nanosecond())
    };
    let day = if is_last { end.day() } else { start.day() };
    if (day, time(&start)) > (end.day(), time(&end)) {
        months -= 1;
    }
    Ok(months)
}

fn bucket_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(2, 3)?;
    let of_interval = matches!(call.types.get(2), Some(DataType::Interval(_)));
    let third = if of_interval { Kind::Interval } else { Kind::Timestamp };
    let mut arguments = call.takes_some(&[Kind::Interval, Kind::Timestamp, third], 1)?;
    let moment = moment_type(&call.types[1]);
    arguments[1] = moment.clone();
    if let (Some(origin), false) = (arguments.get_mut(2), of_interval) {
        *origin = moment.clone();
    }
    let result = match call.types[1] {
        DataType::Date32 | DataType::Date64 => DataType::Date32,
        _ => moment,
    };
    gives(Ok(arguments), result)
}

/// Buckets of days and less begin with a Monday, those of months with a century.
const ORIGIN_OF_DAYS: i64 = 946_857_600_000_000;
const ORIGIN_OF_MONTHS: i64 = 946_684_800_000_000;

/// The begin of the bucket of this width that a moment lies in.
fn time_bucket(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let widths = rows.column::<IntervalMonthDayNanoArray>(0)?;
    let moments = moments(rows, 1)?;
    let is_offset = matches!(
        rows.arguments.get(2).map(|argument| argument.values.data_type()),
        Some(DataType::Interval(_))
    );
    let offsets = if is_offset { rows.optional::<IntervalMonthDayNanoArray>(2)? } else { None };
    let origins = if is_offset { None } else { rows.optional::<TimestampMicrosecondArray>(2)? };
    let has_third = rows.arguments.len() > 2;
    let bucket = |row: usize| -> DfResult<Option<i64>> {
        let (Some(width), Some(moment)) = (widths.get(row), moments.get(row)) else {
            return Ok(None);
        };
        let offset = offsets.as_ref().and_then(|offsets| offsets.get(row));
        let origin = origins.as_ref().and_then(|origins| origins.get(row));
        if has_third && offset.is_none() && origin.is_none() {
            return Ok(None);
        }
        match offset {
            Some(offset) => {
                let back = shifted(moment, offset, -1)?;
                Ok(Some(shifted(bucket_of(width, back, None)?, offset, 1)?))
            }
            None => bucket_of(width, moment, origin).map(Some),
        }
    };
    let buckets: TimestampMicrosecondArray =
        (0..rows.count).map(bucket).collect::<DfResult<_>>()?;
    match rows.result {
        DataType::Date32 => Ok(cast(&buckets, rows.result)?),
        _ => Ok(Arc::new(buckets.with_data_type(rows.result.clone()))),
    }
}

/// A moment, with an interval added so many times.
fn shifted(moment: i64, interval: IntervalMonthDayNano, times: i64) -> DfResult<i64> {
    let moment = add_months(moment, i64::from(interval.months) * times)?;
    let micros = i64::from(interval.days) * DAY_US + interval.nanoseconds / 1_000;
    match moment.checked_add(micros * times) {
        Some(moment) => Ok(moment),
        None => exec_err!("a timestamp is out of range"),
    }
}

fn bucket_of(width: IntervalMonthDayNano, moment: i64, origin: Option<i64>) -> DfResult<i64> {
    let micros_wide =
        i128::from(width.days) * i128::from(DAY_US) + i128::from(width.nanoseconds / 1_000);
    if width.months != 0 && micros_wide != 0 {
        return exec_err!("time_bucket: a width in months cannot have days or a time, too");
    }
    if width.months < 0 || micros_wide < 0 || (width.months == 0 && micros_wide == 0) {
        return exec_err!("time_bucket: the width has to be more than nothing");
    }
    if width.months == 0 {
        let origin = i128::from(origin.unwrap_or(ORIGIN_OF_DAYS));
        let from_origin = i128::from(moment) - origin;
        let start = from_origin.div_euclid(micros_wide) * micros_wide + origin;
        return match i64::try_from(start) {
            Ok(start) => Ok(start),
            Err(_) => exec_err!("time_bucket: a timestamp is out of range"),
        };
    }
    let origin = origin.unwrap_or(ORIGIN_OF_MONTHS);
    let months = |at: i64| -> DfResult<i64> {
        let moment = date_time(at)?;
        Ok(i64::from(moment.year()) * 12 + i64::from(moment.month0()))
    };
    let width = i64::from(width.months);
    let apart = (months(moment)? - months(origin)?).div_euclid(width) * width;
    let start = add_months(origin, apart)?;
    match start > moment {
        true => add_months(origin, apart - width),
        false => Ok(start),
    }
}
