//! [`Point`]: one measured point, the unit that every experiment hands to the report. A point carries
//! everything needed to place it in a figure, so that a file of points alone redraws the report.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::{OverTime, units};
use crate::args::setting;

/// How the answer of a query begins that has none, or a wrong one.
const FAILED: &str = "failed: ";

/// One measured point: the settings under which it was taken and what was measured.
///
/// Serializes to one flat JSON object (only `latency_us`, `spilled_by_scheme` and `over_time` nest) with the field names below; an option
/// that is `None` is left out. [`FIELD_HELP`] explains each field to a reader of the files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Which experiment: `io`, `scan`, `lookup`, `prefetch`, `tpch`, `tpcds`, `memory`, `storage`, `agg`,
    /// `join`, `sort`, `compression`, `rate`, `compile`, `inlj`, `probe`, `coroutine`, `tpcc`, `ycsb` or `htap`.
    pub experiment: String,
    /// Access pattern: for `io` `sequential`, `random`, `random-swips` (through the buffer pool),
    /// `dram-sequential`, `dram-random` or `dram-latency`; for `prefetch` the variant measured; for
    /// the others the query, the column or what was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The number of the query of TPC-H, for `inlj`; of the CH-benCHmark, for `htap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<u32>,
    /// How index probes were made, for `probe`: `naive`, `ermia`, `amac-mk`, `coro-mk` or `coro-fn-mk`; how transactions were run, for
    /// `tpcc` and `ycsb`: `naive`, `ermia`, `amac-mk`, `coro-mk`, `coro-fn-mk`, `corobase-fn`, `corobase`, `corobase-hard` or `hybrid`;
    /// how a function was called, for `coroutine`: `async-fn`, `generated` or `boxed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// When pipelines and lookups were compiled, for `inlj` and `rate`: `never`, `always` or `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile: Option<String>,
    /// Whether each call suspended once, for `coroutine`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspends: Option<bool>,
    /// Lookups in flight at a time, for `probe`; transactions of a thread, for `tpcc` and `ycsb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// The mix of transactions, for `tpcc`: `tpcc`, `tpccr` or `tpcch`; what they do, for `ycsb`: `read`, `update`, `rmw`, `mixed`, `insert` or `scan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Warehouses, for `tpcc` and `htap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warehouses: Option<u32>,
    /// Suppliers that Q2* looks at, for `tpcch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppliers: Option<u32>,
    /// What transactions see of each other: `SI` or `SSN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// Whether commits waited until they were durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
    /// The I/O driver: `blocking`, `uring`, `posix`, `sim`, `sim-blocking`; `fio` for a run of fio,
    /// `memory` for no I/O at all.
    pub driver: String,
    /// Whether the device was simulated. Such points are labelled wherever they are shown.
    pub simulated: bool,
    /// The device or its model, in words.
    pub device: String,
    /// Worker threads.
    pub threads: u32,
    /// I/O depth per thread (requests in flight); for `prefetch` the batch size (coroutines).
    pub depth: u32,
    /// Fraction of the pages (scan) or of the lookups (lookup) served from memory, or of what a query reads that fits there (inlj), or of a table and its index (ycsb), 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
    /// Size of a page or of one read, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_size: Option<u64>,
    /// Morsel boundary: `weak` starts the next morsel as soon as one ends, `hard` waits for the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary: Option<String>,
    /// Scale factor of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Memory limit of the database, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// When operators partitioned what they kept: `adaptive`, `always` or `never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Which partitions they spilled: `hybrid` or `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill_mode: Option<String>,
    /// How what operators spill was compressed: `off`, `lz4`, `zstd:N` or `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill_compression: Option<String>,
    /// Bytes per second that the devices were limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_bandwidth_limit: Option<u64>,
    /// Bytes per second that a neighbour on the devices left of them, who came while the query ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour_bytes_per_s: Option<u64>,
    /// When it came in the median run, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour_from_s: Option<f64>,
    /// When it left, seconds, if the query still ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour_to_s: Option<f64>,
    /// How often the run was repeated; `seconds` is the median of these.
    pub repetitions: u32,
    /// Median run time, seconds. Every rate of the point belongs to this median run.
    pub seconds: f64,
    /// Shortest run, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_min: Option<f64>,
    /// Longest run, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_max: Option<f64>,
    /// Throughput of all threads, 10^9 bytes of processed (scan) or read (io) data per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gb_per_s: Option<f64>,
    /// Throughput in decoded data, 10^9 bytes per second of all threads; `gb_per_s` is of encoded data then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoded_gb_per_s: Option<f64>,
    /// Rows of the median run; of `agg`, `join`, `sort` and `compression` those of its inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Index lookups per second, all threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookups_per_s: Option<f64>,
    /// Keys looked up per second, all threads, for `probe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes_per_s: Option<f64>,
    /// Transactions per second of all threads that have committed, or were rolled back as their input demands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub txn_per_s: Option<f64>,
    /// The same per second of processor time, which counts where others use the machine, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub txn_per_processor_s: Option<f64>,
    /// New-Orders that have committed per minute, without think times: no tpmC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_orders_per_minute: Option<f64>,
    /// How often transactions were run again because of others, by their kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborts: Option<BTreeMap<String, u64>>,
    /// Bytes of a coroutine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_bytes: Option<u64>,
    /// Completed reads per second, all threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<f64>,
    /// Latency of one read from submission to resumption; for `tpcc` of a transaction from its first begin to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<LatencyUs>,
    /// Time per operation, nanoseconds (prefetch: one memory access).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns_per_op: Option<f64>,
    /// Time per call, nanoseconds, for `coroutine`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns_per_call: Option<f64>,
    /// Blocks of the heap that were allocated per call, for `coroutine`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocations_per_call: Option<f64>,
    /// What one suspension and resumption costs above the work itself, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead_ns: Option<f64>,
    /// Bytes read from the device in the median run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_read: Option<u64>,
    /// Bytes written to the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_written: Option<u64>,
    /// Bytes that operators have spilled in the median run, as they lay on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spilled_bytes: Option<u64>,
    /// The same before compression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spilled_bytes_raw: Option<u64>,
    /// The same before compression by scheme: `off` for what was not made smaller, a place of the scale of `auto`, or
    /// `other`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spilled_by_scheme: Option<BTreeMap<String, u64>>,
    /// Partitions of joins and groupings of which something was spilled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spilled_partitions: Option<u64>,
    /// Processor time of compressing a byte, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compress_ns: Option<f64>,
    /// Processor time of decompressing a byte, counted as it was before, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decompress_ns: Option<f64>,
    /// Bytes that a database or one of its columns takes on its devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_on_disk: Option<u64>,
    /// Reads sent to the device in the median run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<u64>,
    /// Lookups that waited for a read another one had already started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_shared: Option<u64>,
    /// Processor time of the process in the median run, seconds, for `inlj`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_seconds: Option<f64>,
    /// Best throughput that the measured device and memory bandwidths permit, 10^9 bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimum_gb_per_s: Option<f64>,
    /// Keys looked up per second / those of the variant `naive` with the same index and threads, for `probe`; transactions
    /// per second of processor time / those of `naive` with the same settings, for `tpcc` and `ycsb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_naive: Option<f64>,
    /// Throughput divided by that of the blocking driver with the same threads, same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_blocking: Option<f64>,
    /// Throughput divided by that of fio with the same settings, same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_fio: Option<f64>,
    /// Largest resident memory of the process during the runs, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes_peak: Option<u64>,
    /// Largest resident memory that the run was allowed, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes_allowed: Option<u64>,
    /// Samples of the median run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_time: Option<OverTime>,
    /// `correct` when the answer was checked and right; otherwise what was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// Percentiles of read latency, µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyUs {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The slowest read.
    pub max: f64,
}

impl Point {
    /// The same with what was chosen of how operators partition, spill and compress: settings of a database by name. What else is
    /// among them the database itself tells.
    #[must_use]
    pub fn with_settings(self, settings: &[(&str, &str)]) -> Point {
        let chosen = |name: &str| setting(settings, name).map(str::to_owned);
        Point {
            partition: chosen("partition"),
            spill_mode: chosen("spill_mode"),
            spill_compression: chosen("spill_compression"),
            ..self
        }
    }

    /// The answer of a query that has none, or a wrong one: what happened.
    pub fn failed(error: &dyn Display) -> String {
        format!("{FAILED}{error}")
    }

    /// Whether it is of a query that has failed.
    pub fn has_failed(&self) -> bool {
        self.answer.as_deref().is_some_and(|answer| answer.starts_with(FAILED))
    }

    /// The query that has failed, how it was run, and what happened.
    pub fn failure(&self) -> Option<String> {
        let error = self.answer.as_deref()?.strip_prefix(FAILED)?;
        let state = if self.cached == Some(0.0) { "cold" } else { "hot" };
        let name = self.pattern.as_deref().unwrap_or_default();
        Some(format!("{name}, {state}, {}: {error}", self.way_of_running()))
    }

    /// How a query was run, in words.
    pub fn way_of_running(&self) -> String {
        let mut words = vec![units::plural(self.threads, "thread")];
        words.extend(self.memory_limit.map(|limit| format!("at {}", units::bytes(limit))));
        let bandwidth = self.io_bandwidth_limit;
        words.extend(bandwidth.map(|rate| format!("devices at {}/s", units::bytes(rate))));
        let chosen = [
            ("partitioned", &self.partition),
            ("spilling", &self.spill_mode),
            ("compression", &self.spill_compression),
        ];
        let chosen = chosen.into_iter().filter_map(|(what, value)| Some((what, value.as_ref()?)));
        words.extend(chosen.map(|(what, value)| format!("{what} {value}")));
        words.join(", ")
    }

    /// Whether the driver waits for each read before it issues the next: the synchronous baseline.
    pub fn is_blocking(&self) -> bool {
        self.driver == "blocking" || self.driver.ends_with("-blocking")
    }

    /// Whether the driver is one of Weft's that keep several reads in flight (`fio` is neither).
    pub fn is_asynchronous(&self) -> bool {
        !self.is_blocking() && matches!(self.driver.as_str(), "uring" | "posix" | "sim")
    }

    /// Throughput per thread, 10^9 bytes per second.
    pub fn gb_per_s_per_thread(&self) -> Option<f64> {
        self.gb_per_s.map(|rate| rate / f64::from(self.threads.max(1)))
    }

    /// Rows per second of all threads.
    pub fn rows_per_s(&self) -> Option<f64> {
        self.rows.filter(|_| self.seconds > 0.0).map(|rows| rows as f64 / self.seconds)
    }

    /// What part of the spilled bytes each scheme had, in the order of the scale; none if nothing was spilled.
    pub fn scheme_shares(&self) -> Vec<(String, f64)> {
        let Some(by_scheme) = &self.spilled_by_scheme else { return Vec::new() };
        let all: u64 = by_scheme.values().sum();
        let shares = schemes().filter_map(|name| {
            let bytes = *by_scheme.get(&name)?;
            (bytes > 0).then(|| (name, bytes as f64 / all as f64))
        });
        shares.collect()
    }

    /// Spilled bytes for each one on disk.
    pub fn compression_ratio(&self) -> Option<f64> {
        let (raw, written) = (self.spilled_bytes_raw?, self.spilled_bytes?);
        (written > 0).then(|| raw as f64 / written as f64)
    }

    /// Lookups per second per thread.
    pub fn lookups_per_s_per_thread(&self) -> Option<f64> {
        self.lookups_per_s.map(|rate| rate / f64::from(self.threads.max(1)))
    }
}

/// What spilled bytes are told apart by: the places of the scale of compression, and all else.
pub fn schemes() -> impl Iterator<Item = String> {
    (0..weft::SPILL_LEVELS).map(weft::spill_level_name)
}

/// What each field of a point means, one per line, for `--help` and for readers of the files.
pub const FIELD_HELP: &str = "\
experiment           io | scan | lookup | prefetch | tpch | tpcds | memory | storage | agg | join |
                     sort | compression | rate | compile | inlj | probe | coroutine | tpcc | ycsb |
                     htap
pattern              io: sequential | random | random-swips (through the buffer pool), and of memory
                     dram-sequential | dram-random | dram-latency; prefetch: the variant;
                     others: the query, the column or what was done
query                inlj: number of the query of TPC-H; htap: of the CH-benCHmark
variant              probe: naive | ermia | amac-mk | coro-mk | coro-fn-mk;
                     tpcc, ycsb: naive | ermia | amac-mk | coro-mk | coro-fn-mk | corobase-fn |
                     corobase | corobase-hard | hybrid;
                     coroutine: async-fn | generated | boxed
compile              inlj, rate: when pipelines and lookups were compiled: never | always | auto
suspends             coroutine: true if each call suspended once
batch                probe: lookups in flight at a time; tpcc, ycsb: transactions of a thread
workload             tpcc: tpcc | tpccr | tpcch; ycsb: read | update | rmw | mixed | insert | scan
warehouses           tpcc, htap: warehouses
suppliers            tpcc: suppliers that Q2* looks at
isolation            tpcc, ycsb: SI | SSN
durable              tpcc: true if commits waited until they were durable
driver               blocking | uring | posix | sim | sim-blocking | fio | memory
simulated            true if the device was simulated, not measured
device               the device, in words
threads              worker threads
depth                I/O depth per thread; prefetch: batch size (coroutines)
cached               fraction of pages (scan) or lookups (lookup) served from memory, 0 to 1;
                     inlj: fraction of what a query reads that fits in memory
                     ycsb: fraction of the table and its index that memory holds
page_size            bytes per page or per read
boundary             weak: next morsel starts when one ends; hard: when the whole batch has ended
scale                scale factor of TPC-H, or of TPC-DS
memory_limit         memory limit of the database, bytes
partition            when operators partitioned what they kept: adaptive | always | never
spill_mode           which partitions they spilled: hybrid | all
spill_compression    how what is spilled was compressed: off | lz4 | zstd:N | auto
io_bandwidth_limit   bytes per second that the devices were limited to
neighbour_bytes_per_s  bytes per second that a neighbour left of them, who came meanwhile
neighbour_from_s     when it came in the median run, seconds
neighbour_to_s       when it left, if the query still ran
repetitions          runs; the values belong to the median run
seconds              median run time
seconds_min          shortest run
seconds_max          longest run
gb_per_s             throughput of all threads, 10^9 bytes/s
decoded_gb_per_s     the same in decoded data; gb_per_s is of encoded data then
rows                 rows of the median run; agg, join, sort, compression: of the inputs
lookups_per_s        index lookups per second, all threads
probes_per_s         probe: keys looked up per second, all threads
txn_per_s            tpcc, ycsb: transactions per second, all threads
txn_per_processor_s  tpcc, ycsb: the same per second of processor time of the process
new_orders_per_minute  tpcc: New-Orders that have committed, without think times
aborts               tpcc, ycsb: how often transactions were run again, by kind
frame_bytes          tpcc: bytes of a coroutine
iops                 completed reads per second, all threads
latency_us           latency of a read, or of a transaction, in microseconds:
  p50                  median
  p90                  90th percentile
  p99                  99th percentile
  p999                 99.9th percentile
  max                  slowest read
ns_per_op            nanoseconds per operation (prefetch: per memory access)
ns_per_call          coroutine: nanoseconds per call
allocations_per_call  coroutine: blocks of the heap that were allocated per call
overhead_ns          nanoseconds of one suspend-resume round above the work itself
bytes_read           bytes read from the device
bytes_written        bytes written to the device
spilled_bytes        bytes that operators have spilled, as they lay on disk
spilled_bytes_raw    the same before compression
spilled_by_scheme    the same by scheme: off, a place of the scale of auto, or other
spilled_partitions   partitions of joins and groupings of which something was spilled
compress_ns          processor time of compressing a byte, nanoseconds
decompress_ns        processor time of decompressing a byte, counted as it was before
bytes_on_disk        bytes that a database or a column takes on its devices
reads                reads sent to the device
reads_shared         lookups that waited for a read started by another
processor_seconds    inlj: processor time of the process
optimum_gb_per_s     best throughput that device and memory bandwidth permit, 10^9 bytes/s
ratio_to_naive       probe: keys per second / those of naive, same index and threads;
                     tpcc, ycsb: the same of transactions per second of processor time
ratio_to_blocking    throughput / that of the blocking driver, same threads, same run
ratio_to_fio         throughput / that of fio, same settings, same run
resident_bytes_peak  largest resident memory of the process, bytes
resident_bytes_allowed  largest resident memory that the run was allowed, bytes
over_time            samples of the median run, ten a second, a list of each:
  seconds              since the run began
  cores                processor time by time: cores that the process used
  resident_bytes       resident memory of the process
  reserved_bytes       what of the memory limit was reserved, its cache included
  read_bytes_per_s     read from devices
  written_bytes_per_s  written to devices
  spilled_raw_bytes_per_s  spilled, before compression
  spilled_by_scheme_bytes_per_s  the same, a list of each scheme that had some
answer               correct, or what was wrong; failed: and why, of a query that has none
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    #[test]
    fn field_help_names_every_field() {
        let value = serde_json::to_value(synthetic::complete_point()).unwrap();
        let helped: Vec<&str> = FIELD_HELP
            .lines()
            // Further lines of an explanation are indented to where it starts.
            .filter(|line| !line.starts_with("    "))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        let object = value.as_object().unwrap();
        let [latency, over_time] =
            ["latency_us", "over_time"].map(|of| object[of].as_object().unwrap());
        for name in object.keys().chain(latency.keys()).chain(over_time.keys()) {
            assert!(helped.contains(&name.as_str()), "FIELD_HELP does not explain {name}");
        }
        assert_eq!(helped.len(), object.len() + latency.len() + over_time.len());
    }

    #[test]
    fn none_is_left_out_and_reads_back() {
        let point = Point { experiment: "scan".into(), driver: "uring".into(), ..Point::default() };
        let text = serde_json::to_string(&point).unwrap();
        assert!(!text.contains("cached") && !text.contains("null"), "{text}");
        assert_eq!(serde_json::from_str::<Point>(&text).unwrap(), point);
    }

    #[test]
    fn per_thread_rates_divide_by_threads() {
        let point = Point { threads: 4, gb_per_s: Some(8.0), ..Point::default() };
        assert_eq!(point.gb_per_s_per_thread(), Some(2.0));
        assert_eq!(point.lookups_per_s_per_thread(), None);
    }

    #[test]
    fn drivers_are_told_apart() {
        for (driver, blocking, asynchronous) in [
            ("blocking", true, false),
            ("sim-blocking", true, false),
            ("uring", false, true),
            ("sim", false, true),
            ("fio", false, false),
        ] {
            let point = Point { driver: driver.into(), ..Point::default() };
            assert_eq!((point.is_blocking(), point.is_asynchronous()), (blocking, asynchronous));
        }
    }
}
