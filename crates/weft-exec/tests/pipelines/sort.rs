//! Sorts and top-k against a sort of the rows' keys by Arrow.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, Float32Array, Float64Array, RecordBatch};
use arrow_row::{OwnedRow, RowConverter, SortField};
use arrow_schema::{DataType, SchemaRef, SortOptions};
use weft_exec::pipeline::{Pipeline, Sink};
use weft_exec::program::{Program, Register};
use weft_exec::query::Context;
use weft_exec::sink::{Limit, Results};
use weft_exec::sort::{Order, Sort, SortKey, Sorted, SortedTuples, TopK};
use weft_exec::source::Batches;
use weft_exec::tuple::Layout;
use weft_exec::{ExecError, Lane, Result};
use weft_rt::memory::Ledger;

use crate::rows::{collect, in_order, lanes, loaded, random_rows, schema};
use crate::support::{cancel_after, contexts, random, runtime};

/// The pipelines of a sort of all columns; `most` rows of it after `skip` if they are given.
pub(crate) fn sorting(
    batches: Vec<RecordBatch>,
    schema: &SchemaRef,
    keys: &[SortKey],
    first: Option<(usize, usize)>,
) -> (Vec<Pipeline>, Results) {
    let lanes = lanes(schema);
    let nullable = schema.fields().iter().map(|field| field.is_nullable());
    let fields: Vec<_> = lanes.iter().copied().zip(nullable).collect();
    let layout = Arc::new(Layout::new(&fields));
    let mut program = Program::default();
    let inputs: Vec<Register> = lanes.iter().map(|lane| program.input(*lane)).collect();
    let bits = program.register(Lane::U64);
    let order = Order::new(layout.clone(), keys.to_vec());
    let (sink, sorted): (Box<dyn Sink>, Arc<OnceLock<Sorted>>) = match first {
        None => {
            let sort = Sort::new(order, inputs, bits);
            let sorted = sort.sorted();
            (Box::new(sort), sorted)
        }
        Some((skip, fetch)) if fetch > 20_000 => {
            let sort = Sort::first(order, inputs, bits, skip + fetch);
            let sorted = sort.sorted();
            (Box::new(sort), sorted)
        }
        Some((skip, fetch)) => {
            let top = TopK::new(order, inputs, bits, skip + fetch);
            let sorted = top.sorted();
            (Box::new(top), sorted)
        }
    };
    let source = Box::new(Batches::new(batches, lanes.clone()));
    let sort = Pipeline { source, program, sink, after: Vec::new() };
    let (mut load, results) = loaded(SortedTuples::new(sorted), &layout, schema);
    if let Some((skip, fetch)) = first {
        load.sink = Box::new(Limit::new(load.sink, skip as u64, Some(fetch as u64)));
    }
    (vec![sort, load], results)
}

/// The keys of each row as bytes that have the order.
pub(crate) fn keys_of(batch: &RecordBatch, keys: &[SortKey]) -> Vec<OwnedRow> {
    let field = |key: &SortKey| {
        let data_type = batch.column(key.field).data_type().clone();
        let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
        SortField::new_with_options(data_type, options)
    };
    let converter = RowConverter::new(keys.iter().map(field).collect()).unwrap();
    // Arrow tells -0.0 from 0.0.
    let columns: Vec<ArrayRef> = keys
        .iter()
        .map(|key| -> ArrayRef {
            let column = batch.column(key.field);
            match column.data_type() {
                DataType::Float64 => {
                    let values = column.as_primitive::<Float64Type>().iter();
                    Arc::new(values.map(|v| v.map(|v| v + 0.0)).collect::<Float64Array>())
                }
                DataType::Float32 => {
                    let values = column.as_primitive::<Float32Type>().iter();
                    Arc::new(values.map(|v| v.map(|v| v + 0.0)).collect::<Float32Array>())
                }
                _ => column.clone(),
            }
        })
        .collect();
    converter.convert_columns(&columns).unwrap().iter().map(|row| row.owned()).collect()
}

pub(crate) fn random_keys(schema: &SchemaRef, random: &mut fastrand::Rng) -> Vec<SortKey> {
    let has_order = |field: &usize| {
        let data_type = schema.field(*field).data_type();
        !Lane::is_row_encoded(data_type) && !matches!(data_type, DataType::Interval(_))
    };
    let fields: Vec<usize> = (0..schema.fields().len()).filter(has_order).collect();
    (0..random.usize(1..4))
        .map(|_| SortKey {
            field: fields[random.usize(..fields.len())],
            descending: random.bool(),
            nulls_first: random.bool(),
            bounds: None,
        })
        .collect()
}

/// The keys with the bounds of their values in these rows, where they are integers.
fn bounded(keys: Vec<SortKey>, rows: &RecordBatch) -> Vec<SortKey> {
    let bounds = |field: usize| {
        let column = rows.column(field);
        least_and_greatest::<Int8Type>(column)
            .or_else(|| least_and_greatest::<Int16Type>(column))
            .or_else(|| least_and_greatest::<Int32Type>(column))
            .or_else(|| least_and_greatest::<Int64Type>(column))
            .or_else(|| least_and_greatest::<UInt32Type>(column))
            .or_else(|| least_and_greatest::<UInt64Type>(column))
    };
    keys.into_iter().map(|key| SortKey { bounds: bounds(key.field), ..key }).collect()
}

fn least_and_greatest<T: ArrowPrimitiveType>(column: &ArrayRef) -> Option<(i128, i128)>
where
    T::Native: Into<i128>,
{
    let values = column.as_primitive_opt::<T>()?.iter().flatten().map(Into::into);
    values.fold(None, |bounds: Option<(i128, i128)>, value: i128| match bounds {
        Some((low, high)) => Some((low.min(value), high.max(value))),
        None => Some((value, value)),
    })
}

#[test]
fn rows_come_in_their_order() {
    let mut random = random();
    let schema = schema();
    for context in contexts() {
        for rows in [0, 1, 3000] {
            let batches = [
                random_rows(&schema, 0, rows, &mut random),
                random_rows(&schema, rows as u64, rows, &mut random),
            ];
            let all = arrow_select::concat::concat_batches(&schema, &batches).unwrap();
            for _ in 0..3 {
                let mut keys = random_keys(&schema, &mut random);
                if random.bool() {
                    keys = bounded(keys, &all);
                }
                let mut expected = keys_of(&all, &keys);
                expected.sort();
                let (pipelines, results) = sorting(batches.to_vec(), &schema, &keys, None);
                let got = collect(&context, pipelines, results).unwrap();
                assert_eq!(keys_of(&got, &keys), expected, "{keys:?}");
                assert_eq!(in_order(&got), all, "every row, unchanged");
                let (skip, fetch) = (random.usize(..5), [0, 1, 10, 700][random.usize(..4)]);
                let (pipelines, results) =
                    sorting(batches.to_vec(), &schema, &keys, Some((skip, fetch)));
                let got = collect(&context, pipelines, results).unwrap();
                let end = (skip + fetch).min(expected.len());
                assert_eq!(keys_of(&got, &keys), expected[skip.min(end)..end], "{keys:?}");
            }
        }
    }
}

#[test]
fn many_rows_are_merged_and_thinned_out() {
    let mut random = random();
    let whole = schema();
    let columns = [0, 6, 9, 13, 4];
    let schema = Arc::new(whole.project(&columns).unwrap());
    for workers in [1, 3] {
        let context = Context::new(runtime(workers), Ledger::new(256 << 20));
        let batches: Vec<_> = (0..4u64)
            .map(|n| {
                random_rows(&whole, n * 25_000, 25_000, &mut random).project(&columns).unwrap()
            })
            .collect();
        let all = arrow_select::concat::concat_batches(&schema, &batches).unwrap();
        for keys in [
            vec![SortKey { field: 0, descending: true, nulls_first: false, bounds: None }],
            random_keys(&schema, &mut random),
            bounded(random_keys(&schema, &mut random), &all),
            vec![
                SortKey { field: 3, descending: false, nulls_first: true, bounds: None },
                SortKey { field: 1, descending: true, nulls_first: false, bounds: None },
            ],
        ] {
            let mut expected = keys_of(&all, &keys);
            expected.sort();
            for first in [None, Some((0, 5)), Some((3, 5000)), Some((0, 200_000))] {
                let (pipelines, results) = sorting(batches.clone(), &schema, &keys, first);
                let got = collect(&context, pipelines, results).unwrap();
                let (skip, fetch) = first.unwrap_or((0, usize::MAX));
                let end = skip.saturating_add(fetch).min(expected.len());
                assert_eq!(keys_of(&got, &keys), expected[skip..end], "{keys:?} {first:?}");
                let ids = got.column(0).as_primitive::<UInt64Type>().values();
                let different: std::collections::HashSet<_> = ids.iter().collect();
                assert_eq!(different.len(), ids.len(), "each row once");
            }
        }
    }
}

#[test]
fn cancelled_sorts_leave_nothing_behind() {
    let mut random = random();
    let schema = Arc::new(schema().project(&[0, 13, 6]).unwrap());
    let rows = random_rows(&crate::rows::schema(), 0, 60_000, &mut random);
    let rows = rows.project(&[0, 13, 6]).unwrap();
    let runtime = runtime(2);
    for _ in 0..30 {
        let context = Context::new(runtime.clone(), Ledger::new(256 << 20));
        let keys = vec![SortKey { field: 1, descending: false, nulls_first: false, bounds: None }];
        let (pipelines, results) = sorting(vec![rows.clone()], &schema, &keys, None);
        let canceller = cancel_after(&context, Duration::from_micros(random.u64(..60_000)));
        match collect(&context, pipelines, results) {
            Ok(got) => assert_eq!(got.num_rows(), 60_000),
            Err(error) => assert!(matches!(error, ExecError::Cancelled), "{error:?}"),
        }
        canceller.join().unwrap();
    }
}

#[test]
fn a_sort_says_that_it_has_no_memory() {
    let schema = Arc::new(schema().project(&[0]).unwrap());
    let rows = random_rows(&crate::rows::schema(), 0, 60_000, &mut random());
    let rows = rows.project(&[0]).unwrap();
    for limit in [100 << 10, 2 << 20, 3 << 20] {
        let context = Context::new(runtime(2), Ledger::new(limit));
        let keys = vec![SortKey { field: 0, descending: true, nulls_first: false, bounds: None }];
        let (pipelines, results) = sorting(vec![rows.clone()], &schema, &keys, None);
        let result: Result<RecordBatch> = collect(&context, pipelines, results);
        assert!(matches!(result, Err(ExecError::Memory { .. })), "{limit}: {result:?}");
        let (pipelines, results) = sorting(vec![rows.clone()], &schema, &keys, Some((0, 10)));
        if limit > 1 << 20 {
            let got = collect(&context, pipelines, results).unwrap();
            let expected: Vec<u64> = (59_990..60_000).rev().collect();
            assert_eq!(got.column(0).as_primitive::<UInt64Type>().values(), &expected[..]);
        }
    }
}
