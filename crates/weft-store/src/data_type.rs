//! Arrow's types of columns as the manifest holds them: a tag, then its parameters.

use std::sync::Arc;

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};

use crate::wire::{Reader, WireResult, Writer, wrong};

/// Types inside types, at most.
const DEPTH_MAX: usize = 32;

const SIMPLE: [(u8, DataType); 21] = [
    (0, DataType::Boolean),
    (1, DataType::Int8),
    (2, DataType::Int16),
    (3, DataType::Int32),
    (4, DataType::Int64),
    (5, DataType::UInt8),
    (6, DataType::UInt16),
    (7, DataType::UInt32),
    (8, DataType::UInt64),
    (9, DataType::Float16),
    (10, DataType::Float32),
    (11, DataType::Float64),
    (12, DataType::Utf8),
    (13, DataType::LargeUtf8),
    (14, DataType::Utf8View),
    (15, DataType::Binary),
    (16, DataType::LargeBinary),
    (17, DataType::BinaryView),
    (18, DataType::Date32),
    (19, DataType::Date64),
    (20, DataType::Null),
];

const FIXED_BINARY: u8 = 32;
const TIME32: u8 = 33;
const TIME64: u8 = 34;
const TIMESTAMP: u8 = 35;
const DURATION: u8 = 36;
const INTERVAL: u8 = 37;
const DECIMAL32: u8 = 38;
const DECIMAL64: u8 = 39;
const DECIMAL128: u8 = 40;
const DECIMAL256: u8 = 41;
const LIST: u8 = 64;
const LARGE_LIST: u8 = 65;
const FIXED_LIST: u8 = 66;
const STRUCT: u8 = 67;
const MAP: u8 = 68;

/// Appends a type; false if the format has no tag for it.
pub(crate) fn write_type(writer: &mut Writer, data_type: &DataType) -> bool {
    if let Some((tag, _)) = SIMPLE.iter().find(|(_, simple)| simple == data_type) {
        writer.u8(*tag);
        return true;
    }
    match data_type {
        DataType::FixedSizeBinary(bytes) => {
            writer.u8(FIXED_BINARY);
            writer.u32(*bytes as u32);
        }
        DataType::Time32(unit) => tagged(writer, TIME32, time_unit(*unit)),
        DataType::Time64(unit) => tagged(writer, TIME64, time_unit(*unit)),
        DataType::Duration(unit) => tagged(writer, DURATION, time_unit(*unit)),
        DataType::Interval(unit) => tagged(writer, INTERVAL, *unit as u8),
        DataType::Timestamp(unit, zone) => {
            tagged(writer, TIMESTAMP, time_unit(*unit));
            writer.option_str(zone.as_deref());
        }
        DataType::Decimal32(precision, scale) => decimal(writer, DECIMAL32, *precision, *scale),
        DataType::Decimal64(precision, scale) => decimal(writer, DECIMAL64, *precision, *scale),
        DataType::Decimal128(precision, scale) => decimal(writer, DECIMAL128, *precision, *scale),
        DataType::Decimal256(precision, scale) => decimal(writer, DECIMAL256, *precision, *scale),
        DataType::List(item) => {
            writer.u8(LIST);
            return write_field(writer, item);
        }
        DataType::LargeList(item) => {
            writer.u8(LARGE_LIST);
            return write_field(writer, item);
        }
        DataType::FixedSizeList(item, len) => {
            writer.u8(FIXED_LIST);
            writer.u32(*len as u32);
            return write_field(writer, item);
        }
        DataType::Struct(fields) => {
            writer.u8(STRUCT);
            writer.len(fields.len());
            return fields.iter().all(|field| write_field(writer, field));
        }
        DataType::Map(entries, sorted) => {
            writer.u8(MAP);
            writer.u8(u8::from(*sorted));
            return write_field(writer, entries);
        }
        _ => return false,
    }
    true
}

fn tagged(writer: &mut Writer, tag: u8, parameter: u8) {
    writer.u8(tag);
    writer.u8(parameter);
}

fn decimal(writer: &mut Writer, tag: u8, precision: u8, scale: i8) {
    tagged(writer, tag, precision);
    writer.u8(scale as u8);
}

fn write_field(writer: &mut Writer, field: &Field) -> bool {
    writer.str(field.name());
    writer.u8(u8::from(field.is_nullable()));
    write_type(writer, field.data_type())
}

fn time_unit(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

/// Reads a type.
pub(crate) fn read_type(reader: &mut Reader<'_>) -> WireResult<DataType> {
    read_nested(reader, 0)
}

fn read_nested(reader: &mut Reader<'_>, depth: usize) -> WireResult<DataType> {
    if depth > DEPTH_MAX {
        return wrong(format!("types nested more than {DEPTH_MAX} deep"));
    }
    let tag = reader.u8()?;
    if let Some((_, simple)) = SIMPLE.iter().find(|(simple, _)| *simple == tag) {
        return Ok(simple.clone());
    }
    Ok(match tag {
        FIXED_BINARY => DataType::FixedSizeBinary(read_size(reader)?),
        TIME32 => DataType::Time32(read_unit(reader)?),
        TIME64 => DataType::Time64(read_unit(reader)?),
        DURATION => DataType::Duration(read_unit(reader)?),
        INTERVAL => DataType::Interval(match reader.u8()? {
            0 => IntervalUnit::YearMonth,
            1 => IntervalUnit::DayTime,
            2 => IntervalUnit::MonthDayNano,
            other => return wrong(format!("unknown unit {other} of intervals")),
        }),
        TIMESTAMP => {
            let unit = read_unit(reader)?;
            DataType::Timestamp(unit, reader.option_str()?.map(Arc::from))
        }
        DECIMAL32 => DataType::Decimal32(reader.u8()?, reader.u8()? as i8),
        DECIMAL64 => DataType::Decimal64(reader.u8()?, reader.u8()? as i8),
        DECIMAL128 => DataType::Decimal128(reader.u8()?, reader.u8()? as i8),
        DECIMAL256 => DataType::Decimal256(reader.u8()?, reader.u8()? as i8),
        LIST => DataType::List(Arc::new(read_field(reader, depth)?)),
        LARGE_LIST => DataType::LargeList(Arc::new(read_field(reader, depth)?)),
        FIXED_LIST => {
            let len = read_size(reader)?;
            DataType::FixedSizeList(Arc::new(read_field(reader, depth)?), len)
        }
        STRUCT => {
            let count = reader.count(6)?;
            let fields = (0..count).map(|_| read_field(reader, depth));
            DataType::Struct(fields.collect::<WireResult<Vec<_>>>()?.into())
        }
        MAP => {
            let sorted = reader.bool()?;
            DataType::Map(Arc::new(read_field(reader, depth)?), sorted)
        }
        other => return wrong(format!("unknown type {other}")),
    })
}

fn read_size(reader: &mut Reader<'_>) -> WireResult<i32> {
    match i32::try_from(reader.u32()?) {
        Ok(size) => Ok(size),
        Err(_) => wrong("a fixed size of 2^31 or more"),
    }
}

fn read_field(reader: &mut Reader<'_>, depth: usize) -> WireResult<Field> {
    let name = reader.str()?;
    let nullable = reader.bool()?;
    Ok(Field::new(name, read_nested(reader, depth + 1)?, nullable))
}

fn read_unit(reader: &mut Reader<'_>) -> WireResult<TimeUnit> {
    Ok(match reader.u8()? {
        0 => TimeUnit::Second,
        1 => TimeUnit::Millisecond,
        2 => TimeUnit::Microsecond,
        3 => TimeUnit::Nanosecond,
        other => return wrong(format!("unknown unit {other} of time")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_comes_back() {
        let item = |data_type| Arc::new(Field::new("item", data_type, true));
        let mut types: Vec<DataType> = SIMPLE.iter().map(|(_, simple)| simple.clone()).collect();
        for unit in
            [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond]
        {
            types.push(DataType::Time64(unit));
            types.push(DataType::Duration(unit));
            types.push(DataType::Timestamp(unit, Some("Europe/Berlin".into())));
            types.push(DataType::Timestamp(unit, None));
        }
        for unit in [IntervalUnit::YearMonth, IntervalUnit::DayTime, IntervalUnit::MonthDayNano] {
            types.push(DataType::Interval(unit));
        }
        types.push(DataType::FixedSizeBinary(16));
        types.push(DataType::Decimal128(38, -3));
        types.push(DataType::Decimal64(18, 4));
        types.push(DataType::List(item(DataType::Utf8View)));
        types.push(DataType::FixedSizeList(item(DataType::Int8), 3));
        types.push(DataType::Struct(
            vec![Field::new("a", DataType::LargeList(item(DataType::Float32)), false)].into(),
        ));
        for data_type in types {
            let mut writer = Writer::default();
            assert!(write_type(&mut writer, &data_type), "{data_type}");
            let mut reader = Reader::new(&writer.0);
            assert_eq!(read_type(&mut reader).unwrap(), data_type);
            reader.end().unwrap();
        }
    }

    #[test]
    fn nesting_has_an_end() {
        let mut bytes = Vec::new();
        for _ in 0..100_000 {
            bytes.extend_from_slice(&[LIST, 0, 0, 0, 0, 1]);
        }
        assert!(read_type(&mut Reader::new(&bytes)).is_err());
    }
}
