//! How lineitem lies on disk and how fast one thread reads it: bytes per value, cold scans against the
//! device's bandwidth, hot ones as a measure of decoding; for all columns together and for each.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, RecordBatch, StringViewArray};
use weft_rt::io::{Access, Arena, DriverKind, File, FileError, IoBuf};
use weft_rt::memory::Ledger;
use weft_rt::sync::block_on;
use weft_rt::{Batch, Boundary, MorselQueue, Runtime, RuntimeOptions};
use weft_store::{
    Change, Column, Directory, ScanOptions, ScanStats, Store, StoreOptions, Table, TableSchema,
    WriterOptions,
};

use crate::args::{StorageArgs, cores};
use crate::data::progress_bar;
use crate::error::BenchError;
use crate::report::units;
use crate::report::{Machine, Point};
use crate::workload::tpch_rows::{TpchSource, TpchTable};

/// Bytes of one raw read.
const READ_BYTES: usize = 1 << 20;

/// Raw reads in flight.
const READS_IN_FLIGHT: usize = 32;

/// Rows that are made at a time.
const ROWS_PER_PART: u64 = 160_000;

/// Writes lineitem if it is not there, and scans it.
///
/// # Errors
/// [`BenchError`] if the data cannot be written or read.
pub fn run(args: &StorageArgs, machine: &Machine) -> Result<Vec<Point>, BenchError> {
    let path = args.common.data.join(format!("storage-sf{}.weft", args.scale));
    let bench = Storage { args, machine, path };
    bench.write()?;
    let device = bench.device_bandwidth()?;
    let mut points = vec![Point {
        pattern: Some("plain reads".to_owned()),
        gb_per_s: Some(device),
        seconds: 0.0,
        ..bench.point()
    }];
    let columns: Vec<String> = bench.open()?.1.schema().columns.iter().map(name_of).collect();
    let all: Vec<usize> = (0..columns.len()).collect();
    let bar = progress_bar("scans").with_message("scanning");
    bar.set_length((columns.len() as u64 + 1) * u64::from(args.common.repeat));
    points.extend(bench.scans("all columns", &all, device, &mut || bar.inc(1))?);
    for (number, column) in columns.iter().enumerate() {
        points.extend(bench.scans(column, &[number], device, &mut || bar.inc(1))?);
    }
    bar.finish_and_clear();
    Ok(points)
}

/// What the points say about the goals, in words.
pub fn summary(points: &[Point]) -> String {
    let rate = |pattern: &str, cached: Option<f64>, of: fn(&Point) -> Option<f64>| {
        let is_it = |point: &&Point| {
            point.pattern.as_deref() == Some(pattern)
                && (cached.is_none() || point.cached == cached)
        };
        points.iter().find(is_it).and_then(of).unwrap_or(0.0)
    };
    let cold = rate("all columns", Some(0.0), |point| point.gb_per_s);
    let hot = rate("all columns", Some(1.0), |point| point.gb_per_s);
    let decoded = rate("all columns", Some(1.0), |point| point.decoded_gb_per_s);
    let device = rate("plain reads", None, |point| point.gb_per_s);
    let bound = device.min(hot);
    format!(
        "one thread scans all columns cold at {} GB/s: {} of what bounds it (the device reads {} GB/s, \
         a core decodes {} GB/s of encoded data); hot it makes {} GB/s of decoded data\n",
        units::number(cold),
        units::percent(cold / bound.max(f64::MIN_POSITIVE)),
        units::number(device),
        units::number(hot),
        units::number(decoded)
    )
}

fn name_of(column: &Column) -> String {
    column.name.clone()
}

struct Storage<'a> {
    args: &'a StorageArgs,
    machine: &'a Machine,
    path: PathBuf,
}

/// One scan.
struct Scanned {
    seconds: f64,
    stats: ScanStats,
    decoded_bytes: u64,
}

impl Storage<'_> {
    fn store(&self, workers: u32) -> Result<Arc<Store>, BenchError> {
        let driver = match self.args.io_driver.as_str() {
            "uring" => DriverKind::Uring,
            "posix" => DriverKind::Posix,
            "blocking" => DriverKind::Blocking,
            _ => DriverKind::Auto,
        };
        let options = RuntimeOptions {
            workers: workers as usize,
            driver,
            io_depth: self.args.depth as usize,
            ..RuntimeOptions::default()
        };
        let runtime = Arc::new(Runtime::new(&options)?);
        let options = StoreOptions { create: true, ..StoreOptions::default() };
        let directory = Directory::Os(self.path.clone());
        let ledger = Ledger::new(self.args.memory_mib << 20);
        Ok(Store::open(&directory, &options, runtime, ledger)?)
    }

    /// The table, with one thread that reads it, and the store that it is of.
    fn open(&self) -> Result<(Arc<Store>, Arc<Table>), BenchError> {
        let store = self.store(1)?;
        let Some(table) = store.snapshot().table("lineitem") else {
            let path = self.path.display();
            return Err(BenchError::Usage(format!(
                "{path} has no lineitem; delete it and run again"
            )));
        };
        Ok((store, table))
    }

    /// Writes the table with all cores, unless it is there.
    fn write(&self) -> Result<(), BenchError> {
        let store = self.store(cores())?;
        if store.snapshot().table("lineitem").is_some_and(|table| table.rows() > 0) {
            return Ok(());
        }
        let source = TpchSource::new(self.args.scale);
        let rows = TpchTable::Lineitem.rows(self.args.scale);
        let parts = (rows / ROWS_PER_PART).max(1) as u32;
        let bar = progress_bar("rows").with_message("writing lineitem");
        bar.set_length(rows);
        let arrow_schema = source.part(TpchTable::Lineitem, 0, u32::MAX >> 1)?.schema();
        let columns = arrow_schema.fields().iter().map(|field| Column {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            nullable: false,
            default: None,
            max_length: None,
            kind: None,
        });
        let schema = TableSchema { name: "lineitem".to_owned(), columns: columns.collect() };
        let writer = store.writer(&schema, WriterOptions::default())?;
        let mut partition = writer.partition(0);
        for number in 0..parts {
            let batch = source.part(TpchTable::Lineitem, number, parts)?;
            bar.inc(batch.num_rows() as u64);
            block_on(partition.append(batch))?;
        }
        block_on(partition.finish())?;
        let groups = block_on(writer.finish())?;
        bar.finish_and_clear();
        store.commit_blocking(vec![
            Change::CreateTable { schema, or_replace: true },
            Change::Append { table: "lineitem".to_owned(), expected: None, groups },
        ])?;
        Ok(())
    }

    /// Cold and hot scans of some columns.
    fn scans(
        &self,
        pattern: &str,
        columns: &[usize],
        device: f64,
        done: &mut dyn FnMut(),
    ) -> Result<[Point; 2], BenchError> {
        let (mut cold, mut hot) = (Vec::new(), Vec::new());
        for _ in 0..self.args.common.repeat {
            let (store, table) = self.open()?;
            block_on(table.load())?;
            cold.push(scan(&table, columns, self.args.depth)?);
            hot.push(scan(&table, columns, self.args.depth)?);
            drop((table, store));
            done();
        }
        let encoded = cold[0].stats.bytes_read;
        let hot_point = self.scan_point(pattern, 1.0, hot, encoded, None);
        let bound = hot_point.gb_per_s.map(|rate| rate.min(device));
        let cold_point = self.scan_point(pattern, 0.0, cold, encoded, bound);
        Ok([cold_point, hot_point])
    }

    fn scan_point(
        &self,
        pattern: &str,
        cached: f64,
        mut runs: Vec<Scanned>,
        encoded: u64,
        bound: Option<f64>,
    ) -> Point {
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let run = &runs[runs.len() / 2];
        Point {
            pattern: Some(pattern.to_owned()),
            cached: Some(cached),
            repetitions: runs.len() as u32,
            seconds: run.seconds,
            seconds_min: runs.first().map(|run| run.seconds),
            seconds_max: runs.last().map(|run| run.seconds),
            rows: Some(run.stats.rows_out),
            gb_per_s: Some(encoded as f64 / run.seconds / 1e9),
            decoded_gb_per_s: Some(run.decoded_bytes as f64 / run.seconds / 1e9),
            optimum_gb_per_s: bound,
            bytes_read: Some(run.stats.bytes_read),
            reads: Some(run.stats.reads),
            bytes_on_disk: Some(encoded),
            ..self.point()
        }
    }

    /// What all points share.
    fn point(&self) -> Point {
        Point {
            experiment: "storage".to_owned(),
            driver: self.args.io_driver.clone(),
            device: self.machine.device.clone(),
            threads: 1,
            depth: self.args.depth,
            scale: Some(self.args.scale),
            repetitions: self.args.common.repeat,
            ..Point::default()
        }
    }

    /// 10^9 bytes per second of plain large reads of the same files, by one thread; the median.
    fn device_bandwidth(&self) -> Result<f64, BenchError> {
        let files = data_files(&self.path)?;
        let rates: Result<Vec<f64>, BenchError> =
            (0..self.args.common.repeat).map(|_| read_all(&files)).collect();
        Ok(crate::dram::median(rates?.into_iter()))
    }
}

/// Scans some columns to the end and throws the rows away.
fn scan(table: &Arc<Table>, columns: &[usize], depth: u32) -> Result<Scanned, BenchError> {
    let options = ScanOptions {
        projection: columns.to_vec(),
        io_depth: depth as usize,
        ..ScanOptions::default()
    };
    let start = Instant::now();
    let mut scan = table.scan(options)?;
    let mut decoded_bytes = 0;
    while let Some(batch) = scan.next_blocking() {
        decoded_bytes += decoded(&batch?);
    }
    Ok(Scanned { seconds: start.elapsed().as_secs_f64(), stats: scan.stats(), decoded_bytes })
}

/// Bytes of a batch in Arrow's layout: fixed-width values, views, and the bytes of long strings.
fn decoded(batch: &RecordBatch) -> u64 {
    let of_column = |column: &Arc<dyn Array>| match column.data_type().primitive_width() {
        Some(width) => width * column.len(),
        None => column.as_any().downcast_ref::<StringViewArray>().map_or(0, |strings| {
            let long = strings.lengths().filter(|length| *length > 12);
            16 * strings.len() + long.map(|length| length as usize).sum::<usize>()
        }),
    };
    batch.columns().iter().map(of_column).sum::<usize>() as u64
}

/// The files of a database that are large enough to measure a device with.
fn data_files(path: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let fail = |source| BenchError::Io { action: "list", path: path.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let metadata = entry.metadata().map_err(fail)?;
        if metadata.is_file() && metadata.len() >= READ_BYTES as u64 {
            files.push(entry.path());
        }
    }
    Ok(files)
}

fn read_all(paths: &[PathBuf]) -> Result<f64, BenchError> {
    let options = RuntimeOptions {
        workers: 1,
        driver: DriverKind::Auto,
        io_depth: READS_IN_FLIGHT,
        ..RuntimeOptions::default()
    };
    let runtime = Runtime::new(&options)?;
    let (mut seconds, mut bytes) = (0.0, 0);
    for path in paths {
        let length = fs::metadata(path).map_or(0, |found| found.len());
        let reads = length / READ_BYTES as u64;
        let file = File::open(path, Access::Read)?;
        let (arena, mut buffers) = Arena::carve(READS_IN_FLIGHT, READ_BYTES).map_err(|error| {
            BenchError::Usage(format!("cannot map buffers to read {}: {error}", path.display()))
        })?;
        runtime.register(&arena);
        let queue = Arc::new(MorselQueue::new(reads, 1));
        let start = Instant::now();
        let task = runtime.spawn_on(0, move || {
            Batch::new(READS_IN_FLIGHT, Boundary::Weak, move || {
                Some(reader(file.clone(), queue.clone(), buffers.pop()?))
            })
        });
        task.wait()??;
        seconds += start.elapsed().as_secs_f64();
        bytes += reads * READ_BYTES as u64;
    }
    Ok(bytes as f64 / f64::max(seconds, f64::MIN_POSITIVE) / 1e9)
}

async fn reader(file: File, queue: Arc<MorselQueue>, mut buffer: IoBuf) -> Result<(), FileError> {
    while let Some(reads) = queue.next() {
        let (result, same) = file.read_exact(buffer, reads.start * READ_BYTES as u64).await;
        result?;
        buffer = same;
    }
    Ok(())
}
