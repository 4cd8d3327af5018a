//! Queries that spill: one aggregation after the other, two queries at once, cancellation at any time.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use futures::StreamExt;
use weft_exec::aggregate::{self, Aggregate, Aggregation, Function, Keys};
use weft_exec::pipeline::Pipeline;
use weft_exec::profile::{PartName, Parts, Profile};
use weft_exec::program::{Program, Register};
use weft_exec::query::{Context, Query};
use weft_exec::sink::{Output, Results};
use weft_exec::source::Batches;
use weft_exec::{ExecError, Lane, Result};
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{SimClock, SimDisk, SimOptions};
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};
use weft_store::Directory;
use weft_store::spill::SpillArea;

use crate::spill_compression::spilling;
use crate::support::{cancel_after, random};

const MIB: u64 = 1 << 20;
const LANES: [Lane; 2] = [Lane::I64, Lane::Str];

/// A context on a simulated disk, on which every request suspends. Several workers go by the machine's clock: simulated time
/// would end their patience before others have had a turn.
fn context(workers: usize, bytes: u64) -> Context {
    let clock = if workers == 1 { SimClock::Virtual } else { SimClock::Real };
    let disk = SimDisk::new(SimOptions { clock, ..SimOptions::testing(bytes) });
    let driver = DriverKind::Sim(disk.clone());
    let options = RuntimeOptions { workers, driver, ..RuntimeOptions::default() };
    let mut context = Context::new(Arc::new(Runtime::new(&options).unwrap()), Ledger::new(bytes));
    let area = SpillArea::new(vec![Directory::Sim(disk, "spill".into())], 1 << 40);
    context.spilling = Some(spilling(area));
    context
}

fn schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("n", DataType::Int64),
        field("rows", DataType::Int64),
        field("s", DataType::Utf8View),
    ]))
}

/// Rows of a number, one of `groups`, and a text.
fn rows(rows: i64, groups: i64) -> Vec<RecordBatch> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("s", DataType::Utf8View, false),
    ]));
    let batch = |start: i64| {
        let numbers = (start..rows.min(start + 4_000)).map(|row| row * 7_919 % groups);
        let texts = numbers.clone().map(|n| format!("a text that is somewhat long: {n}"));
        let numbers = Arc::new(Int64Array::from_iter_values(numbers));
        let texts = Arc::new(StringViewArray::from_iter_values(texts));
        RecordBatch::try_new(schema.clone(), vec![numbers, texts]).unwrap()
    };
    (0..rows).step_by(4_000).map(batch).collect()
}

/// Counts the rows of each number, or sums them up, and finds the least text.
fn grouped(program: &mut Program, rows: Option<Register>, text: Register) -> Arc<Aggregation> {
    let set = Keys::new(program, vec![Register(0)]);
    let count = match rows {
        None => Aggregate {
            is_nullable: false,
            ..Aggregate::new(Function::Count, Vec::new(), Lane::I64)
        },
        Some(rows) => Aggregate::new(Function::Sum, vec![rows], Lane::I64),
    };
    let least = Aggregate::new(Function::Min, vec![text], Lane::Str);
    Aggregation::by_keys(program, &[(Lane::I64, false)], vec![set], &[count, least], Vec::new())
}

/// Groups rows, and groups the groups again: the source of the second spills while its sink does.
fn pipelines(batches: Vec<RecordBatch>) -> (Vec<Pipeline>, Results) {
    let columns = vec![
        aggregate::Output::Key(0),
        aggregate::Output::Aggregate(0),
        aggregate::Output::Aggregate(1),
    ];
    let mut program = Program::default();
    for lane in LANES {
        program.input(lane);
    }
    let first = grouped(&mut program, None, Register(1));
    let source = Box::new(Batches::new(batches, LANES.to_vec()));
    let scan = Pipeline { source, program, sink: first.sink(), after: Vec::new() };
    let inputs = [Lane::I64, Lane::I64, Lane::Str];
    let mut program = Program::default();
    for lane in inputs {
        program.input(lane);
    }
    let second = grouped(&mut program, Some(Register(1)), Register(2));
    let source = first.source(columns.clone());
    let again = Pipeline { source, program, sink: second.sink(), after: vec![0] };
    let mut program = Program::default();
    let registers = inputs.iter().map(|lane| (program.input(*lane), *lane)).collect();
    let (output, results) = Output::new(schema(), registers);
    let source = second.source(columns);
    let give = Pipeline { source, program, sink: Box::new(output), after: vec![1] };
    (vec![scan, again, give], results)
}

fn run(context: &Context, batches: Vec<RecordBatch>) -> Result<Vec<(i64, i64, String)>> {
    let (pipelines, results) = pipelines(batches);
    let mut context = context.clone();
    context.turn = Arc::default();
    let stream = results.of(Query { pipelines }, &context);
    let batches: Vec<Result<RecordBatch>> = weft_rt::sync::block_on(stream.collect());
    let mut found = Vec::new();
    for batch in batches.into_iter().collect::<Result<Vec<_>>>()? {
        let (numbers, rows) = (batch.column(0), batch.column(1));
        let (numbers, rows) =
            (numbers.as_primitive::<Int64Type>(), rows.as_primitive::<Int64Type>());
        let texts = batch.column(2).as_string_view();
        for row in 0..batch.num_rows() {
            found.push((numbers.value(row), rows.value(row), texts.value(row).to_owned()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn assert_nothing_is_left(context: &Context) {
    assert_eq!(context.ledger.used(), 0, "memory");
    let stats = context.spilling.as_ref().unwrap().area().stats();
    assert_eq!((stats.used_bytes, stats.file_bytes), (0, 0), "space");
}

fn check(found: &[(i64, i64, String)], rows: i64, groups: i64) {
    assert_eq!(found.len() as i64, groups);
    for (at, (number, count, text)) in found.iter().enumerate() {
        assert_eq!((*number, *count), (at as i64, rows / groups));
        assert_eq!(*text, format!("a text that is somewhat long: {number}"));
    }
}

#[test]
fn aggregations_that_spill_follow_each_other() {
    for (workers, megabytes) in [(1, 5), (2, 6), (8, 16)] {
        let context = context(workers, megabytes * MIB);
        check(&run(&context, rows(40_000, 40_000)).unwrap(), 40_000, 40_000);
        check(&run(&context, rows(40_000, 10_000)).unwrap(), 40_000, 10_000);
        // One of eight may have done all the work, with room enough.
        let spilled_bytes = context.progress.snapshot().spilled_bytes;
        assert!(spilled_bytes > 0 || workers == 8);
        assert_nothing_is_left(&context);
    }
}

/// Most of what the first has gathered takes just about all that there is: its groups are merged beside the second all the same.
#[test]
fn an_aggregation_that_just_fits_makes_room_for_the_next() {
    for kib in (5_632..=7_168).step_by(128) {
        let context = context(2, kib << 10);
        check(&run(&context, rows(40_000, 40_000)).unwrap(), 40_000, 40_000);
        assert_nothing_is_left(&context);
    }
}

#[test]
fn what_pipelines_have_done_is_measured() {
    // The groups of all rows outgrow the limit in any division of the rows among the workers, also where one has them all.
    let mut context = context(2, 6 * MIB);
    let profiles = (0..3).map(|_| Arc::new(Profile::new(Parts::default())));
    context.profiles = profiles.collect();
    let whole = context.ledger.clone();
    let (ledger, tally) = context.ledger.tallied();
    context.ledger = ledger;
    check(&run(&context, rows(80_000, 80_000)).unwrap(), 80_000, 80_000);
    let profiles = &context.profiles;
    for (number, profile) in profiles.iter().enumerate() {
        let (source, sink) = (profile.part(PartName::Source), profile.part(PartName::Sink));
        assert_eq!((source.rows_out, sink.rows_in), (80_000, 80_000), "pipeline {number}");
        let done = profile.done();
        assert!(done.began < done.ended && done.cpu >= (source.cpu + sink.cpu).mul_f64(0.99));
        assert!(source.cpu > Duration::ZERO && sink.cpu > Duration::ZERO, "{source:?} {sink:?}");
    }
    let spilled: u64 = profiles.iter().map(|profile| profile.spilled().raw_bytes()).sum();
    let pages = profiles.iter().flat_map(|profile| profile.spilled().levels_over_time());
    let pages: u64 = pages.flatten().sum();
    assert!(spilled > 0 && pages > 0 && spilled >= pages * 4096, "{spilled} bytes, {pages} pages");
    let written: u64 = profiles.iter().map(|profile| profile.spilled().written_bytes()).sum();
    let progress = context.progress.snapshot();
    assert_eq!((progress.spilled_bytes_raw, progress.spilled_bytes), (spilled, written));
    assert_eq!(context.progress.fraction(), 1.0);
    let facts = profiles[0].facts(PartName::Sink);
    assert!(facts.iter().any(|fact| fact.name == "partitions on disk"), "{facts:?}");
    assert!(tally.bytes() == 0 && (MIB..=6 * MIB).contains(&tally.peak()), "{tally:?}");
    assert_eq!(whole.used(), 0);
    assert_nothing_is_left(&context);
}

/// At a limit that fits one of them, all end. (Who waits for long by the machine's clock goes on without: time must not fly.)
#[test]
fn queries_that_spill_do_not_wait_for_each_other() {
    for (workers, megabytes, queries) in [(1, 6, 3), (2, 8, 3), (2, 8, 9)] {
        let context = context(workers, megabytes * MIB);
        std::thread::scope(|scope| {
            let query = || check(&run(&context, rows(30_000, 30_000)).unwrap(), 30_000, 30_000);
            for _ in 0..queries {
                scope.spawn(query);
            }
        });
        assert_nothing_is_left(&context);
    }
}

#[test]
fn cancellation_while_spilling_leaves_nothing_behind() {
    let mut random = random();
    for round in 0..30 {
        let context = context([1, 2, 8][round % 3], [5, 6, 16][round % 3] * MIB);
        let batches = rows(20_000, 20_000);
        let canceller = cancel_after(&context, Duration::from_micros(random.u64(..600_000)));
        match run(&context, batches) {
            Ok(found) => check(&found, 20_000, 20_000),
            Err(error) => assert!(matches!(error, ExecError::Cancelled), "{error:?}"),
        }
        assert_nothing_is_left(&context);
        canceller.join().unwrap();
    }
}
