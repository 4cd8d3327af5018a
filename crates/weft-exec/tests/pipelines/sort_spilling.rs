//! Sorts and top-k that outgrow memory: their rows are those of a sort in memory, and nothing is left behind, whatever
//! happens.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures::StreamExt;
use weft_exec::query::{Context, Query};
use weft_exec::sort::SortKey;
use weft_exec::{ExecError, Result};
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimClock, SimDisk, SimFaults, SimOptions};
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};
use weft_store::Directory;
use weft_store::spill::SpillArea;

use crate::rows::{collect, in_order, random_rows};
use crate::sort::{keys_of, random_keys, sorting};
use crate::spill_compression::spilling;
use crate::support::{cancel_after, random};

const KIB: u64 = 1 << 10;

/// A context on a simulated disk, on which every request suspends. Several workers go by the machine's clock: simulated time
/// would end their patience before others have had a turn.
fn context(workers: usize, bytes: u64, vector_rows: usize) -> (Context, SimDisk) {
    let clock = if workers == 1 { SimClock::Virtual } else { SimClock::Real };
    let disk = SimDisk::new(SimOptions { clock, ..SimOptions::testing(bytes) });
    let driver = DriverKind::Sim(disk.clone());
    let options = RuntimeOptions { workers, driver, ..RuntimeOptions::default() };
    let mut context = Context::new(Arc::new(Runtime::new(&options).unwrap()), Ledger::new(bytes));
    context.vector_rows = vector_rows;
    let area = SpillArea::new(vec![Directory::Sim(disk.clone(), "spill".into())], 1 << 40);
    context.spilling = Some(spilling(area));
    (context, disk)
}

/// Workers, memory, and the size of vectors.
const CASES: [(usize, u64, usize); 5] = [
    (1, 600 * KIB, 2048),
    (2, 1024 * KIB, 2048),
    (8, 4096 * KIB, 2048),
    (1, 256 * KIB, 500),
    (2, 3000 * KIB, 7),
];

fn rows(
    schema: &SchemaRef,
    columns: &[usize],
    rows: usize,
    random: &mut fastrand::Rng,
) -> Vec<RecordBatch> {
    (0..rows)
        .step_by(5_000)
        .map(|start| {
            let batch = random_rows(schema, start as u64, 5_000.min(rows - start), random);
            batch.project(columns).unwrap()
        })
        .collect()
}

fn assert_nothing_is_left(context: &Context) {
    assert_eq!(context.ledger.used(), 0, "memory");
    let stats = context.spilling.as_ref().unwrap().area().stats();
    assert_eq!((stats.used_bytes, stats.file_bytes), (0, 0), "space");
}

#[test]
fn rows_that_outgrow_memory_come_in_their_order() {
    let mut random = random();
    let whole = crate::rows::schema();
    let columns = [0, 13, 6, 9, 10, 1];
    let schema = Arc::new(whole.project(&columns).unwrap());
    for (workers, bytes, vector_rows) in CASES {
        let batches = rows(&whole, &columns, 40_000, &mut random);
        let all = arrow_select::concat::concat_batches(&schema, &batches).unwrap();
        let by = |field, descending| SortKey { field, descending, ..SortKey::default() };
        for keys in [
            vec![by(0, true)],
            random_keys(&schema, &mut random),
            vec![by(1, false), by(0, true)],
            vec![by(5, true)],
        ] {
            for first in
                [None, Some((10, 25_000)), Some((0, 15_000)), Some((5, 3_000)), Some((39_990, 100))]
            {
                let (context, _) = context(workers, bytes, vector_rows);
                let mut expected = keys_of(&all, &keys);
                expected.sort();
                let (pipelines, results) = sorting(batches.clone(), &schema, &keys, first);
                let got = collect(&context, pipelines, results);
                let got = got.unwrap_or_else(|error| {
                    panic!("{workers} {bytes} {keys:?} {first:?}: {error:?}")
                });
                let (skip, fetch) = first.unwrap_or((0, usize::MAX));
                let end = skip.saturating_add(fetch).min(expected.len());
                assert_eq!(keys_of(&got, &keys), expected[skip..end], "{keys:?} {first:?}");
                let ids = in_order(&got);
                if first.is_none() {
                    assert_eq!(ids, all, "every row, unchanged");
                    assert!(context.progress.snapshot().spilled_bytes > 0, "{workers} {bytes}");
                }
                assert_nothing_is_left(&context);
            }
        }
    }
}

/// Rows whose keys all begin with the same bytes, and come in order or the other way round.
#[test]
fn rows_that_are_sorted_already_come_in_their_order() {
    let mut random = random();
    let whole = crate::rows::schema();
    let schema = Arc::new(whole.project(&[0, 13]).unwrap());
    let batches = rows(&whole, &[0, 13], 60_000, &mut random);
    let all = arrow_select::concat::concat_batches(&schema, &batches).unwrap();
    for descending in [false, true] {
        let keys = vec![SortKey { field: 0, descending, ..SortKey::default() }];
        let (context, _) = context(2, 1024 * KIB, 2048);
        let (pipelines, results) = sorting(batches.clone(), &schema, &keys, None);
        let got = collect(&context, pipelines, results).unwrap();
        let mut expected = keys_of(&all, &keys);
        expected.sort();
        assert_eq!(keys_of(&got, &keys), expected);
        assert_nothing_is_left(&context);
    }
}

#[test]
fn a_sort_that_spills_can_be_cancelled() {
    let mut random = random();
    let whole = crate::rows::schema();
    let schema = Arc::new(whole.project(&[0, 13, 6]).unwrap());
    let batches = rows(&whole, &[0, 13, 6], 30_000, &mut random);
    for round in 0..40 {
        let (context, _) = context([1, 2, 8][round % 3], [500, 1000, 3000][round % 3] * KIB, 2048);
        let keys = vec![SortKey { field: 1, ..SortKey::default() }];
        let first = if round % 4 == 0 { Some((0, 20_000)) } else { None };
        let (pipelines, results) = sorting(batches.clone(), &schema, &keys, first);
        let canceller = cancel_after(&context, Duration::from_micros(random.u64(..400_000)));
        match collect(&context, pipelines, results) {
            Ok(got) => assert_eq!(got.num_rows(), first.map_or(30_000, |(_, fetch)| fetch)),
            Err(error) => assert!(matches!(error, ExecError::Cancelled), "{error:?}"),
        }
        canceller.join().unwrap();
        assert_nothing_is_left(&context);
    }
}

#[test]
fn a_device_that_fails_ends_the_sort() {
    let mut random = random();
    let whole = crate::rows::schema();
    let schema = Arc::new(whole.project(&[0, 13, 6]).unwrap());
    let batches = rows(&whole, &[0, 13, 6], 30_000, &mut random);
    let keys = vec![SortKey { field: 1, ..SortKey::default() }];
    for round in 0..30 {
        let (context, disk) = context([1, 2][round % 2], 700 * KIB, 2048);
        let operation = if round % 3 == 0 { Operation::Read } else { Operation::Write };
        let number = random.u64(..60);
        let faults = match round % 5 {
            0 => SimFaults::none().disk_full_after(number * 40_000),
            1 => SimFaults::none().with(FaultRule::chance(operation, 0.3, Fault::INTERRUPTED)),
            _ => SimFaults::none().with(FaultRule::nth(operation, number, Fault::IO)),
        };
        disk.set_faults(faults);
        let (pipelines, results) = sorting(batches.clone(), &schema, &keys, None);
        let result: Result<RecordBatch> = collect(&context, pipelines, results);
        match result {
            Ok(got) => assert_eq!(keys_of(&got, &keys).len(), 30_000),
            Err(error) => {
                assert!(matches!(error, ExecError::Store(_)), "{error:?}");
                assert_ne!(round % 5, 1, "requests that were interrupted are made again");
            }
        }
        assert_nothing_is_left(&context);
    }
}

#[test]
fn a_consumer_that_has_enough_ends_the_merge() {
    let whole = crate::rows::schema();
    let schema = Arc::new(whole.project(&[0, 13]).unwrap());
    let batches = rows(&whole, &[0, 13], 60_000, &mut random());
    let keys = vec![SortKey { field: 0, descending: true, ..SortKey::default() }];
    let (context, _) = context(2, 1024 * KIB, 2048);
    let (mut pipelines, results) = sorting(batches, &schema, &keys, None);
    let load = pipelines.pop().unwrap();
    let sink = Box::new(weft_exec::sink::Limit::new(load.sink, 5, Some(10)));
    pipelines.push(weft_exec::pipeline::Pipeline { sink, ..load });
    let got = collect(&context, pipelines, results).unwrap();
    assert_eq!(got.num_rows(), 10);
    let stats = context.spilling.as_ref().unwrap().area().stats();
    assert!(stats.read_bytes < stats.written_bytes / 2, "{stats:?}");
    assert_nothing_is_left(&context);
}

/// If there are more runs than there is memory to merge them at once, they go to disk once more.
#[test]
fn many_runs_are_merged_to_longer_ones() {
    let whole = crate::rows::schema();
    let schema = Arc::new(whole.project(&[0, 13]).unwrap());
    let batches = rows(&whole, &[0, 13], 60_000, &mut random());
    let keys = vec![SortKey { field: 1, ..SortKey::default() }];
    let written = [200, 400, 2000].map(|kibibytes| {
        let (context, _) = context(1, kibibytes * KIB, 2048);
        let (pipelines, results) = sorting(batches.clone(), &schema, &keys, None);
        assert_eq!(collect(&context, pipelines, results).unwrap().num_rows(), 60_000);
        assert_nothing_is_left(&context);
        context.progress.snapshot().spilled_bytes
    });
    assert!(written[2] > 0 && written[0] > written[2] * 3 / 2, "{written:?}");
}

/// At a limit that fits one of them, all end. (By the machine's clock: who waits for long goes on without its turn.)
#[test]
fn sorts_that_spill_do_not_wait_for_each_other() {
    let whole = crate::rows::schema();
    let schema = Arc::new(whole.project(&[0, 13, 6]).unwrap());
    let batches = rows(&whole, &[0, 13, 6], 30_000, &mut random());
    let keys = [SortKey { field: 1, ..SortKey::default() }];
    for (workers, kibibytes) in [(1, 1000), (2, 2000)] {
        let (context, _) = context(workers, kibibytes * KIB, 2048);
        std::thread::scope(|scope| {
            let query = || {
                let mut context = context.clone();
                context.turn = Arc::default();
                let (pipelines, results) = sorting(batches.clone(), &schema, &keys, None);
                let stream = results.of(Query { pipelines }, &context);
                let batches: Vec<Result<RecordBatch>> = weft_rt::sync::block_on(stream.collect());
                let batches = batches.into_iter().collect::<Result<Vec<_>>>().unwrap();
                assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 30_000);
            };
            for _ in 0..4 {
                scope.spawn(query);
            }
        });
        assert_nothing_is_left(&context);
    }
}
