//! How fast one thread runs TPC-H queries 1 and 6 in memory: rows per second of the whole query, interpreted and compiled, of the scan that decodes
//! their columns, and of a loop written by hand over what it decodes.
//!
//! The loop runs over each batch twice, and the second time counts: the engine, too, works on what is in the core's caches. It
//! runs beside the worker that decodes the next batches.

use std::sync::Arc;
use std::time::Instant;

use weft::arrow::array::RecordBatch;
use weft::{Database, DatabaseOptions, QueryResult};
use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_rt::sync::block_on;
use weft_rt::{Runtime, RuntimeOptions};
use weft_store::{Directory, ScanOptions, Store, StoreOptions, Table};

use crate::answer::{Answer, AnswerError, TextRows, text_rows};
use crate::args::{RateArgs, cores};
use crate::data::progress_bar;
use crate::error::BenchError;
use crate::report::units;
use crate::report::{Machine, Point};
use crate::workload::tpch_loops::{ByHand, Query1, Query6};
use crate::workload::{Query, TPCH, WorkloadError};

/// What is measured of a query.
const WHOLE: &str = "query";
const COMPILED: &str = "query, compiled";
const DECODING: &str = "decoding";
const BY_HAND: &str = "by hand";

/// Of query 1's answer, what a loop has, too: all but the averages.
const SUMS: [usize; 7] = [0, 1, 2, 3, 4, 5, 9];

/// Loads the database if needed, runs the queries and the loops, and compares their answers.
///
/// # Errors
/// [`BenchError`] if the data cannot be had, a query fails or answers differ.
pub fn run(args: &RateArgs, machine: &Machine) -> Result<Vec<Point>, BenchError> {
    let rate = Rate { args, machine };
    let database = rate.load()?;
    let memory_bytes = database.stats().memory_limit;
    let bar = progress_bar("runs").with_message("rate");
    bar.set_length(2 * 3 * u64::from(args.common.repeat));
    let mut done = || bar.inc(1);
    let mut of_queries = Vec::new();
    for query in [&TPCH.queries[0], &TPCH.queries[5]] {
        let (seconds, answer) = rate.queries(&database, query, "never", &mut done)?;
        let (compiled, of_compiled) = rate.queries(&database, query, "always", &mut done)?;
        let expected = Answer::of_run(answer.clone(), &[], None);
        expected.check(&of_compiled).map_err(|source| wrong(query, source))?;
        of_queries.push((seconds, compiled, answer));
    }
    drop(database);
    let of_loops = [
        rate.loops::<Query1>(memory_bytes, &TPCH.queries[0], &mut done)?,
        rate.loops::<Query6>(memory_bytes, &TPCH.queries[5], &mut done)?,
    ];
    bar.finish_and_clear();
    let mut points = Vec::new();
    let queries = [&TPCH.queries[0], &TPCH.queries[5]].into_iter().zip(&of_queries);
    for ((query, (seconds, compiled, answer)), loops) in queries.zip(&of_loops) {
        let kept = |row: &Vec<String>| match query.number {
            1 => SUMS.iter().map(|&column| row[column].clone()).collect(),
            _ => row.clone(),
        };
        let expected = Answer::of_run(answer.iter().map(kept).collect(), &[], None);
        expected.check(&loops.answer).map_err(|source| wrong(query, source))?;
        let of_mode = |what, seconds, compile: &str| Point {
            compile: Some(compile.to_owned()),
            ..rate.point(query, what, seconds, loops.rows)
        };
        points.push(of_mode(WHOLE, seconds, "never"));
        points.push(of_mode(COMPILED, compiled, "always"));
        points.push(rate.point(query, DECODING, &loops.decoding, loops.rows));
        points.push(rate.point(query, BY_HAND, &loops.by_hand, loops.rows));
    }
    Ok(points)
}

/// What the points say, in words.
pub fn summary(points: &[Point]) -> String {
    let mut text = String::new();
    for query in points.chunks_exact(4) {
        let [whole, compiled, decoding, by_hand] = [0, 1, 2, 3].map(|part| query[part].seconds);
        let name = query[0].pattern.as_deref().and_then(|name| name.split(' ').next());
        text.push_str(&format!(
            "{}: the query takes {} times as long as the loop by hand over decoded vectors, {} times \
             as long as decoding and the loop; compiled {} times as long as interpreted\n",
            name.unwrap_or_default(),
            units::number(whole / by_hand),
            units::number(whole / (decoding + by_hand)),
            units::number(compiled / whole),
        ));
    }
    text
}

struct Rate<'a> {
    args: &'a RateArgs,
    machine: &'a Machine,
}

/// Times of runs over so many rows, and the answer of a loop.
struct Loops {
    rows: u64,
    decoding: Vec<f64>,
    by_hand: Vec<f64>,
    answer: TextRows,
}

impl Rate<'_> {
    /// The database with one thread, all tables loaded.
    fn load(&self) -> Result<Database, BenchError> {
        let path = self.args.database();
        let what = format!("opening {}", path.display());
        let open = |threads: u32| {
            let options = DatabaseOptions::default().with("threads", threads);
            Database::open(&path, &options).map_err(WorkloadError::statement(&what))
        };
        let files = TPCH.directory(&self.args.common.data, self.args.scale);
        let database = open(cores())?;
        TPCH.load(&database, &files, self.args.scale, cores() as usize)?;
        drop(database);
        Ok(open(1)?)
    }

    /// Times of a query, compiled or not, whose columns are in memory, and its answer.
    fn queries(
        &self,
        database: &Database,
        query: &Query,
        compile: &str,
        done: &mut dyn FnMut(),
    ) -> Result<(Vec<f64>, TextRows), BenchError> {
        let failed = || WorkloadError::statement(query.name());
        let session = database.session().map_err(failed())?;
        session.execute(&format!("SET compile = '{compile}'")).map_err(failed())?;
        let once = || {
            let start = Instant::now();
            let batches = session.query(query.sql).and_then(QueryResult::collect)?;
            Ok::<_, weft::Error>((batches, start.elapsed().as_secs_f64()))
        };
        let answer = text_of(&query.name(), &once().map_err(failed())?.0)?;
        let mut seconds = Vec::new();
        for _ in 0..self.args.common.repeat {
            seconds.push(once().map_err(failed())?.1);
            done();
        }
        Ok((seconds, answer))
    }

    /// Decodes the columns of a query, then again with the loop over them.
    fn loops<Q: ByHand>(
        &self,
        memory_bytes: u64,
        query: &Query,
        done: &mut dyn FnMut(),
    ) -> Result<Loops, BenchError> {
        let (_store, table) = self.open(memory_bytes)?;
        let (decoding, by_hand) = (Vec::new(), Vec::new());
        let mut loops = Loops { rows: table.rows(), decoding, by_hand, answer: Vec::new() };
        // The first brings the columns into memory.
        decode::<Q>(&table, query, |_| ())?;
        for _ in 0..self.args.common.repeat {
            let start = Instant::now();
            decode::<Q>(&table, query, |_| ())?;
            loops.decoding.push(start.elapsed().as_secs_f64());
            let (mut sums, mut seconds) = (Q::default(), 0.0);
            decode::<Q>(&table, query, |batch| {
                Q::default().add(batch);
                let start = Instant::now();
                sums.add(batch);
                seconds += start.elapsed().as_secs_f64();
            })?;
            loops.by_hand.push(seconds);
            loops.answer = sums.rows();
            done();
        }
        Ok(loops)
    }

    /// Lineitem, and the store that it is of, with one worker.
    fn open(&self, memory_bytes: u64) -> Result<(Arc<Store>, Arc<Table>), BenchError> {
        let options =
            RuntimeOptions { workers: 1, driver: DriverKind::Auto, ..RuntimeOptions::default() };
        let runtime = Arc::new(Runtime::new(&options)?);
        let path = self.args.database();
        let ledger = Ledger::new(memory_bytes);
        let directory = Directory::Os(path.clone());
        let store = Store::open(&directory, &StoreOptions::default(), runtime, ledger)?;
        let missing = || {
            let path = path.display();
            BenchError::Usage(format!("{path} has no lineitem; delete it and run again"))
        };
        let table = store.snapshot().table("lineitem").ok_or_else(missing)?;
        block_on(table.load())?;
        Ok((store, table))
    }

    fn point(&self, query: &Query, what: &str, seconds: &[f64], rows: u64) -> Point {
        let mut seconds = seconds.to_vec();
        seconds.sort_by(f64::total_cmp);
        Point {
            experiment: "rate".to_owned(),
            pattern: Some(format!("{} {what}", query.name())),
            driver: "memory".to_owned(),
            device: self.machine.device.clone(),
            threads: 1,
            scale: Some(self.args.scale),
            repetitions: seconds.len() as u32,
            seconds: seconds[seconds.len() / 2],
            seconds_min: seconds.first().copied(),
            seconds_max: seconds.last().copied(),
            rows: Some(rows),
            // Of the query and of the loop; there may be no reference for the scale.
            answer: Some("the same by hand".to_owned()),
            ..Point::default()
        }
    }
}

/// Decodes all rows of a query's columns.
fn decode<Q: ByHand>(
    table: &Arc<Table>,
    query: &Query,
    mut each: impl FnMut(&RecordBatch),
) -> Result<(), BenchError> {
    let columns = &table.schema().columns;
    let number = |name: &&str| columns.iter().position(|column| column.name == **name);
    let missing = || {
        BenchError::Usage(format!(
            "lineitem lacks columns of {}; delete the database",
            query.name()
        ))
    };
    let projection: Option<Vec<usize>> = Q::COLUMNS.iter().map(number).collect();
    let projection = projection.ok_or_else(missing)?;
    let options = ScanOptions { projection, narrow_decimals: true, ..ScanOptions::default() };
    let mut scan = table.scan(options)?;
    while let Some(batch) = scan.next_blocking() {
        each(&batch?);
    }
    Ok(())
}

fn text_of(what: &str, batches: &[RecordBatch]) -> Result<TextRows, BenchError> {
    let failed = |source| WorkloadError::Text { what: what.to_owned(), source };
    Ok(text_rows(batches).map_err(failed)?)
}

fn wrong(query: &Query, source: AnswerError) -> WorkloadError {
    WorkloadError::WrongAnswer { query: query.name(), source }
}
