//! What planners want to know of a table beyond its zones: how many different values its columns have, about, and a
//! uniform sample of its rows.
//!
//! Both come from loads as they write. Each row gets a random key, and the sample is the rows with the least keys, so
//! that samples of parts of a table give one of the whole: the rows with the least keys of all (bottom-k sampling).
//! They are stored with the table, encoded as any rows are. Rows added since, few enough, are not in them.

mod collector;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, StringViewArray, UInt32Array, new_empty_array, new_null_array,
};
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::take::take;
use weft_codec::{Block, Options, Sketch, encode};

pub(crate) use collector::Collector;

use crate::schema::{TableSchema, scan_type};
use crate::wire::{Reader, WireResult, Writer, wrong};

/// Rows of a sample, at most.
pub const SAMPLE_ROWS_MAX: usize = 4096;
/// Values of a sample, at most, so that tables with very many columns have fewer rows in theirs.
const SAMPLE_VALUES_MAX: usize = 256 << 10;
/// Binary logarithm of the registers of a column's sketch: 3 % of error.
const SKETCH_BITS: u32 = 10;
/// A sample has so many bytes of a string at most.
const STRING_BYTES_MAX: usize = 256;

/// Statistics of the rows of a table.
#[derive(Clone, Debug)]
pub struct Statistics {
    rows: u64,
    /// By column; none where values are not counted.
    sketches: Vec<Option<Sketch>>,
    /// Of the rows of the sample, ascending.
    keys: Vec<u64>,
    /// Of each column, as scans give it.
    sample: Vec<ArrayRef>,
}

impl Statistics {
    /// Those of no rows.
    pub(crate) fn none(schema: &TableSchema) -> Statistics {
        let types = schema.columns.iter().map(|column| scan_type(&column.data_type));
        let sample: Vec<ArrayRef> = types.map(|data_type| new_empty_array(&data_type)).collect();
        let sketches = sample.iter().map(sketch).collect();
        Statistics { rows: 0, sketches, keys: Vec::new(), sample }
    }

    /// Rows that they are about. The table may have some more.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// About how many different values a column has, nulls aside; `None` if they are not counted, or there is no such column.
    pub fn distinct(&self, column: usize) -> Option<u64> {
        // The sketch does not know that there are no more values than rows.
        let sketch = self.sketches.get(column)?.as_ref();
        sketch.map(|sketch| sketch.estimate().min(self.rows))
    }

    /// Rows drawn at random, each equally likely: the columns in the table's order, up to [`SAMPLE_ROWS_MAX`] values
    /// each. Of long strings they have the first 256 bytes, of lists and structs nothing but null.
    pub fn sample(&self) -> &[ArrayRef] {
        &self.sample
    }

    /// Rows of the sample.
    pub fn sample_rows(&self) -> usize {
        self.keys.len()
    }

    /// Statistics of the same rows with some of the columns, by number.
    pub(crate) fn of_columns(&self, columns: &[usize]) -> Statistics {
        let sketches = columns.iter().map(|column| self.sketches[*column].clone()).collect();
        let sample = columns.iter().map(|column| self.sample[*column].clone()).collect();
        Statistics { rows: self.rows, sketches, keys: self.keys.clone(), sample }
    }

    /// Statistics of both's rows. `other` has the same columns.
    pub(crate) fn merge(&mut self, other: Statistics) -> weft_codec::Result<()> {
        self.rows += other.rows;
        for (sketch, other) in self.sketches.iter_mut().zip(other.sketches) {
            match (sketch.as_mut(), other) {
                (Some(sketch), Some(other)) => sketch.merge(&other),
                _ => *sketch = None,
            }
        }
        if self.keys.is_empty() {
            (self.keys, self.sample) = (other.keys, other.sample);
        } else if !other.keys.is_empty() {
            self.keys.extend(other.keys);
            for (values, other) in self.sample.iter_mut().zip(other.sample) {
                *values = concat(&[&*values, &other]).map_err(too_long)?;
            }
        }
        // Not for every row group.
        if self.keys.len() > 2 * self.sample_rows_max() { self.settle() } else { Ok(()) }
    }

    fn sample_rows_max(&self) -> usize {
        sample_rows_max(self.sketches.len())
    }

    /// Cuts the sample down to as many rows as it should have, in the order of their keys.
    pub(crate) fn settle(&mut self) -> weft_codec::Result<()> {
        let mut order: Vec<u32> = (0..self.keys.len() as u32).collect();
        order.sort_unstable_by_key(|row| self.keys[*row as usize]);
        order.truncate(self.sample_rows_max());
        self.keys = order.iter().map(|row| self.keys[*row as usize]).collect();
        let rows = UInt32Array::from(order);
        for values in &mut self.sample {
            *values = pick(values, &rows)?;
        }
        Ok(())
    }

    /// The bytes that they are stored as.
    ///
    /// # Errors
    /// Those of encoding the sample.
    pub(crate) fn encode(&self, table: u64) -> weft_codec::Result<Vec<u8>> {
        let mut writer = Writer::default();
        writer.u64(table);
        writer.len(self.sketches.len());
        writer.u64(self.rows);
        writer.len(self.keys.len());
        self.keys.iter().for_each(|key| writer.u64(*key));
        for sketch in &self.sketches {
            writer.bytes(sketch.as_ref().map_or(&[], Sketch::ranks));
        }
        if !self.keys.is_empty() {
            for values in &self.sample {
                writer.bytes(&encode(values, &Options::default())?);
            }
        }
        Ok(writer.0)
    }

    /// The statistics in the bytes that were stored for a table.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn decode(bytes: &[u8], table: u64, schema: &TableSchema) -> WireResult<Statistics> {
        let mut reader = Reader::new(bytes);
        let columns = schema.columns.len();
        let (found_table, found_columns) = (reader.u64()?, reader.u32()? as usize);
        if (found_table, found_columns) != (table, columns) {
            return wrong(format!(
                "statistics of table {found_table} with {found_columns} columns, not of {table} with {columns}"
            ));
        }
        let rows = reader.u64()?;
        let count = reader.count(8)?;
        if count > SAMPLE_ROWS_MAX || count as u64 > rows {
            return wrong(format!("a sample of {count} of {rows} rows"));
        }
        let keys = (0..count).map(|_| reader.u64()).collect::<WireResult<Vec<_>>>()?;
        let mut sketches = Vec::with_capacity(columns);
        for _ in 0..columns {
            let ranks = reader.bytes()?;
            sketches.push(match Sketch::from_ranks(ranks) {
                Some(sketch) if ranks.len() == 1 << SKETCH_BITS => Some(sketch),
                None if ranks.is_empty() => None,
                _ => return wrong(format!("a sketch of {} bytes", ranks.len())),
            });
        }
        let mut sample = Vec::with_capacity(columns);
        for column in &schema.columns {
            let data_type = scan_type(&column.data_type);
            sample.push(match count {
                0 => new_empty_array(&data_type),
                _ => read_sample(reader.bytes()?, &data_type, count)?,
            });
        }
        reader.end()?;
        Ok(Statistics { rows, sketches, keys, sample })
    }
}

fn read_sample(bytes: &[u8], data_type: &DataType, count: usize) -> WireResult<ArrayRef> {
    let values = Block::open(bytes).and_then(|block| block.decode_as(data_type));
    match values {
        Ok(values) if values.len() == count => Ok(values),
        Ok(values) => wrong(format!("a sample of {} values, not of {count}", values.len())),
        Err(error) => wrong(format!("the sample: {error}")),
    }
}

fn too_long(_: arrow_schema::ArrowError) -> weft_codec::Error {
    // The pieces have one type, so that only offsets of 32 bits can overflow.
    weft_codec::Error::TooManyBytes { bytes: STRING_BYTES_MAX * SAMPLE_ROWS_MAX }
}

/// A sketch of the values of an array, if they are counted.
fn sketch(values: &ArrayRef) -> Option<Sketch> {
    let mut sketch = Sketch::new(SKETCH_BITS);
    sketch.add_values(values).then_some(sketch)
}

/// Rows of the sample of a table with so many columns.
fn sample_rows_max(columns: usize) -> usize {
    (SAMPLE_VALUES_MAX / columns.max(1)).clamp(1, SAMPLE_ROWS_MAX)
}

/// The values at some rows, as a sample has them: owning no more memory than they need.
fn pick(values: &ArrayRef, rows: &UInt32Array) -> weft_codec::Result<ArrayRef> {
    let data_type = scan_type(values.data_type());
    if data_type.is_nested()
        || matches!(data_type, DataType::FixedSizeBinary(n) if n as usize > STRING_BYTES_MAX)
    {
        return Ok(new_null_array(&data_type, rows.len()));
    }
    let picked = take(values, rows, None).map_err(too_long)?;
    Ok(match picked.data_type() {
        DataType::Utf8View => texts(picked.as_string_view().iter()),
        DataType::Utf8 => texts(picked.as_string::<i32>().iter()),
        DataType::LargeUtf8 => texts(picked.as_string::<i64>().iter()),
        DataType::BinaryView => blobs(picked.as_binary_view().iter()),
        DataType::Binary => blobs(picked.as_binary::<i32>().iter()),
        DataType::LargeBinary => blobs(picked.as_binary::<i64>().iter()),
        _ => picked,
    })
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    let cut = |text: &'a str| &text[..text.floor_char_boundary(STRING_BYTES_MAX)];
    Arc::new(values.map(|text| text.map(cut)).collect::<StringViewArray>())
}

fn blobs<'a>(values: impl Iterator<Item = Option<&'a [u8]>>) -> ArrayRef {
    let cut = |bytes: &'a [u8]| &bytes[..bytes.len().min(STRING_BYTES_MAX)];
    Arc::new(values.map(|bytes| bytes.map(cut)).collect::<BinaryViewArray>())
}

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;
    use arrow_array::types::Int64Type;

    use super::*;
    use crate::schema::Column;

    fn columns(rows: std::ops::Range<i64>) -> Vec<ArrayRef> {
        let texts =
            rows.clone().map(|n| (n % 3 > 0).then(|| format!("a long enough text {}", n % 100)));
        vec![
            Arc::new(Int64Array::from_iter_values(rows.clone())),
            Arc::new(StringViewArray::from_iter(texts)),
        ]
    }

    fn schema() -> TableSchema {
        let column = |name: &str, data_type| Column {
            name: name.into(),
            data_type,
            nullable: true,
            default: None,
            max_length: None,
            kind: None,
        };
        let columns = vec![column("n", DataType::Int64), column("s", DataType::Utf8)];
        TableSchema { name: "t".into(), columns }
    }

    fn gather(rows: i64, group_rows: usize) -> Statistics {
        let collector = Collector::default();
        for start in (0..rows).step_by(group_rows) {
            collector.add(&columns(start..rows.min(start + group_rows as i64))).unwrap();
        }
        let mut statistics = collector.finish().expect("rows");
        statistics.settle().unwrap();
        statistics
    }

    #[test]
    fn samples_are_uniform_and_counts_close() {
        let rows = 300_000;
        let statistics = gather(rows, 65_536);
        assert_eq!((statistics.rows(), statistics.sample_rows()), (rows as u64, SAMPLE_ROWS_MAX));
        let distinct = statistics.distinct(0).unwrap();
        assert!(distinct.abs_diff(rows as u64) < rows as u64 / 8, "{distinct}");
        let distinct = statistics.distinct(1).unwrap();
        assert!((95..=105).contains(&distinct), "{distinct}");
        let values = statistics.sample()[0].as_primitive::<Int64Type>().values();
        let mut tenths = [0; 10];
        values.iter().for_each(|value| tenths[(value * 10 / rows) as usize] += 1);
        // 410 each are expected; six standard deviations.
        assert!(tenths.iter().all(|count| (290..=530).contains(count)), "{tenths:?}");
        let texts = statistics.sample()[1].as_string_view();
        for (value, text) in values.iter().zip(texts) {
            let expected = (value % 3 > 0).then(|| format!("a long enough text {}", value % 100));
            assert_eq!(text, expected.as_deref(), "rows stay together");
        }
    }

    #[test]
    fn few_rows_are_all_in_the_sample() {
        let mut statistics = gather(1000, 100);
        let mut values = statistics.sample()[0].as_primitive::<Int64Type>().values().to_vec();
        values.sort_unstable();
        assert!(values.into_iter().eq(0..1000));
        statistics.merge(gather(500, 500)).unwrap();
        assert_eq!((statistics.rows(), statistics.sample_rows()), (1500, 1500));
    }

    #[test]
    fn they_come_back_and_no_bytes_make_them_panic() {
        for statistics in [gather(5000, 1000), gather(3, 3)] {
            let bytes = statistics.encode(7).unwrap();
            let back = Statistics::decode(&bytes, 7, &schema()).unwrap();
            assert_eq!((back.rows, &back.keys), (statistics.rows, &statistics.keys));
            assert_eq!((&back.sample, &back.sketches), (&statistics.sample, &statistics.sketches));
            assert!(Statistics::decode(&bytes, 8, &schema()).is_err());
            for at in (0..bytes.len()).step_by(13) {
                Statistics::decode(&bytes[..at], 7, &schema()).unwrap_err();
                let mut bad = bytes.clone();
                bad[at] ^= 0xff;
                if let Ok(read) = Statistics::decode(&bad, 7, &schema()) {
                    assert_eq!(read.sample_rows(), read.sample()[0].len());
                }
            }
        }
    }
}
