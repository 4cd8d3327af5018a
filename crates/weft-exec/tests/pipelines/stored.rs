//! What lies in tables and on pages: native tables under the simulated disk, and materialized tuples.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use weft_exec::pipeline::Pipeline;
use weft_exec::program::{Program, Register, Step};
use weft_exec::query::Context;
use weft_exec::sink::{self, Limit, Shared};
use weft_exec::source::{Batches, StoredTuples, TableScan};
use weft_exec::tuple::Layout;
use weft_exec::{ExecError, Lane, Result};
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{SimDisk, SimFaults, SimOptions};
use weft_rt::memory::Ledger;
use weft_rt::sync::block_on;
use weft_rt::{Runtime, RuntimeOptions};
use weft_store::*;

use crate::rows::{collect, in_order, lanes, loaded, random_rows, to_results};
use crate::spill_context::{assert_nothing_is_left, context as spilling_context, settled, stats};
use crate::support::{cancel_after, contexts, random};

/// Columns of types that leave a table as they went in.
fn table_schema() -> SchemaRef {
    let types = [
        DataType::UInt64,
        DataType::Int32,
        DataType::Int64,
        DataType::Decimal128(15, 2),
        DataType::Decimal128(38, 4),
        DataType::Utf8View,
        DataType::Float64,
        DataType::Boolean,
    ];
    let field = |(n, data_type): (usize, DataType)| Field::new(format!("c{n}"), data_type, n > 0);
    Arc::new(Schema::new(types.into_iter().enumerate().map(field).collect::<Vec<_>>()))
}

/// A table with these rows, on a disk all of whose requests suspend.
fn load(batch: &RecordBatch, workers: usize, seed: u64) -> (Arc<Runtime>, Ledger, Arc<Table>) {
    let disk = SimDisk::new(SimOptions::testing(seed));
    let driver = DriverKind::Sim(disk.clone());
    let options = RuntimeOptions { workers, driver, ..RuntimeOptions::default() };
    let runtime = Arc::new(Runtime::new(&options).unwrap());
    let ledger = Ledger::new(256 << 20);
    let options = StoreOptions { create: true, ..StoreOptions::default() };
    let directory = Directory::Sim(disk, "db".into());
    let store = Store::open(&directory, &options, runtime.clone(), ledger.clone()).unwrap();
    let column = |field: &Arc<Field>| Column {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        nullable: field.is_nullable(),
        default: None,
        max_length: None,
        kind: None,
    };
    let columns = batch.schema().fields().iter().map(column).collect();
    let schema = TableSchema { name: "t".into(), columns };
    let options = WriterOptions { row_group_rows: 9_000, ..WriterOptions::default() };
    let writer = store.writer(&schema, options).unwrap();
    let mut partition = writer.partition(0);
    let groups = block_on(async {
        partition.append(batch.clone()).await?;
        partition.finish().await?;
        writer.finish().await
    });
    let create = Change::CreateTable { schema, or_replace: false };
    let append = Change::Append { table: "t".into(), expected: None, groups: groups.unwrap() };
    let table = store.commit_blocking(vec![create, append]).unwrap().table("t").unwrap();
    (runtime, ledger, table)
}

#[test]
fn tables_come_with_their_predicates_applied() {
    let mut random = random();
    let schema = table_schema();
    for workers in [1, 2, 8] {
        let rows = random_rows(&schema, 0, 30_000, &mut random);
        let (runtime, _, table) = load(&rows, workers, random.u64(..));
        for vector_rows in [7, 2048] {
            let mut context = Context::new(runtime.clone(), Ledger::new(64 << 20));
            context.vector_rows = vector_rows;
            let pivot = random.u64(..30_000);
            let below = Predicate::Compare(Op::Lt, Scalar::UInt(pivot));
            for predicates in [vec![], vec![(0, below.clone())]] {
                let expected = if predicates.is_empty() {
                    rows.clone()
                } else {
                    rows.slice(0, pivot as usize)
                };
                let projection = (0..8).collect();
                let options = ScanOptions { projection, predicates, ..ScanOptions::default() };
                let source = TableScan::new(table.clone(), options, lanes(&schema));
                let stats = source.stats();
                let (pipeline, results) = to_results(source, &schema);
                let got = collect(&context, vec![pipeline], results).unwrap();
                assert_eq!(in_order(&got), expected);
                assert_eq!(stats.get().rows_out as usize, expected.num_rows());
                assert_eq!(stats.get().row_groups, 4);
            }
        }
        // As the scan that goes through a channel, whatever the predicate.
        for _ in 0..2 {
            let pivot = Scalar::Int(random.i64(-4..4));
            let predicates = vec![(2, Predicate::Compare(Op::LtEq, pivot))];
            let projection = (0..8).collect();
            let options = ScanOptions { projection, predicates, ..ScanOptions::default() };
            let mut scan = table.scan(options.clone()).unwrap();
            let batches: Vec<_> =
                std::iter::from_fn(|| scan.next_blocking()).map(|batch| batch.unwrap()).collect();
            let expected = arrow_select::concat::concat_batches(&schema, &batches).unwrap();
            let source = TableScan::new(table.clone(), options, lanes(&schema));
            let (pipeline, results) = to_results(source, &schema);
            let context = Context::new(runtime.clone(), Ledger::new(64 << 20));
            let got = collect(&context, vec![pipeline], results).unwrap();
            assert_eq!(in_order(&got), in_order(&expected));
        }
    }
}

#[test]
fn tables_are_counted_and_numbered() {
    let schema = table_schema();
    let rows = random_rows(&schema, 0, 50_000, &mut fastrand::Rng::with_seed(3));
    let (runtime, _, table) = load(&rows, 2, 3);
    let context = Context::new(runtime, Ledger::new(64 << 20));
    let source = TableScan::new(table.clone(), ScanOptions::default(), Vec::new());
    let (pipeline, results) = to_results(source, &Arc::new(Schema::empty()));
    assert_eq!(collect(&context, vec![pipeline], results).unwrap().num_rows(), 50_000);
    let options = ScanOptions { projection: vec![], with_row_id: true, ..ScanOptions::default() };
    let source = TableScan::new(table, options, vec![Lane::U64]);
    let schema = Arc::new(Schema::new(vec![Field::new("rowid", DataType::UInt64, false)]));
    let (pipeline, results) = to_results(source, &schema);
    let got = in_order(&collect(&context, vec![pipeline], results).unwrap());
    assert_eq!(got.column(0).as_ref(), rows.column(0).as_ref());
    assert!(context.progress.snapshot().rows >= 100_000);
    assert_eq!(context.progress.fraction(), 1.0);
}

#[test]
fn a_limit_stops_the_scan() {
    let schema = table_schema();
    let rows = random_rows(&schema, 0, 200_000, &mut fastrand::Rng::with_seed(3));
    let (runtime, _, table) = load(&rows, 1, 3);
    let mut context = Context::new(runtime, Ledger::new(64 << 20));
    context.io_depth = 2;
    let options = ScanOptions { projection: (0..8).collect(), ..ScanOptions::default() };
    let source = TableScan::new(table, options, lanes(&schema));
    let stats = source.stats();
    let (mut pipeline, results) = to_results(source, &schema);
    pipeline.sink = Box::new(Limit::new(pipeline.sink, 0, Some(10)));
    assert_eq!(collect(&context, vec![pipeline], results).unwrap().num_rows(), 10);
    assert!(stats.get().rows_in < 50_000, "{:?}", stats.get());
}

#[test]
fn cancelled_scans_leave_nothing_behind() {
    let mut random = random();
    let schema = table_schema();
    let rows = random_rows(&schema, 0, 60_000, &mut random);
    let (runtime, store_ledger, table) = load(&rows, 2, random.u64(..));
    for round in 0..20 {
        let context = Context::new(runtime.clone(), Ledger::new(64 << 20));
        let options = ScanOptions { projection: (0..8).collect(), ..ScanOptions::default() };
        let source = TableScan::new(table.clone(), options, lanes(&schema));
        let (pipeline, results) = to_results(source, &schema);
        let canceller = cancel_after(&context, Duration::from_micros(random.u64(..8000)));
        match collect(&context, vec![pipeline], results) {
            Ok(got) => assert_eq!(in_order(&got), rows, "{round}"),
            Err(error) => assert!(matches!(error, ExecError::Cancelled), "{error:?}"),
        }
        canceller.join().unwrap();
    }
    drop((table, runtime));
    assert_eq!(store_ledger.used(), 0, "the store has memory still");
}

/// Stores rows and has two pipelines read them.
fn read_twice(context: &Context, rows: &[RecordBatch], schema: &SchemaRef) -> Result<RecordBatch> {
    let lanes = lanes(schema);
    let layout: Vec<_> = lanes.iter().map(|lane| (*lane, true)).collect();
    let layout = Arc::new(Layout::new(&layout));
    let mut program = Program::default();
    let fields: Vec<Register> = lanes.iter().map(|lane| program.input(*lane)).collect();
    let hash = program.register(Lane::U64);
    program.steps.push(Step::Fill { value: None, out: hash });
    let sink = sink::Store::new(layout.clone(), fields, hash);
    let stored = sink.stored();
    let source = Box::new(Batches::new(rows.to_vec(), lanes));
    let store = Pipeline { source, program, sink: Box::new(sink), after: Vec::new() };
    let (first, results) = loaded(StoredTuples::new(stored.clone()), &layout, schema);
    let (second, _) = loaded(StoredTuples::new(stored), &layout, schema);
    let sinks = Shared::split(first.sink, 2);
    let mut pipelines = vec![store];
    for ((source, program), sink) in
        [(first.source, first.program), (second.source, second.program)].into_iter().zip(sinks)
    {
        pipelines.push(Pipeline { source, program, sink, after: vec![0] });
    }
    collect(context, pipelines, results)
}

fn twice(rows: &[RecordBatch]) -> RecordBatch {
    let both = arrow_select::concat::concat_batches(&rows[0].schema(), rows.iter().chain(rows));
    in_order(&both.unwrap())
}

#[test]
fn stored_tuples_come_back() {
    let mut random = random();
    let schema = crate::rows::schema();
    for context in contexts() {
        let rows = [random_rows(&schema, 0, 10_000, &mut random)];
        let got = read_twice(&context, &rows, &schema).unwrap();
        assert_eq!(in_order(&got), twice(&rows));
    }
}

#[test]
fn stored_tuples_come_back_from_disk() {
    let mut random = random();
    let schema = crate::rows::schema();
    for (workers, bytes) in [(1, 1 << 20), (2, 3 << 20), (8, 10 << 20)] {
        let context = spilling_context(workers, bytes, SimFaults::none());
        let batch = |start| random_rows(&schema, start, 5_000, &mut random);
        let rows: Vec<RecordBatch> = (0..100_000).step_by(5_000).map(batch).collect();
        let got = read_twice(&context, &rows, &schema).unwrap();
        assert_eq!(in_order(&got), twice(&rows), "{workers} workers");
        assert!(stats(&context).written_bytes > 0, "{:?}", stats(&context));
        assert_nothing_is_left(&context);
    }
}

#[test]
fn stored_tuples_that_are_cancelled_leave_nothing_behind() {
    let mut random = random();
    let schema = crate::rows::schema();
    let batch = |start| random_rows(&schema, start, 5_000, &mut random);
    let rows: Vec<RecordBatch> = (0..30_000).step_by(5_000).map(batch).collect();
    for round in 0..20 {
        let context = spilling_context(2, 2 << 20, SimFaults::none());
        let canceller = cancel_after(&context, Duration::from_micros(fastrand::u64(..20_000)));
        let got = read_twice(&context, &rows, &schema);
        canceller.join().unwrap();
        match got {
            Ok(got) => assert_eq!(in_order(&got), twice(&rows), "{round}"),
            Err(error) => assert!(matches!(error, ExecError::Cancelled), "{error:?}"),
        }
        settled(&context);
    }
}
