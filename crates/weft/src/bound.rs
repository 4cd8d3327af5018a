//! Rows of record batches as the parameters of statements: what clients bind that speak Arrow.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float64Type, Int64Type, IntervalMonthDayNanoType,
    IntervalUnit, Schema, SchemaRef, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
    UInt64Type,
};
use weft_sql::{BatchReader, BatchSource, ErrorKind, Result, SqlError, Value, type_name};

/// The rows of a batch, each of which binds the values of its columns to the parameters `$1`, `$2` and so on.
#[derive(Debug)]
pub struct BoundRows {
    columns: Vec<ArrayRef>,
    types: Vec<Option<String>>,
    rows: usize,
}

impl BoundRows {
    /// The rows of a batch.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] for a column of a type that parameters do not have (maps, unions), and
    /// [`ErrorKind::Data`] for a value that none of SQL's types has.
    pub fn new(batch: &RecordBatch) -> Result<BoundRows> {
        let schema = batch.schema();
        let plain = |(column, field): (&ArrayRef, &Arc<Field>)| {
            plain(column).map_err(|error| of_column(&error, field.name()))
        };
        let columns = batch.columns().iter().zip(schema.fields()).map(plain);
        Ok(BoundRows {
            columns: columns.collect::<Result<_>>()?,
            types: bound_types(&schema),
            rows: batch.num_rows(),
        })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// What SQL calls the types of the parameters; `None` where a value has the type by itself.
    pub fn types(&self) -> &[Option<String>] {
        &self.types
    }

    /// The values of a row, from 0 on.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn values(&self, row: usize) -> Vec<Value> {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        self.columns.iter().map(|column| value_at(column, row)).collect()
    }
}

/// What SQL calls the types of parameters that rows with this schema are bound to; `None` where a value has the type by itself.
pub fn bound_types(schema: &Schema) -> Vec<Option<String>> {
    schema.fields().iter().map(|field| bound_type(field.data_type())).collect()
}

fn of_column(error: &SqlError, name: &str) -> SqlError {
    SqlError::new(error.kind(), format!("column {name} of the parameters: {}", error.message()))
}

/// What SQL calls the type of a parameter; `None` for NULL, whose type follows from the statement.
fn bound_type(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Null => None,
        DataType::Dictionary(_, values) => bound_type(values),
        DataType::RunEndEncoded(_, values) => bound_type(values.data_type()),
        DataType::FixedSizeBinary(_) => Some(type_name(&DataType::BinaryView)),
        DataType::Float16 => Some(type_name(&DataType::Float32)),
        // Values of nested types bring their types with them.
        nested if nested.is_nested() => None,
        other => Some(type_name(other)),
    }
}

/// The values in the one type that all of their kind are read from.
fn plain(array: &ArrayRef) -> Result<ArrayRef> {
    let as_type = |data_type: DataType| -> Result<ArrayRef> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        Ok(cast_with_options(array, &data_type, &options)?)
    };
    match array.data_type() {
        DataType::Null | DataType::Boolean => Ok(Arc::clone(array)),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            as_type(DataType::Int64)
        }
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            as_type(DataType::UInt64)
        }
        DataType::Float16 | DataType::Float32 | DataType::Float64 => as_type(DataType::Float64),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => as_type(DataType::LargeUtf8),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => as_type(DataType::LargeBinary),
        DataType::Date32 | DataType::Date64 => as_type(DataType::Date32),
        DataType::Time32(_) | DataType::Time64(_) => {
            as_type(DataType::Time64(TimeUnit::Microsecond))
        }
        DataType::Timestamp(_, zone) => {
            let zone = zone.as_ref().map(|_| Arc::from("UTC"));
            as_type(DataType::Timestamp(TimeUnit::Microsecond, zone))
        }
        DataType::Interval(_) | DataType::Duration(_) => {
            as_type(DataType::Interval(IntervalUnit::MonthDayNano))
        }
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => {
            as_type(DataType::Decimal128(*precision, *scale))
        }
        DataType::Dictionary(_, values) => plain(&as_type(values.as_ref().clone())?),
        DataType::RunEndEncoded(_, values) => plain(&as_type(values.data_type().clone())?),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => as_type(DataType::LargeList(Arc::clone(item))),
        DataType::Struct(_) => Ok(Arc::clone(array)),
        other => Err(SqlError::new(
            ErrorKind::NotSupported,
            format!("parameters of the type {} are not supported", type_name(other)),
        )),
    }
}

/// The value at a place of an array that [`plain`] has made.
fn value_at(array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => Value::Boolean(array.as_boolean().value(row)),
        DataType::Int64 => Value::Integer(array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt64 => Value::Unsigned(array.as_primitive::<UInt64Type>().value(row)),
        DataType::Float64 => Value::Double(array.as_primitive::<Float64Type>().value(row)),
        DataType::LargeUtf8 => Value::Text(array.as_string::<i64>().value(row).to_owned()),
        DataType::LargeBinary => Value::Blob(array.as_binary::<i64>().value(row).to_vec()),
        DataType::Date32 => Value::Date(array.as_primitive::<Date32Type>().value(row)),
        DataType::Time64(_) => {
            Value::Time(array.as_primitive::<Time64MicrosecondType>().value(row))
        }
        DataType::Timestamp(_, zone) => {
            let value = array.as_primitive::<TimestampMicrosecondType>().value(row);
            match zone {
                Some(_) => Value::TimestampUtc(value),
                None => Value::Timestamp(value),
            }
        }
        DataType::Interval(_) => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            Value::Interval(value.months, value.days, value.nanoseconds)
        }
        DataType::Decimal128(precision, scale) => {
            let value = array.as_primitive::<Decimal128Type>().value(row);
            Value::Decimal(value, *precision, *scale)
        }
        DataType::LargeList(_) => match plain(&array.as_list::<i64>().value(row)) {
            Ok(items) => Value::List((0..items.len()).map(|item| value_at(&items, item)).collect()),
            Err(_) => Value::Null,
        },
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter();
            let named = columns.zip(fields).map(|(column, field)| {
                let value = plain(column).map_or(Value::Null, |column| value_at(&column, row));
                (field.name().clone(), value)
            });
            Value::Struct(named.collect())
        }
        _ => Value::Null,
    }
}

/// Batches that can be read once, as a source of a [`Relation`](weft_sql::Relation).
pub struct BatchesOnce {
    schema: SchemaRef,
    reader: Mutex<Option<BatchReader>>,
}

impl BatchesOnce {
    /// What a reader gives, which has this schema.
    pub fn new(schema: SchemaRef, reader: BatchReader) -> BatchesOnce {
        BatchesOnce { schema, reader: Mutex::new(Some(reader)) }
    }

    /// The same with columns named `1`, `2` and so on, as an INSERT of rows of parameters finds them.
    #[must_use]
    pub fn numbered(self) -> BatchesOnce {
        let field = |(number, field): (usize, &Arc<Field>)| {
            field.as_ref().clone().with_name((number + 1).to_string())
        };
        let fields: Vec<Field> = self.schema.fields().iter().enumerate().map(field).collect();
        BatchesOnce { schema: Arc::new(Schema::new(fields)), ..self }
    }
}

impl BatchSource for BatchesOnce {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn open(&self, columns: &[usize]) -> Result<BatchReader> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        let reader = reader.ok_or_else(|| {
            SqlError::new(ErrorKind::Semantic, "the stream was read before, and can be read once")
        })?;
        let columns = columns.to_vec();
        Ok(Box::new(reader.map(move |batch| batch?.project(&columns))))
    }
}

impl std::fmt::Debug for BatchesOnce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchesOnce").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        Date64Array, DictionaryArray, Int8Array, LargeBinaryArray, ListArray, StringArray,
        StructArray, TimestampNanosecondArray, UnionArray,
    };
    use arrow::datatypes::{Int32Type, UnionFields};

    fn bound(columns: Vec<(&str, ArrayRef)>) -> Result<BoundRows> {
        BoundRows::new(&RecordBatch::try_from_iter(columns).expect("columns of one length"))
    }

    #[test]
    fn each_type_gives_the_value_that_it_stands_for() {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None])]);
        let dictionary: DictionaryArray<Int32Type> = ["x"].into_iter().collect();
        let inner: ArrayRef = Arc::new(Int8Array::from(vec![7]));
        let fields = StructArray::try_from(vec![("a", inner)]).expect("one column");
        let rows = bound(vec![
            ("i", Arc::new(Int8Array::from(vec![-1]))),
            ("s", Arc::new(StringArray::from(vec!["ä"]))),
            ("b", Arc::new(LargeBinaryArray::from(vec![&[0_u8, 255][..]]))),
            ("d", Arc::new(Date64Array::from(vec![86_400_000]))),
            ("t", Arc::new(TimestampNanosecondArray::from(vec![1_500]))),
            ("l", Arc::new(list)),
            ("k", Arc::new(dictionary)),
            ("f", Arc::new(fields)),
        ]);
        let rows = rows.expect("these are values");
        let expected = [
            Value::Integer(-1),
            Value::Text("ä".to_owned()),
            Value::Blob(vec![0, 255]),
            Value::Date(1),
            Value::Timestamp(1),
            Value::List(vec![Value::Integer(1), Value::Null]),
            Value::Text("x".to_owned()),
            Value::Struct(vec![("a".to_owned(), Value::Integer(7))]),
        ];
        assert_eq!(rows.values(0), expected);
        assert_eq!(rows.types()[0].as_deref(), Some("TINYINT"));
        assert_eq!(rows.types()[6].as_deref(), Some("VARCHAR"));
    }

    #[test]
    fn a_type_without_values_is_refused_with_its_column() {
        let numbers: ArrayRef = Arc::new(Int8Array::from(vec![1]));
        let fields = UnionFields::try_new(vec![0], vec![Field::new("n", DataType::Int8, true)]);
        let fields = fields.expect("one field");
        let union = UnionArray::try_new(fields, vec![0].into(), None, vec![numbers]);
        let error = bound(vec![("u", Arc::new(union.expect("a union")))]).expect_err("a union");
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert!(error.message().contains("column u"), "{error}");
    }
}
