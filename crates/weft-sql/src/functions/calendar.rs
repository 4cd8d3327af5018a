//! Parts of dates and times that DataFusion lacks, and moments made of parts.

use std::sync::Arc;

use chrono::{DateTime, Datelike, Months, NaiveDate, NaiveDateTime};
use datafusion::arrow::array::types::{IntervalMonthDayNano, TimestampMicrosecondType};
use datafusion::arrow::array::{
    ArrayRef, Float64Array, Int64Array, IntervalMonthDayNanoArray, PrimitiveArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result as DfResult, exec_err};
use datafusion::logical_expr::ScalarUDF;

use super::scalar::{
    Call, Column, INTERVAL, Kind, Rows, Scalar, TIME, TIMESTAMP, Types, gives, timestamptz,
};

/// Moments in microseconds since 1970.
pub(super) type Moments<'a> = Column<'a, PrimitiveArray<TimestampMicrosecondType>>;

pub(super) const DAY_US: i64 = 86_400_000_000;
const SECOND_US: i64 = 1_000_000;
const MONTH_DAYS: i64 = 30;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Scalar::function(&["isoyear"], moment_to_integer, |rows| {
            part(rows, |moment| i64::from(moment.iso_week().year()))
        }),
        Scalar::function(&["yearweek"], moment_to_integer, |rows| {
            part(rows, |moment| {
                let week = moment.iso_week();
                i64::from(week.year()) * 100 + i64::from(week.week())
            })
        }),
        Scalar::function(&["era"], moment_to_integer, |rows| {
            part(rows, |moment| i64::from(moment.year() > 0))
        }),
        Scalar::function(&["days_in_month"], moment_to_integer, |rows| {
            part(rows, |moment| i64::from(moment.num_days_in_month()))
        }),
        Scalar::function(&["millisecond"], time_to_integer, |rows| in_minute(rows, 1_000, 1)),
        Scalar::function(&["microsecond"], time_to_integer, |rows| in_minute(rows, 1, 1)),
        Scalar::function(&["nanosecond"], time_to_integer, |rows| in_minute(rows, 1, 1_000)),
        Scalar::function(
            &["julian"],
            |call| gives(call.takes(&[Kind::Timestamp]), DataType::Float64),
            |rows| {
                let moments = moments(rows, 0)?;
                rows.each::<f64, Float64Array>(|row| {
                    let days = |micros: i64| micros as f64 / DAY_US as f64 + JULIAN_OF_1970;
                    Ok(moments.get(row).map(days))
                })
            },
        ),
        Scalar::function(&["epoch_ms"], epoch_ms_types, epoch_ms),
        Scalar::function(&["epoch_us"], time_to_integer, |rows| since_epoch(rows, 1, 1)),
        Scalar::function(&["epoch_ns"], time_to_integer, |rows| since_epoch(rows, 1, 1_000)),
        Scalar::function(
            &["make_time"],
            |call| gives(call.takes(&[Kind::Integer, Kind::Integer, Kind::Double]), TIME),
            make_time,
        ),
        Scalar::function(&["make_timestamp"], |call| made_types(call, TIMESTAMP), make_timestamp),
        Scalar::function(
            &["make_timestamptz"],
            |call| made_types(call, timestamptz()),
            make_timestamp,
        ),
        Scalar::function(
            &["make_timestamp_ms"],
            |call| gives(call.takes(&[Kind::Integer]), TIMESTAMP),
            epoch_ms,
        ),
        Scalar::function(
            &["make_timestamp_ns"],
            |call| {
                let to = DataType::Timestamp(TimeUnit::Nanosecond, None);
                gives(call.takes(&[Kind::Integer]), to)
            },
            |rows| {
                let numbers = rows.column::<Int64Array>(0)?;
                rows.each::<i64, TimestampNanosecondArray>(|row| Ok(numbers.get(row)))
            },
        ),
        Scalar::function(
            &["normalized_interval"],
            |call| gives(call.takes(&[Kind::Interval]), INTERVAL),
            normalized,
        ),
    ]
}

/// The day on which 1970 begins, in days of the Julian calendar's count as DuckDB has it.
const JULIAN_OF_1970: f64 = 2_440_588.0;

/// The moments of an argument.
pub(super) fn moments<'a>(rows: &'a Rows<'_>, argument: usize) -> DfResult<Moments<'a>> {
    rows.column(argument)
}

/// The date and time of a moment.
///
/// # Errors
/// If it is out of the calendar.
pub(super) fn date_time(micros: i64) -> DfResult<NaiveDateTime> {
    match DateTime::from_timestamp_micros(micros) {
        Some(moment) => Ok(moment.naive_utc()),
        None => exec_err!("a timestamp of {micros} microseconds is out of the calendar"),
    }
}

/// The moment of a date and time.
pub(super) fn micros(moment: NaiveDateTime) -> i64 {
    moment.and_utc().timestamp_micros()
}

/// The moment so many months later; the last day of the month if it has no such day.
pub(super) fn add_months(micros_from: i64, months: i64) -> DfResult<i64> {
    let from = date_time(micros_from)?;
    let count = u32::try_from(months.unsigned_abs()).unwrap_or(u32::MAX);
    let to = match months {
        0.. => from.checked_add_months(Months::new(count)),
        _ => from.checked_sub_months(Months::new(count)),
    };
    match to {
        Some(to) => Ok(micros(to)),
        None => exec_err!("{months} months from {from} on are out of the calendar"),
    }
}

fn moment_to_integer(call: &Call<'_>) -> DfResult<Types> {
    gives(call.takes(&[Kind::Timestamp]), DataType::Int64)
}

fn part(rows: &Rows<'_>, part: fn(&NaiveDateTime) -> i64) -> DfResult<ArrayRef> {
    let moments = moments(rows, 0)?;
    rows.each::<i64, Int64Array>(|row| match moments.get(row) {
        Some(moment) => Ok(Some(part(&date_time(moment)?))),
        None => Ok(None),
    })
}

/// A date, timestamp, time of day, or interval.
fn time_to_integer(call: &Call<'_>) -> DfResult<Types> {
    let to = match call.types {
        [DataType::Time32(_) | DataType::Time64(_)] => Ok(vec![TIME]),
        [DataType::Interval(_) | DataType::Duration(_)] => Ok(vec![INTERVAL]),
        _ => call.takes(&[Kind::Timestamp]),
    };
    gives(to, DataType::Int64)
}

/// Microseconds of an argument: since 1970, since midnight, or of an interval, whose months have 30 days.
fn microseconds(rows: &Rows<'_>) -> DfResult<Vec<Option<i64>>> {
    let each = |micros: &dyn Fn(usize) -> Option<i64>| (0..rows.count).map(micros).collect();
    Ok(match rows.arguments[0].values.data_type() {
        DataType::Time64(_) => {
            let times = rows.column::<Time64MicrosecondArray>(0)?;
            each(&|row| times.get(row))
        }
        DataType::Interval(_) => {
            let intervals = rows.column::<IntervalMonthDayNanoArray>(0)?;
            each(&|row| {
                intervals.get(row).map(|interval| {
                    let days = i64::from(interval.months) * MONTH_DAYS + i64::from(interval.days);
                    days.saturating_mul(DAY_US).saturating_add(interval.nanoseconds / 1_000)
                })
            })
        }
        _ => {
            let moments = moments(rows, 0)?;
            each(&|row| moments.get(row))
        }
    })
}

/// What has passed of a minute, in units of so many microseconds, times a factor.
fn in_minute(rows: &Rows<'_>, unit_us: i64, factor: i64) -> DfResult<ArrayRef> {
    let micros = microseconds(rows)?;
    let of_minute = |micros: i64| micros.rem_euclid(60 * SECOND_US) / unit_us * factor;
    rows.each::<i64, Int64Array>(|row| Ok(micros[row].map(of_minute)))
}

fn since_epoch(rows: &Rows<'_>, unit_us: i64, factor: i64) -> DfResult<ArrayRef> {
    let micros = microseconds(rows)?;
    rows.each::<i64, Int64Array>(|row| {
        let Some(micros) = micros[row] else { return Ok(None) };
        // The nearest unit.
        match micros.saturating_add(unit_us / 2).div_euclid(unit_us).checked_mul(factor) {
            Some(count) => Ok(Some(count)),
            None => exec_err!("{}: the number is too large for a BIGINT", rows.name),
        }
    })
}

fn epoch_ms_types(call: &Call<'_>) -> DfResult<Types> {
    match call.types {
        [number] if number.is_integer() => gives(call.takes(&[Kind::Integer]), TIMESTAMP),
        _ => time_to_integer(call),
    }
}

/// Milliseconds since 1970, or the timestamp of a number of them.
fn epoch_ms(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    if *rows.result == DataType::Int64 {
        return since_epoch(rows, 1_000, 1);
    }
    let numbers = rows.column::<Int64Array>(0)?;
    rows.each::<i64, TimestampMicrosecondArray>(|row| {
        let Some(number) = numbers.get(row) else { return Ok(None) };
        match number.checked_mul(1_000) {
            Some(micros) => Ok(Some(micros)),
            None => exec_err!("{}: {number} milliseconds are out of range", rows.name),
        }
    })
}

/// Microseconds of a time of day.
///
/// # Errors
/// If there is no such time.
fn time_of_day(name: &str, hour: i64, minute: i64, second: f64) -> DfResult<i64> {
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute);
    match is_time && (0.0..60.0).contains(&second) {
        // At most 60 million.
        true => Ok((hour * 3600 + minute * 60) * SECOND_US + (second * 1e6).round() as i64),
        false => exec_err!("{name}: there is no time {hour}:{minute}:{second}"),
    }
}

fn make_time(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let (hours, minutes) = (rows.column::<Int64Array>(0)?, rows.column::<Int64Array>(1)?);
    let seconds = rows.column::<Float64Array>(2)?;
    rows.each::<i64, Time64MicrosecondArray>(|row| {
        match (hours.get(row), minutes.get(row), seconds.get(row)) {
            (Some(hour), Some(minute), Some(second)) => {
                time_of_day(rows.name, hour, minute, second).map(Some)
            }
            _ => Ok(None),
        }
    })
}

fn made_types(call: &Call<'_>, to: DataType) -> DfResult<Types> {
    let arguments = match call.types.len() {
        1 => call.takes(&[Kind::Integer]),
        _ => {
            let mut kinds = [Kind::Integer; 6];
            kinds[5] = Kind::Double;
            call.takes(&kinds)
        }
    };
    gives(arguments, to)
}

/// A timestamp of microseconds since 1970, or of year, month, day, hour, minute and second.
fn make_timestamp(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let parts = rows.arguments.len().min(5);
    let parts: Vec<_> =
        (0..parts).map(|at| rows.column::<Int64Array>(at)).collect::<DfResult<_>>()?;
    let seconds = rows.optional::<Float64Array>(5)?;
    let moment = |row: usize| -> DfResult<Option<i64>> {
        let Some(seconds) = &seconds else { return Ok(parts[0].get(row)) };
        let known: Option<Vec<i64>> = parts.iter().map(|part| part.get(row)).collect();
        let (Some(known), Some(second)) = (known, seconds.get(row)) else { return Ok(None) };
        let [year, month, day, hour, minute] = known[..] else { return Ok(None) };
        let date = i32::try_from(year).ok().and_then(|year| {
            NaiveDate::from_ymd_opt(year, u32::try_from(month).ok()?, u32::try_from(day).ok()?)
        });
        let Some(date) = date else {
            return exec_err!("{}: there is no date {year}-{month}-{day}", rows.name);
        };
        let time = time_of_day(rows.name, hour, minute, second)?;
        Ok(Some(micros(date.and_time(chrono::NaiveTime::MIN)) + time))
    };
    let moments: TimestampMicrosecondArray =
        (0..rows.count).map(moment).collect::<DfResult<_>>()?;
    Ok(Arc::new(moments.with_data_type(rows.result.clone())))
}

/// An interval with 30 days made a month, and 24 hours a day.
fn normalized(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let intervals = rows.column::<IntervalMonthDayNanoArray>(0)?;
    rows.each::<IntervalMonthDayNano, IntervalMonthDayNanoArray>(|row| {
        let Some(interval) = intervals.get(row) else { return Ok(None) };
        let days = i64::from(interval.days) + interval.nanoseconds / (DAY_US * 1_000);
        let months = i64::from(interval.months) + days / MONTH_DAYS;
        match (i32::try_from(months), i32::try_from(days % MONTH_DAYS)) {
            (Ok(months), Ok(days)) => Ok(Some(IntervalMonthDayNano {
                months,
                days,
                nanoseconds: interval.nanoseconds % (DAY_US * 1_000),
            })),
            _ => exec_err!("{}: the interval is too long", rows.name),
        }
    })
}
