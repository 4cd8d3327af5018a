//! How fast pipelines are: rows per second of a scan with a filter and a sum, against a hand-written loop over the same
//! arrays, and of sorts and top-k.
//!
//! `cargo run --release -p weft-exec --example pipeline_speed [rows] [workers]`; medians of 5 runs.

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use weft_exec::pipeline::{Flow, LocalSink, Pipeline, Sink, Source};
use weft_exec::program::{Comparison, Constant, Operand, Program, Register, Step};
use weft_exec::query::{Context, Query};
use weft_exec::registers::Registers;
use weft_exec::sort::{Order, Sort, SortKey, Sorted, SortedTuples, TopK};
use weft_exec::source::{Batches, TableScan};
use weft_exec::tuple::Layout;
use weft_exec::{Lane, Result};
use weft_rt::memory::Ledger;
use weft_rt::sync::block_on;
use weft_rt::{Runtime, RuntimeOptions};
use weft_store::{
    Change, Column, Directory, Op, Predicate, Scalar, ScanOptions, Store, StoreOptions, Table,
    TableSchema, WriterOptions,
};

/// Of a column whose values are from 0 to 99, what the filter lets through.
const BELOW: i64 = 60;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows: usize = arguments.next().map_or(Ok(10_000_000), |rows| rows.parse())?;
    let workers: usize = arguments.next().map_or(Ok(1), |workers| workers.parse())?;
    let options = RuntimeOptions { workers, ..RuntimeOptions::default() };
    let runtime = Arc::new(Runtime::new(&options)?);
    let context = Context::new(runtime.clone(), Ledger::new(8 << 30));
    println!("{rows} rows, {workers} workers");
    let batches = batches(rows);

    let by_hand = rate(rows, || black_box(sum_by_hand(&batches)));
    print("sum where, by hand, one thread", by_hand, by_hand);
    let batch_rate = rate(rows, || {
        let source = Batches::new(batches.clone(), vec![Lane::I64, Lane::I64, Lane::Str]);
        assert_eq!(sum(&context, source, 3), sum_by_hand(&batches));
    });
    print("sum where, record batches", batch_rate, by_hand);

    let directory = std::env::temp_dir().join(format!("pipeline_speed-{}", std::process::id()));
    let table = load(&directory, &runtime, &context.ledger, &batches)?;
    let scan = |predicates| {
        let options = ScanOptions { projection: vec![0, 1], predicates, ..ScanOptions::default() };
        TableScan::new(table.clone(), options, vec![Lane::I64, Lane::I64])
    };
    let table_rate = rate(rows, || {
        assert_eq!(sum(&context, scan(vec![]), 2), sum_by_hand(&batches));
    });
    print("sum where, table, hot", table_rate, by_hand);
    let pushed_rate = rate(rows, || {
        let below = vec![(0, Predicate::Compare(Op::Lt, Scalar::Int(BELOW)))];
        assert_eq!(sum(&context, scan(below), 2), sum_by_hand(&batches));
    });
    print("sum where, table, filter in the scan", pushed_rate, by_hand);
    drop(table);
    std::fs::remove_dir_all(&directory)?;

    let sorted = rate(rows, || {
        let mut values: Vec<(i64, usize)> = Vec::with_capacity(rows);
        for batch in &batches {
            values.extend(
                batch
                    .column(1)
                    .as_primitive::<Int64Type>()
                    .values()
                    .iter()
                    .zip(0..)
                    .map(|(v, n)| (*v, n)),
            );
        }
        values.sort_unstable();
        black_box(values.len());
    });
    print("sort of pairs by hand, one thread", sorted, sorted);
    for (name, field, first) in [
        ("sort by an integer", 1, None),
        ("sort by a few integers", 0, None),
        ("sort by a string", 2, None),
        ("first 100 by an integer", 1, Some(100)),
        ("first 10,000 by a string", 2, Some(10_000)),
    ] {
        let rate = rate(rows, || sort(&context, &batches, field, first));
        print(name, rate, sorted);
    }
    Ok(())
}

/// Rows per second, the median of 5 runs.
fn rate<T>(rows: usize, mut work: impl FnMut() -> T) -> f64 {
    let mut seconds: Vec<f64> = (0..5)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    rows as f64 / seconds[2]
}

fn print(what: &str, rate: f64, baseline: f64) {
    println!("{what:<40} {:>8.1} M rows/s  {:>5.2} of by hand", rate / 1e6, rate / baseline);
}

fn schema() -> SchemaRef {
    let field = |name, data_type| Field::new(name, data_type, false);
    Arc::new(Schema::new(vec![
        field("few", DataType::Int64),
        field("number", DataType::Int64),
        field("text", DataType::Utf8View),
    ]))
}

fn batches(rows: usize) -> Vec<RecordBatch> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut batches = Vec::new();
    for start in (0..rows).step_by(65_536) {
        let rows = 65_536.min(rows - start);
        let few: ArrayRef =
            Arc::new(Int64Array::from_iter_values((0..rows).map(|_| random.i64(..100))));
        let number: ArrayRef =
            Arc::new(Int64Array::from_iter_values((0..rows).map(|_| random.i64(..1 << 40))));
        let text = (0..rows).map(|_| format!("Customer#{:09}", random.u32(..100_000_000)));
        let text: ArrayRef = Arc::new(StringViewArray::from_iter_values(text));
        batches
            .push(RecordBatch::try_new(schema(), vec![few, number, text]).expect("as the schema"));
    }
    batches
}

fn sum_by_hand(batches: &[RecordBatch]) -> i64 {
    let mut sum = 0;
    for batch in batches {
        let few = batch.column(0).as_primitive::<Int64Type>().values();
        let number = batch.column(1).as_primitive::<Int64Type>().values();
        for (few, number) in few.iter().zip(number) {
            sum += if *few < BELOW { *number } else { 0 };
        }
    }
    sum
}

/// The sum of the second of so many columns, where the first is below the bound.
fn sum(context: &Context, source: impl Source + 'static, columns: usize) -> i64 {
    let mut program = Program::default();
    let few = program.input(Lane::I64);
    let number = program.input(Lane::I64);
    if columns > 2 {
        program.input(Lane::Str);
    }
    let condition = program.register(Lane::Bool);
    let bound = Operand::Constant(Constant::I64(BELOW));
    let (op, a) = (Comparison::Less, Operand::Register(few));
    program.steps.push(Step::Compare { op, a, b: bound, out: condition });
    program.steps.push(Step::Filter { condition });
    let total = Arc::new(AtomicI64::new(0));
    let sink = Box::new(Sum { number, total: total.clone() });
    let pipeline = Pipeline { source: Box::new(source), program, sink, after: Vec::new() };
    block_on(Query { pipelines: vec![pipeline] }.run(context)).expect("nothing that fails");
    total.load(Ordering::Relaxed)
}

#[derive(Debug)]
struct Sum {
    number: Register,
    total: Arc<AtomicI64>,
}

struct LocalSum {
    number: Register,
    sum: i64,
    total: Arc<AtomicI64>,
}

impl Sink for Sum {
    fn local(&self, _: &Context, _: usize) -> Result<Box<dyn LocalSink>> {
        Ok(Box::new(LocalSum { number: self.number, sum: 0, total: self.total.clone() }))
    }
}

impl LocalSink for LocalSum {
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        let values = registers.values::<i64>(self.number);
        registers.selected().for_each(|row| self.sum += values[row]);
        async { Ok(Flow::More) }.boxed_local()
    }

    fn end(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        self.total.fetch_add(self.sum, Ordering::Relaxed);
        async { Ok(()) }.boxed_local()
    }
}

/// Sorts all columns by one of them, or finds the first rows, and counts what comes out.
fn sort(context: &Context, batches: &[RecordBatch], field: usize, first: Option<usize>) {
    let lanes = [Lane::I64, Lane::I64, Lane::Str];
    let layout = Arc::new(Layout::new(&lanes.map(|lane| (lane, false))));
    let mut program = Program::default();
    let fields: Vec<Register> = lanes.iter().map(|lane| program.input(*lane)).collect();
    let bits = program.register(Lane::U64);
    let key = SortKey { field, descending: true, nulls_first: false, bounds: None };
    let order = Order::new(layout.clone(), vec![key]);
    let (sink, sorted): (Box<dyn Sink>, Arc<OnceLock<Sorted>>) = match first {
        Some(first) => {
            let top = TopK::new(order, fields, bits, first);
            let sorted = top.sorted();
            (Box::new(top), sorted)
        }
        None => {
            let sort = Sort::new(order, fields, bits);
            let sorted = sort.sorted();
            (Box::new(sort), sorted)
        }
    };
    let source = Box::new(Batches::new(batches.to_vec(), lanes.to_vec()));
    let gather = Pipeline { source, program, sink, after: Vec::new() };
    let mut program = Program::default();
    let tuples = program.input(Lane::U64);
    let number = program.register(Lane::I64);
    program.steps.push(Step::Load { tuples, layout, field: 1, out: number });
    let total = Arc::new(AtomicI64::new(0));
    let sink = Box::new(Sum { number, total: total.clone() });
    let source = Box::new(SortedTuples::new(sorted));
    let give = Pipeline { source, program, sink, after: vec![0] };
    block_on(Query { pipelines: vec![gather, give] }.run(context)).expect("enough memory");
    assert!(total.load(Ordering::Relaxed) != 0);
}

/// A table with these rows.
fn load(
    directory: &std::path::Path,
    runtime: &Arc<Runtime>,
    ledger: &Ledger,
    batches: &[RecordBatch],
) -> std::result::Result<Arc<Table>, Box<dyn Error>> {
    let options = StoreOptions { create: true, ..StoreOptions::default() };
    let place = Directory::Os(directory.into());
    let store = Store::open(&place, &options, runtime.clone(), ledger.clone())?;
    let fields = schema();
    let column = |field: &Arc<Field>| Column {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        nullable: field.is_nullable(),
        default: None,
        max_length: None,
        kind: None,
    };
    let columns = fields.fields().iter().map(column).collect();
    let schema = TableSchema { name: "t".into(), columns };
    let writer = store.writer(&schema, WriterOptions::default())?;
    let mut partition = writer.partition(0);
    let groups = block_on(async {
        for batch in batches {
            partition.append(batch.clone()).await?;
        }
        partition.finish().await?;
        writer.finish().await
    })?;
    let create = Change::CreateTable { schema, or_replace: false };
    let append = Change::Append { table: "t".into(), expected: None, groups };
    Ok(store.commit_blocking(vec![create, append])?.table("t").ok_or("the table is there")?)
}
