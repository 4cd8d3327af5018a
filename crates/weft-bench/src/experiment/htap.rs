//! Transactions and analytics on the same tables: TPC-C while the 22 queries of the CH-benCHmark run (Cole and others, DBTest 2011).
//!
//! The workers of the transactions run the standard mix of TPC-C in one variant. Queries go through SQL, on threads of their own: each
//! takes a snapshot of the transaction engine, which all its tables are scanned at, so that transactions go on and no query sees a part of one.
//! Both are measured alone and beside each other. After each query beside transactions, conditions that every transaction keeps are
//! looked at in a snapshot; at the end the twelve consistency conditions of TPC-C are checked, and each query's answer is compared with
//! that of another engine (DataFusion's) on the same snapshot.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use weft::{BatchReader, BatchSource, DatabaseOptions, Session, SourceStatistics};
use weft_rt::io::DriverKind;
use weft_rt::memory::{Ledger, slab};
use weft_rt::{Runtime, RuntimeOptions};
use weft_tpcc::{
    Database, Kind, Measured, RunOptions, Scale, Storage, TpccError, Variant, Workload,
};
use weft_txn::{Durability, Isolation, Snapshot, TransactionOptions};

use crate::answer::{Answer, TextRows, text_rows};
use crate::args::HtapArgs;
use crate::data;
use crate::error::BenchError;
use crate::report::{LatencyUs, Point};
use crate::resident;
use crate::workload::WorkloadError;

/// The queries, each behind a line with its number.
const QUERIES: &str = include_str!("../../../../tests/ch/queries.sql");

/// Conditions that every transaction of TPC-C keeps: each query counts what violates one (3.3.2.1, 3.3.2.2, 3.3.2.6).
const CONDITIONS: [(&str, &str); 3] = [
    (
        "a warehouse has taken what its districts have",
        "SELECT count(*) FROM (SELECT w_id FROM warehouse JOIN district ON d_w_id = w_id GROUP BY w_id, w_ytd HAVING w_ytd <> sum(d_ytd)) v",
    ),
    (
        "a district's next order follows its last one",
        "SELECT count(*) FROM (SELECT d_id FROM district JOIN orders ON o_w_id = d_w_id AND o_d_id = d_id \
         GROUP BY d_w_id, d_id, d_next_o_id HAVING d_next_o_id - 1 <> max(o_id)) v",
    ),
    (
        "orders have as many lines as they say",
        "SELECT count(*) FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS said FROM orders GROUP BY o_w_id, o_d_id) o \
         JOIN (SELECT ol_w_id, ol_d_id, count(*) AS found FROM order_line GROUP BY ol_w_id, ol_d_id) l \
         ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE said <> found",
    ),
];

/// Bytes of free blocks on huge pages that are kept.
const FREE_BLOCKS_BYTES: usize = 64 << 20;
/// Ids of rows that a batch of a scan is made of.
const BATCH_ROWS: u64 = 16_384;
/// Part of the memory for the tables that may come to be in use by what transactions add.
const GROWTH: u64 = 3;
/// A run that ends when it is told to.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// A table of the transaction engine as SQL reads it: what one snapshot has.
struct Scan {
    relation: weft_tpcc::Relation,
    snapshot: Arc<Snapshot>,
    runtime: Arc<Runtime>,
    workers: usize,
}

impl BatchSource for Scan {
    fn schema(&self) -> arrow::datatypes::SchemaRef {
        Arc::clone(self.relation.schema())
    }

    fn statistics(&self) -> SourceStatistics {
        let columns = 0..self.relation.schema().fields().len();
        let distinct_values = columns.map(|column| self.relation.distinct_values(column)).collect();
        SourceStatistics { rows: Some(self.relation.rows()), distinct_values }
    }

    fn open(&self, columns: &[usize]) -> weft::Result<BatchReader> {
        let (relation, snapshot) = (self.relation.clone(), Arc::clone(&self.snapshot));
        let (runtime, columns, workers) =
            (Arc::clone(&self.runtime), columns.to_vec(), self.workers);
        let starts = (0..relation.end()).step_by(BATCH_ROWS as usize);
        Ok(Box::new(starts.map(move |start| {
            let (relation, snapshot, columns) =
                (relation.clone(), Arc::clone(&snapshot), columns.clone());
            let worker = (start / BATCH_ROWS) as usize % workers;
            let made = runtime.spawn_on(worker, move || async move {
                relation.batch(&snapshot, start..start + BATCH_ROWS, &columns).await
            });
            let made = made.wait().map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
            made.map_err(|error| ArrowError::ExternalError(Box::new(error)))
        })))
    }
}

/// The side of the queries.
struct Analyst {
    tables: Database,
    runtime: Arc<Runtime>,
    workers: usize,
    session: Session,
}

impl Analyst {
    /// Runs a query on a snapshot; gives its rows and seconds.
    fn query(&self, sql: &str, snapshot: &Arc<Snapshot>) -> Result<(TextRows, f64), BenchError> {
        let start = Instant::now();
        let relations = self.tables.relations().into_iter().map(|relation| {
            let name = relation.name().to_owned();
            let (snapshot, runtime) = (Arc::clone(snapshot), Arc::clone(&self.runtime));
            let scan = Scan { relation, snapshot, runtime, workers: self.workers };
            Ok((name, weft::Relation::of_source(Arc::new(scan))?))
        });
        let batches = relations
            .collect::<weft::Result<HashMap<_, _>>>()
            .and_then(|relations| self.session.start_with_relations(sql, relations).collect());
        let batches: Vec<RecordBatch> = batches.map_err(WorkloadError::statement(sql))?;
        let seconds = start.elapsed().as_secs_f64();
        Ok((text_rows(&batches)?, seconds))
    }

    fn snapshot(&self) -> Result<Arc<Snapshot>, BenchError> {
        Ok(Arc::new(self.tables.engine().snapshot().map_err(TpccError::from)?))
    }

    /// Runs all queries, each on a snapshot of its own; gives the seconds of each.
    fn pass(
        &self,
        queries: &[(u32, String)],
        with_conditions: bool,
    ) -> Result<Vec<f64>, BenchError> {
        let mut seconds = Vec::with_capacity(queries.len());
        for (_, sql) in queries {
            seconds.push(self.query(sql, &self.snapshot()?)?.1);
            if with_conditions {
                self.check_conditions()?;
            }
        }
        Ok(seconds)
    }

    fn check_conditions(&self) -> Result<(), BenchError> {
        let snapshot = self.snapshot()?;
        for (condition, sql) in CONDITIONS {
            let (rows, _) = self.query(sql, &snapshot)?;
            if rows != [["0"]] {
                return Err(BenchError::Condition { condition, rows: format!("{rows:?}") });
            }
        }
        Ok(())
    }

    /// Compares the answers of both engines on one snapshot.
    fn check_answers(&self, queries: &[(u32, String)]) -> Result<(), BenchError> {
        let snapshot = self.snapshot()?;
        for (number, sql) in queries {
            let mut answers = Vec::new();
            for engine in ["datafusion", "weft"] {
                let set = format!("SET engine = '{engine}'");
                self.session.execute(&set).map_err(WorkloadError::statement(set.as_str()))?;
                let (mut rows, _) = self.query(sql, &snapshot)?;
                rows.sort();
                answers.push(rows);
            }
            let expected = Answer::of_rows(answers.swap_remove(0), &[], None);
            expected.check(&answers[0]).map_err(|source| WorkloadError::WrongAnswer {
                query: format!("CH-benCHmark's query {number}"),
                source,
            })?;
        }
        Ok(())
    }
}

/// Runs transactions alone, queries alone, and both.
///
/// # Errors
/// [`BenchError`] if there is too little memory, a transaction or a query fails, a condition does not hold, or answers differ.
pub fn run(args: &HtapArgs) -> Result<Vec<Point>, BenchError> {
    let workers = args.common.threads().into_iter().max().unwrap_or(1) as usize;
    let scale = Scale::of(args.warehouses, 100);
    resident::require(scale.bytes() * GROWTH, "TPC-C beside queries", "use fewer --warehouses")?;
    slab::keep_blocks(FREE_BLOCKS_BYTES);
    let options = |workers| RuntimeOptions {
        workers,
        driver: DriverKind::Blocking,
        ..RuntimeOptions::default()
    };
    let runtime = Runtime::new(&options(workers))?;
    let ledger = Ledger::new(scale.bytes() * GROWTH);
    let seed = args.common.seed;
    let open = move || async move { Database::open(scale, seed, Storage::Memory, ledger).await };
    let tables: Database = runtime.block_on(open)??;
    weft_tpcc::load(&runtime, &tables, workers, TransactionOptions::default())?;

    let query_workers = args.query_threads as usize;
    let database = DatabaseOptions::default().with("threads", args.query_threads);
    let database =
        weft::Database::in_memory(&database).map_err(WorkloadError::statement("opening"))?;
    let analyst = Analyst {
        tables: tables.clone(),
        runtime: Arc::new(Runtime::new(&options(query_workers))?),
        workers: query_workers,
        session: database.session().map_err(WorkloadError::statement("opening a session"))?,
    };
    let mut queries = queries();
    queries.retain(|(number, _)| args.queries.is_empty() || args.queries.contains(number));
    let mut points = Vec::new();
    let bar = data::measuring("htap", 3 * args.common.threads().len(), &args.common);
    for threads in args.common.threads() {
        let of_run = |time| RunOptions {
            variant: Variant::named(&args.variant).unwrap_or(Variant::CoroBase),
            workload: Workload::Tpcc,
            threads: threads as usize,
            batch: args.batch as usize,
            isolation: Isolation::Snapshot,
            durability: Durability::Durable,
            time,
            seed: seed ^ u64::from(threads) << 32,
        };
        let never = Arc::new(AtomicBool::new(false));
        let time = Duration::from_secs_f64(args.seconds);
        let alone = weft_tpcc::run_until(&runtime, &tables, &of_run(time), &never)?;
        points.push(of_transactions(args, threads, "transactions alone", &alone));
        bar.inc(1);

        let passes = || -> Result<Vec<Vec<f64>>, BenchError> {
            (0..args.common.repeat).map(|_| analyst.pass(&queries, false)).collect()
        };
        points.extend(of_queries(args, threads, "queries alone", &queries, &passes()?));
        bar.inc(1);

        let stop = Arc::new(AtomicBool::new(false));
        let (beside, passes) = std::thread::scope(|scope| {
            let transactions =
                scope.spawn(|| weft_tpcc::run_until(&runtime, &tables, &of_run(LONG), &stop));
            let passes: Result<Vec<Vec<f64>>, BenchError> =
                (0..args.common.repeat).map(|_| analyst.pass(&queries, true)).collect();
            stop.store(true, Ordering::Relaxed);
            let transactions = transactions.join().expect("transactions do not panic");
            (transactions, passes)
        });
        points.push(of_transactions(args, threads, "transactions beside queries", &beside?));
        points.extend(of_queries(args, threads, "queries beside transactions", &queries, &passes?));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let checked = tables.clone();
    runtime.block_on(move || async move { weft_tpcc::check(&checked).await })??;
    analyst.check_answers(&queries)?;
    points.iter_mut().for_each(|point| point.answer = Some("correct".to_owned()));
    Ok(points)
}

/// The queries with their numbers.
fn queries() -> Vec<(u32, String)> {
    let statements = QUERIES.split(";\n").filter_map(|part| {
        let number = part.lines().rev().find_map(|line| line.strip_prefix("-- ")?.parse().ok())?;
        let lines = part.lines().filter(|line| !line.starts_with("--"));
        Some((number, lines.collect::<Vec<_>>().join("\n")))
    });
    statements.collect()
}

fn of_phase(args: &HtapArgs, threads: u32, phase: &str) -> Point {
    Point {
        experiment: "htap".to_owned(),
        pattern: Some(phase.to_owned()),
        variant: Some(args.variant.clone()),
        batch: Some(args.batch),
        warehouses: Some(args.warehouses.into()),
        driver: "memory".to_owned(),
        device: "DRAM".to_owned(),
        threads,
        depth: args.batch,
        repetitions: args.common.repeat,
        ..Point::default()
    }
}

fn of_transactions(args: &HtapArgs, threads: u32, phase: &str, run: &Measured) -> Point {
    let us = |quantile| run.latency_ns.value_at_quantile(quantile) as f64 / 1000.0;
    let latency =
        LatencyUs { p50: us(0.5), p90: us(0.9), p99: us(0.99), p999: us(0.999), max: us(1.0) };
    let aborts = Kind::ALL.into_iter().map(|kind| (kind.name().to_owned(), run.aborts(kind)));
    Point {
        repetitions: 1,
        seconds: run.seconds,
        txn_per_s: Some(run.rate()),
        new_orders_per_minute: Some(run.new_orders_per_minute()),
        aborts: Some(aborts.filter(|(_, count)| *count > 0).collect()),
        latency_us: Some(latency),
        ..of_phase(args, threads, phase)
    }
}

/// A point for all queries, and one for each.
fn of_queries(
    args: &HtapArgs,
    threads: u32,
    phase: &str,
    queries: &[(u32, String)],
    passes: &[Vec<f64>],
) -> Vec<Point> {
    let median = |mut seconds: Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    };
    let all = median(passes.iter().map(|pass| pass.iter().sum()).collect());
    let mut points = vec![Point { seconds: all, ..of_phase(args, threads, phase) }];
    for (at, (number, _)) in queries.iter().enumerate() {
        let seconds = median(passes.iter().map(|pass| pass[at]).collect());
        let query = Some(*number);
        points.push(Point { seconds, query, ..of_phase(args, threads, phase) });
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_queries_are_found() {
        let queries = queries();
        let numbers: Vec<u32> = queries.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (1..=22).collect::<Vec<_>>());
        let whole = queries.iter().all(|(_, sql)| {
            let sql = sql.trim_start();
            sql.starts_with("SELECT") || sql.starts_with("WITH")
        });
        assert!(whole && !queries.iter().any(|(_, sql)| sql.contains(';')));
    }
}
