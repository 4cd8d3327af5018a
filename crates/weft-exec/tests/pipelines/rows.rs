//! Random rows of every type, and queries that give record batches.

use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::*;
use arrow_schema::{DataType, Field, IntervalUnit, Schema, SchemaRef, TimeUnit};
use futures::StreamExt;
use weft_exec::pipeline::{Pipeline, Source};
use weft_exec::program::{Program, Step};
use weft_exec::query::{Context, Query};
use weft_exec::sink::{Output, Results};
use weft_exec::tuple::Layout;
use weft_exec::{Lane, Result};

/// A schema with a column of each type that has a representation of its own.
pub(crate) fn schema() -> SchemaRef {
    let types = [
        DataType::UInt64,
        DataType::Boolean,
        DataType::Int8,
        DataType::UInt16,
        DataType::Int32,
        DataType::Date32,
        DataType::Int64,
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(15, 2),
        DataType::Decimal128(38, 4),
        DataType::Decimal64(12, 1),
        DataType::Utf8View,
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::BinaryView,
        DataType::Binary,
        DataType::FixedSizeBinary(5),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::List(Arc::new(Field::new("item", DataType::Int64, true))),
        DataType::Null,
    ];
    let field = |(number, data_type): (usize, DataType)| {
        Field::new(format!("c{number}"), data_type, number > 0)
    };
    Arc::new(Schema::new(types.into_iter().enumerate().map(field).collect::<Vec<_>>()))
}

/// The lanes of a schema's columns.
pub(crate) fn lanes(schema: &Schema) -> Vec<Lane> {
    schema.fields().iter().map(|field| Lane::of(field.data_type())).collect()
}

/// Rows of a schema of those types; the first column counts from `start`.
pub(crate) fn random_rows(
    schema: &SchemaRef,
    start: u64,
    rows: usize,
    random: &mut fastrand::Rng,
) -> RecordBatch {
    let nulls = random.bool();
    let mut columns: Vec<ArrayRef> =
        vec![Arc::new(UInt64Array::from_iter_values(start..start + rows as u64))];
    for field in &schema.fields()[1..] {
        columns.push(random_array(field.data_type(), rows, nulls, random));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).unwrap()
}

/// Values of a type, extremes among them.
pub(crate) fn random_array(
    data_type: &DataType,
    rows: usize,
    nulls: bool,
    random: &mut fastrand::Rng,
) -> ArrayRef {
    let few = random.bool();
    let random = std::cell::RefCell::new(random);
    let number = || -> Option<i64> {
        let mut random = random.borrow_mut();
        if nulls && random.u8(..) < 60 {
            return None;
        }
        Some(match random.u8(..20) {
            0 => i64::MAX,
            1 => i64::MIN,
            _ if few => random.i64(-3..3),
            _ => random.i64(..),
        })
    };
    let text = || -> Option<Vec<u8>> {
        let number = number()?;
        let bytes = random.borrow_mut().usize(..30);
        Some(format!("{number:x} some text to make it longer").into_bytes()[..bytes].to_vec())
    };
    let string = || text().map(|text| String::from_utf8(text).unwrap());
    macro_rules! primitive {
        ($type:ty) => {
            Arc::new(
                (0..rows)
                    .map(|_| number().map(|value| value as _))
                    .collect::<PrimitiveArray<$type>>(),
            )
        };
    }
    match data_type {
        DataType::Boolean => {
            Arc::new((0..rows).map(|_| number().map(|n| n % 2 == 0)).collect::<BooleanArray>())
        }
        DataType::Int8 => primitive!(Int8Type),
        DataType::Int16 => primitive!(Int16Type),
        DataType::UInt16 => primitive!(UInt16Type),
        DataType::Int32 => primitive!(Int32Type),
        DataType::Date32 => primitive!(Date32Type),
        DataType::Int64 => primitive!(Int64Type),
        DataType::UInt64 => primitive!(UInt64Type),
        DataType::Timestamp(TimeUnit::Microsecond, None) => primitive!(TimestampMicrosecondType),
        DataType::Float32 => primitive!(Float32Type),
        DataType::Float64 => Arc::new(
            (0..rows)
                .map(|_| {
                    number().map(|value| match value {
                        i64::MAX => f64::INFINITY,
                        i64::MIN => f64::NAN,
                        -2 => -0.0,
                        value => value as f64 / 3.0,
                    })
                })
                .collect::<Float64Array>(),
        ),
        DataType::Decimal128(digits, scale) => {
            let values = (0..rows).map(|_| {
                number().map(|value| {
                    if *digits > 18 {
                        i128::from(value) * 1_000_003
                    } else {
                        i128::from(value % 100_000_000)
                    }
                })
            });
            Arc::new(
                values
                    .collect::<Decimal128Array>()
                    .with_precision_and_scale(*digits, *scale)
                    .unwrap(),
            )
        }
        DataType::Decimal64(digits, scale) => {
            let values = (0..rows).map(|_| number().map(|value| value % 100_000));
            let array = values.collect::<PrimitiveArray<Decimal64Type>>();
            Arc::new(array.with_precision_and_scale(*digits, *scale).unwrap())
        }
        DataType::Utf8View => Arc::new((0..rows).map(|_| string()).collect::<StringViewArray>()),
        DataType::Utf8 => Arc::new((0..rows).map(|_| string()).collect::<StringArray>()),
        DataType::LargeUtf8 => Arc::new((0..rows).map(|_| string()).collect::<LargeStringArray>()),
        DataType::BinaryView => Arc::new((0..rows).map(|_| text()).collect::<BinaryViewArray>()),
        DataType::Binary => Arc::new((0..rows).map(|_| text()).collect::<BinaryArray>()),
        DataType::FixedSizeBinary(_) => {
            let values = (0..rows).map(|_| number().map(|n| n.to_le_bytes()[..5].to_vec()));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 5).unwrap())
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let interval = |n: i64| IntervalMonthDayNano::new(n as i32, (n >> 32) as i32, n);
            let values = (0..rows).map(|_| number().map(interval));
            Arc::new(values.collect::<PrimitiveArray<IntervalMonthDayNanoType>>())
        }
        DataType::List(_) => {
            let list = || number().map(|n| vec![Some(n), None, number()]);
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>((0..rows).map(|_| list())))
        }
        DataType::Null => Arc::new(NullArray::new(rows)),
        other => panic!("no values of {other}"),
    }
}

/// A pipeline from a source straight to the result.
pub(crate) fn to_results(source: impl Source + 'static, schema: &SchemaRef) -> (Pipeline, Results) {
    let mut program = Program::default();
    let columns = lanes(schema).into_iter().map(|lane| (program.input(lane), lane)).collect();
    let (output, results) = Output::new(schema.clone(), columns);
    let pipeline =
        Pipeline { source: Box::new(source), program, sink: Box::new(output), after: Vec::new() };
    (pipeline, results)
}

/// A pipeline that loads the tuples at the addresses that a source gives, after the query's first pipeline.
pub(crate) fn loaded(
    source: impl Source + 'static,
    layout: &Arc<Layout>,
    schema: &SchemaRef,
) -> (Pipeline, Results) {
    let mut program = Program::default();
    let tuples = program.input(Lane::U64);
    let mut columns = Vec::new();
    for (field, lane) in lanes(schema).into_iter().enumerate() {
        let out = program.register(lane);
        program.steps.push(Step::Load { tuples, layout: layout.clone(), field, out });
        columns.push((out, lane));
    }
    let (output, results) = Output::new(schema.clone(), columns);
    let (source, sink) = (Box::new(source), Box::new(output));
    (Pipeline { source, program, sink, after: vec![0] }, results)
}

/// Runs pipelines and gives their results.
pub(crate) fn collect(
    context: &Context,
    pipelines: Vec<Pipeline>,
    results: Results,
) -> Result<RecordBatch> {
    let stream = results.of(Query { pipelines }, context);
    let schema = stream.schema();
    let batches: Vec<Result<RecordBatch>> = weft_rt::sync::block_on(stream.collect());
    assert_eq!(context.ledger.used(), 0, "memory is left");
    let batches = batches.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(arrow_select::concat::concat_batches(&schema, &batches).unwrap())
}

/// The rows in the order of the first column, which counts them.
pub(crate) fn in_order(batch: &RecordBatch) -> RecordBatch {
    let keys = batch.column(0).as_any().downcast_ref::<UInt64Array>().unwrap();
    let mut order: Vec<u64> = (0..batch.num_rows() as u64).collect();
    order.sort_by_key(|row| keys.value(*row as usize));
    arrow_select::take::take_record_batch(batch, &UInt64Array::from(order)).unwrap()
}
