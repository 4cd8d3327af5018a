//! Intervals: months, days and nanoseconds, each a node of integers.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, IntervalDayTimeArray, IntervalMonthDayNanoArray, types::*};
use arrow_buffer::{IntervalDayTime, IntervalMonthDayNano, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, IntervalUnit};

use crate::encode::filled;
use crate::encoding::Encoding;
use crate::error::{Result, damaged};
use crate::ints;
use crate::reader::{Reader, put_child};
use crate::rows::Rows;
use crate::scalar::Scalar;

/// Nanoseconds of a millisecond, the unit of Arrow's shorter intervals.
const NANOS_PER_MILLI: i64 = 1_000_000;

/// Appends a node that holds the intervals of `array`.
pub(crate) fn encode(array: &dyn Array, nulls: Option<&NullBuffer>, level: u8, out: &mut Vec<u8>) {
    let values: Vec<(i32, i32, i64)> = match array.data_type() {
        DataType::Interval(IntervalUnit::DayTime) => filled::<IntervalDayTimeType>(array, nulls)
            .iter()
            .map(|value| (0, value.days, i64::from(value.milliseconds) * NANOS_PER_MILLI))
            .collect(),
        _ => filled::<IntervalMonthDayNanoType>(array, nulls)
            .iter()
            .map(|value| (value.months, value.days, value.nanoseconds))
            .collect(),
    };
    let months: Vec<u32> = values.iter().map(|value| value.0 as u32).collect();
    let days: Vec<u32> = values.iter().map(|value| value.1 as u32).collect();
    let nanos: Vec<u64> = values.iter().map(|value| value.2 as u64).collect();
    out.push(Encoding::Interval as u8);
    for part in [months, days] {
        let mut child = Vec::new();
        ints::encode(&part, true, level.saturating_sub(1), &mut child);
        put_child(out, &child);
    }
    ints::encode(&nanos, true, level.saturating_sub(1), out);
}

/// The nodes of the months, the days and the nanoseconds.
pub(crate) fn parts(node: &[u8]) -> Result<[&[u8]; 3]> {
    let (encoding, mut reader): (_, Reader) = Encoding::open(node, 0)?;
    if encoding != Encoding::Interval {
        return Err(encoding.misplaced("intervals"));
    }
    Ok([reader.child()?, reader.child()?, reader.rest()])
}

/// Decodes the values of `rows` of a node as `data_type`.
pub(crate) fn read(
    node: &[u8],
    rows: Rows,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let [months, days, nanos] = parts(node)?;
    let months = ints::read::<u32>(months, rows, 1)?;
    let days = ints::read::<u32>(days, rows, 1)?;
    let nanos = ints::read::<u64>(nanos, rows, 1)?;
    let days = days.iter().map(|&days| days as i32);
    let nanos = nanos.iter().map(|&nanos| nanos as i64);
    if let DataType::Interval(IntervalUnit::DayTime) = data_type {
        let value = |(days, nanos): (i32, i64)| {
            let milliseconds = i32::try_from(nanos / NANOS_PER_MILLI);
            milliseconds
                .map(|milliseconds| IntervalDayTime { days, milliseconds })
                .map_err(|_| damaged("interval", format!("{nanos} ns")))
        };
        let values: Vec<_> = days.zip(nanos).map(value).collect::<Result<_>>()?;
        return Ok(Arc::new(IntervalDayTimeArray::new(ScalarBuffer::from(values), nulls)));
    }
    let value = |((&months, days), nanoseconds)| IntervalMonthDayNano {
        months: months as i32,
        days,
        nanoseconds,
    };
    let values: Vec<_> = months.iter().zip(days).zip(nanos).map(value).collect();
    Ok(Arc::new(IntervalMonthDayNanoArray::new(ScalarBuffer::from(values), nulls)))
}

/// Decodes the value of row `row` of a node of `rows` values.
pub(crate) fn value(node: &[u8], row: usize, rows: usize) -> Result<Scalar> {
    let [months, days, nanos] = parts(node)?;
    Ok(Scalar::Interval {
        months: ints::value::<u32>(months, row, rows, 1)? as i32,
        days: ints::value::<u32>(days, row, rows, 1)? as i32,
        nanoseconds: ints::value::<u64>(nanos, row, rows, 1)? as i64,
    })
}
