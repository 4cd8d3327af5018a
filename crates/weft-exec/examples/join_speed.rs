//! How fast a hash join builds and probes, in million tuples a second: for build sides that fit into a core's caches,
//! into the last cache, and into neither; with keys that are unique or fourfold; with few and many hits.
//!
//! `cargo run --release -p weft-exec --example join_speed [cpu] [TUPLES …]`
//!
//! Tuples are a key and a payload of 64 bits; hashes are computed before. A probe looks up ten million random keys,
//! carries its key along, and loads the payload of each match. Medians of three runs. With `cpu`, a second is one of
//! the threads' time on processors, added up, which says something on a busy machine too (Linux).

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;
use futures::future::LocalBoxFuture;
use weft_exec::join::{Build, Join, Key, Kind, Nulls, Probe};
use weft_exec::pipeline::{Flow, LocalSink, Morsel, Pipeline, Sink, Source, Tuples};
use weft_exec::program::{Program, Register, Step};
use weft_exec::query::{Context, Query};
use weft_exec::registers::Registers;
use weft_exec::tuple::Layout;
use weft_exec::{Lane, Result};
use weft_rt::memory::Ledger;
use weft_rt::{MorselQueue, Runtime, RuntimeOptions};

const PROBES: usize = 10_000_000;
const RUNS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let clock = match arguments.next_if_eq("cpu") {
        Some(_) => processor_time,
        None => wall_time,
    };
    let sizes: Vec<usize> = arguments.map(|size| size.parse()).collect::<Result<_, _>>()?;
    let sizes = if sizes.is_empty() { vec![1_000, 100_000, 10_000_000] } else { sizes };
    println!(
        "  build  copies threads  build  | probe: 0 %    10 %   100 %  semi 10 %  100 %  (M/s)"
    );
    for build in sizes {
        for copies in [1, 4] {
            let table = Table::build_side(build, copies);
            let hits = [0, 10, 100].map(|percent| Table::probe_side(build / copies, percent));
            for threads in [1, 2] {
                print_line(&table, &hits, [build, copies, threads], clock)?;
            }
        }
    }
    Ok(())
}

fn print_line(
    table: &Table,
    hits: &[Table; 3],
    [build, copies, threads]: [usize; 3],
    clock: fn() -> Duration,
) -> Result<(), Box<dyn Error>> {
    let options = RuntimeOptions { workers: threads, ..RuntimeOptions::default() };
    let context = Context::new(Arc::new(Runtime::new(&options)?), Ledger::new(16 << 30));
    let mut builds = Vec::new();
    let mut join = None;
    for _ in 0..RUNS {
        // Small ones are built many times, so that there is something to be measured.
        let times = (1_000_000 / build).max(1);
        let begin = clock();
        for _ in 0..times {
            join = Some(build_once(table, &context)?);
        }
        builds.push((clock() - begin) / times as u32);
    }
    let join = join.expect("was built");
    print!("{build:>8} {copies:>6} {threads:>7} {:>7.1}  |      ", rate(build, median(builds)));
    for (kind, hits) in [(Kind::Inner, &hits[..]), (Kind::Semi, &hits[1..])] {
        for probe in hits {
            let mut times = Vec::new();
            for _ in 0..RUNS {
                let begin = clock();
                probe_once(&join, probe, kind, &context)?;
                times.push(clock() - begin);
            }
            print!("{:>8.1}", rate(PROBES, median(times)));
        }
    }
    println!();
    Ok(())
}

fn wall_time() -> Duration {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGIN.elapsed()
}

/// What all threads of this process had of processors, to a hundredth of a second.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may have spaces; user and system time are the 12th and 13th of the rest.
    let fields = stat.rsplit(')').next().into_iter().flat_map(str::split_whitespace);
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn rate(tuples: usize, time: Duration) -> f64 {
    tuples as f64 / time.as_secs_f64() / 1e6
}

fn build_once(table: &Table, context: &Context) -> Result<Arc<Join>> {
    let layout = Arc::new(Layout::new(&[(Lane::I64, false), (Lane::I64, false)]));
    let keys = vec![Key { field: 0, nulls: Nulls::Never }];
    let join = Arc::new(Join::new(layout, keys, false, Vec::new()));
    let mut program = Program::default();
    let [key, hash] = table.inputs(&mut program);
    let sink = Box::new(Build::new(join.clone(), hash, vec![key, key]));
    let pipeline = Pipeline { source: table.source(), program, sink, after: Vec::new() };
    futures::executor::block_on(Query { pipelines: vec![pipeline] }.run(context))?;
    Ok(join)
}

fn probe_once(join: &Arc<Join>, table: &Table, kind: Kind, context: &Context) -> Result<()> {
    let mut program = Program::default();
    let [key, hash] = table.inputs(&mut program);
    let [carried, tuples, payload] =
        [Lane::I64, Lane::U64, Lane::I64].map(|lane| program.register(lane));
    program.steps.push(Step::Expand(Arc::new(Probe {
        join: join.clone(),
        hash,
        keys: vec![key],
        kind,
        carried: if kind.expands() { vec![(key, carried)] } else { Vec::new() },
        kept: Vec::new(),
        storage: Vec::new(),
        tuples: kind.expands().then_some(tuples),
        marks_build: false,
        residual: None,
    })));
    if kind.expands() {
        let layout = join.layout().clone();
        program.steps.push(Step::Load { tuples, layout, field: 1, out: payload });
    }
    let sink = Box::new(Count(Arc::default()));
    let pipeline = Pipeline { source: table.source(), program, sink, after: Vec::new() };
    futures::executor::block_on(Query { pipelines: vec![pipeline] }.run(context))
}

/// Keys and their hashes.
#[derive(Clone, Debug)]
struct Table {
    rows: usize,
    keys: Buffer,
    hashes: Buffer,
}

impl Table {
    fn build_side(rows: usize, copies: usize) -> Table {
        let mut keys: Vec<i64> = (0..rows).map(|row| (row / copies) as i64).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut keys);
        Table::new(keys)
    }

    fn probe_side(distinct: usize, percent: u32) -> Table {
        let mut random = fastrand::Rng::with_seed(2);
        let key = |_| {
            let key = random.i64(..distinct as i64);
            if random.u32(..100) < percent { key } else { key + distinct as i64 }
        };
        Table::new((0..PROBES).map(key).collect())
    }

    fn new(keys: Vec<i64>) -> Table {
        let hash = |key: &i64| {
            let product = u128::from(*key as u64 ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
            let folded = (product >> 64) as u64 ^ product as u64;
            folded.wrapping_mul(0xe703_7ed1_a0b4_28db) ^ folded >> 32
        };
        let hashes: Vec<u64> = keys.iter().map(hash).collect();
        Table { rows: keys.len(), keys: keys.into(), hashes: hashes.into() }
    }

    fn inputs(&self, program: &mut Program) -> [Register; 2] {
        [program.input(Lane::I64), program.input(Lane::U64)]
    }

    fn source(&self) -> Box<dyn Source> {
        let queue = MorselQueue::new(self.rows as u64, 128 << 10);
        Box::new(TableSource { table: self.clone(), queue })
    }
}

#[derive(Debug)]
struct TableSource {
    table: Table,
    queue: MorselQueue,
}

impl Source for TableSource {
    fn morsel(&self, _worker: usize) -> Option<Box<dyn Morsel>> {
        let range = self.queue.next()?;
        let slice = |buffer: &Buffer| {
            buffer
                .slice_with_length(range.start as usize * 8, (range.end - range.start) as usize * 8)
        };
        Some(Box::new(TableMorsel(Some(Table {
            rows: (range.end - range.start) as usize,
            keys: slice(&self.table.keys),
            hashes: slice(&self.table.hashes),
        }))))
    }
}

struct TableMorsel(Option<Table>);

impl Morsel for TableMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        let table = self.0.take().map(|table| Box::new(table) as Box<dyn Tuples>);
        Box::pin(async { Ok(table) })
    }
}

impl Tuples for Table {
    fn rows(&self) -> usize {
        self.rows
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        let slice = |buffer: &Buffer| buffer.slice_with_length(start * 8, rows * 8);
        registers.vector_mut(inputs[0]).share::<i64>(slice(&self.keys));
        registers.vector_mut(inputs[1]).share::<u64>(slice(&self.hashes));
        Ok(())
    }
}

/// Counts tuples.
#[derive(Debug)]
struct Count(Arc<AtomicU64>);

impl Sink for Count {
    fn local(&self, _context: &Context, _worker: usize) -> Result<Box<dyn LocalSink>> {
        Ok(Box::new(LocalCount(self.0.clone())))
    }
}

struct LocalCount(Arc<AtomicU64>);

impl LocalSink for LocalCount {
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        Box::pin(async {
            self.0.fetch_add(registers.selected().count() as u64, Ordering::Relaxed);
            Ok(Flow::More)
        })
    }

    fn end(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
