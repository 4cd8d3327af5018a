//! Arrow in, Arrow out: batches, streams, limits, and consumers of all kinds.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow_array::{ArrayRef, Decimal128Array, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use futures::StreamExt;
use weft_exec::query::{Context, Query};
use weft_exec::sink::{Limit, Output, Shared};
use weft_exec::source::stream::channel;
use weft_exec::source::{BatchStreams, Batches};
use weft_exec::{ExecError, Lane, Program};
use weft_rt::memory::Ledger;
use weft_rt::sync::block_on;

use crate::rows::{collect, in_order, lanes, random_rows, schema, to_results};
use crate::support::{Numbers, Waits, contexts, numbers, random, runtime};

#[test]
fn every_type_goes_through_unchanged() {
    let mut random = random();
    let schema = schema();
    for context in contexts() {
        let counts = [0, 1, random.usize(..100), 5000, random.usize(..3000)];
        let mut batches = Vec::new();
        let mut start = 0;
        for rows in counts {
            batches.push(random_rows(&schema, start, rows, &mut random));
            start += rows as u64;
        }
        let expected = arrow_select::concat::concat_batches(&schema, &batches).unwrap();
        let sliced = batches.iter().map(|batch| {
            let middle = batch.num_rows() / 2;
            [batch.slice(0, middle), batch.slice(middle, batch.num_rows() - middle)]
        });
        let source = Batches::new(sliced.flatten().collect(), lanes(&schema));
        let (pipeline, results) = to_results(source, &schema);
        let got = collect(&context, vec![pipeline], results).unwrap();
        assert_eq!(in_order(&got), expected);
        let streams = batches.chunks(2).map(|batches| {
            let batches: Vec<_> = batches.iter().cloned().map(Ok).collect();
            futures::stream::iter(batches).boxed()
        });
        let source = BatchStreams::new(streams.collect(), lanes(&schema));
        source.is_ordered().store(true, Ordering::Relaxed);
        let (pipeline, results) = to_results(source, &schema);
        let got = collect(&context, vec![pipeline], results).unwrap();
        assert_eq!(got, expected, "in the order of the streams");
    }
}

#[test]
fn decimals_fit_or_fail() {
    let array = Decimal128Array::from(vec![Some(1), None, Some(1 << 70)]);
    let array = array.with_precision_and_scale(38, 2).unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new("d", DataType::Decimal128(38, 2), true)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(array) as ArrayRef]).unwrap();
    let context = Context::new(runtime(1), Ledger::new(1 << 20));
    for (rows, fits) in [(2, true), (3, false)] {
        let source = Batches::new(vec![batch.slice(0, rows)], vec![Lane::I64]);
        let mut program = Program::default();
        let column = program.input(Lane::I64);
        let (output, results) = Output::new(schema.clone(), vec![(column, Lane::I64)]);
        let mut pipeline = to_results(source, &schema).0;
        (pipeline.program, pipeline.sink) = (program, Box::new(output));
        match collect(&context, vec![pipeline], results) {
            Ok(got) => assert!(fits && got == batch.slice(0, rows)),
            Err(error) => assert!(!fits && matches!(error, ExecError::Overflow { .. })),
        }
    }
    let source = Batches::new(vec![batch], vec![Lane::F64]);
    let mut program = Program::default();
    let column = program.input(Lane::F64);
    let (output, results) = Output::new(schema.clone(), vec![(column, Lane::F64)]);
    let mut pipeline = to_results(source, &schema).0;
    (pipeline.program, pipeline.sink) = (program, Box::new(output));
    assert!(collect(&context, vec![pipeline], results).is_err(), "another lane");
}

fn number_schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![Field::new("n", DataType::UInt64, false)]))
}

#[test]
fn pipelines_share_a_sink() {
    for context in contexts() {
        for (count, fetch) in [(1, None), (3, None), (3, Some(1000))] {
            let (first, results) =
                to_results(Numbers::new(5000, 700).waits(Waits::Yields, 2), &number_schema());
            let limited = Box::new(Limit::new(first.sink, 0, fetch));
            let sinks = Shared::split(limited, count);
            let pipelines = sinks.into_iter().map(|sink| {
                let source = Numbers::new(5000, 700).waits(Waits::Yields, 2);
                let pipeline = to_results(source, &number_schema()).0;
                weft_exec::pipeline::Pipeline { sink, ..pipeline }
            });
            let got = collect(&context, pipelines.collect(), results).unwrap();
            let expected = fetch.map_or(5000 * count, |fetch| fetch as usize);
            assert_eq!(got.num_rows(), expected);
        }
    }
}

#[test]
fn a_limit_lets_through_what_it_says() {
    for context in contexts() {
        for (skip, fetch, rows) in [
            (0, Some(0), 10_000),
            (0, Some(1), u64::MAX),
            (10, Some(5000), u64::MAX),
            (9_990, Some(100), 10_000),
            (20_000, Some(10), 10_000),
            (3, None, 5000),
        ] {
            let source = Numbers::new(rows, 3000).waits(Waits::Yields, 3);
            let (mut pipeline, results) = to_results(source, &number_schema());
            pipeline.sink = Box::new(Limit::new(pipeline.sink, skip, fetch));
            let got = collect(&context, vec![pipeline], results).unwrap();
            let expected = fetch.unwrap_or(u64::MAX).min(rows.saturating_sub(skip));
            assert_eq!(got.num_rows() as u64, expected, "{skip} {fetch:?} {rows}");
            let all = got.column(0).as_any().downcast_ref::<UInt64Array>().unwrap();
            let different: std::collections::HashSet<u64> = all.values().iter().copied().collect();
            assert_eq!(different.len() as u64, expected);
            if context.runtime.workers() == 1 && rows <= 10_000 {
                assert!(
                    different.iter().all(|n| (skip..skip + expected).contains(n)) || expected == 0
                );
            }
        }
    }
}

#[test]
fn streams_come_from_other_executors() {
    let schema = number_schema();
    for context in contexts() {
        let (first, first_stream) = channel(2);
        let (second, second_stream) = channel(1);
        let threads: Vec<_> = [(first, 0u64), (second, 1000)]
            .into_iter()
            .map(|(sender, start)| {
                let schema = schema.clone();
                std::thread::spawn(move || {
                    for n in start..start + 500 {
                        let column: ArrayRef = Arc::new(UInt64Array::from(vec![n]));
                        let batch = RecordBatch::try_new(schema.clone(), vec![column]).unwrap();
                        assert!(block_on(sender.send(Ok(batch))));
                    }
                    block_on(sender.close());
                })
            })
            .collect();
        let source = BatchStreams::new(vec![first_stream, second_stream], vec![Lane::U64]);
        let (pipeline, results) = to_results(source, &schema);
        let got = in_order(&collect(&context, vec![pipeline], results).unwrap());
        let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values((0..500).chain(1000..1500)));
        assert_eq!(got.column(0), &numbers);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_stream_that_breaks_off_fails_the_query() {
    let context = Context::new(runtime(2), Ledger::new(1 << 20));
    let (sender, stream) = channel(1);
    drop(sender);
    let source = BatchStreams::new(vec![stream], vec![Lane::U64]);
    let (pipeline, results) = to_results(source, &number_schema());
    let error = collect(&context, vec![pipeline], results).unwrap_err();
    assert!(error.to_string().contains("before its rows did"), "{error}");
    let failing = futures::stream::once(async { Err(ExecError::DivisionByZero) }).boxed();
    let source = BatchStreams::new(vec![failing], vec![Lane::U64]);
    let (pipeline, results) = to_results(source, &number_schema());
    let error = collect(&context, vec![pipeline], results).unwrap_err();
    assert!(matches!(error, ExecError::DivisionByZero));
}

#[test]
fn a_slow_consumer_makes_the_workers_wait() {
    let context = Context::new(runtime(2), Ledger::new(64 << 20));
    let (pipeline, results) = to_results(Numbers::new(1 << 40, 10_000), &number_schema());
    let mut stream = results.of(Query { pipelines: vec![pipeline] }, &context);
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(20));
        let batch = block_on(stream.next()).unwrap().unwrap();
        assert!(batch.num_rows() > 0);
        assert!(context.ledger.used() < 4 << 20, "more than a few batches wait");
    }
    drop(stream);
    let start = std::time::Instant::now();
    while context.ledger.used() > 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "the query goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn results_that_nobody_wants_end_the_pipeline() {
    let context = Context::new(runtime(2), Ledger::new(64 << 20));
    let (pipeline, results) = to_results(Numbers::new(1 << 40, 10_000), &number_schema());
    drop(results);
    block_on(Query { pipelines: vec![pipeline] }.run(&context)).unwrap();
    assert_eq!(context.ledger.used(), 0);
}

#[test]
fn a_cancelled_query_tells_its_consumer() {
    let context = Context::new(runtime(2), Ledger::new(64 << 20));
    let (pipeline, results) = to_results(Numbers::new(1 << 40, 10_000), &number_schema());
    let waits =
        numbers(Numbers::new(10, 1).waits(Waits::Forever, 2), crate::support::Collect::new());
    let mut stream = results.of(Query { pipelines: vec![pipeline, waits] }, &context);
    assert!(block_on(stream.next()).unwrap().is_ok());
    stream.cancel();
    let last = block_on(async {
        while let Some(batch) = stream.next().await {
            if let Err(error) = batch {
                return Some(error);
            }
        }
        None
    });
    assert!(matches!(last, Some(ExecError::Cancelled)), "{last:?}");
    assert!(block_on(stream.next()).is_none());
    assert_eq!(context.ledger.used(), 0);
}
