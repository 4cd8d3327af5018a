//! The columns of a point for human readers, shared by the terminal tables and the page: which there
//! are, how their values are written, and which of them a given set of points needs.

use super::{Point, units};

/// What a column holds, which decides how it is treated when it is the same for every point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A setting: moves to the caption when every point has the same value.
    Setting,
    /// A measured value: always a column when any point has it.
    Measured,
}

/// One column of a table of points.
pub struct Column {
    /// Header without the unit.
    pub name: &'static str,
    /// Unit, empty if the values carry it or have none.
    pub unit: &'static str,
    /// Whether the values are numbers (set flush right).
    pub numeric: bool,
    /// Setting or measured value.
    pub kind: Kind,
    /// Low numbers stay longest when the terminal is narrow.
    pub rank: u8,
    /// The value of a point as text, `None` if it has none.
    pub cell: fn(&Point) -> Option<String>,
}

/// Every column, from left to right.
const ALL: &[Column] = &[
    text("pattern", 1, |p| p.pattern.clone()),
    text("driver", 0, |p| Some(p.driver.clone())),
    text("device", 3, |p| Some(device(p)).filter(|name| !name.is_empty())),
    setting("page", 1, |p| p.page_size.map(units::bytes)),
    setting("cached", 1, |p| p.cached.map(units::percent)),
    setting("scale", 4, |p| p.scale.map(|scale| format!("SF {scale}"))),
    setting("limit", 0, |p| p.memory_limit.map(units::bytes)),
    text("partition", 0, |p| p.partition.clone()),
    text("spills", 0, |p| p.spill_mode.clone()),
    text("compression", 0, |p| p.spill_compression.clone()),
    setting("bandwidth", 0, |p| p.io_bandwidth_limit.map(|limit| units::bytes(limit) + "/s")),
    setting("neighbour", 0, neighbour),
    text("variant", 0, |p| p.variant.clone()),
    text("compile", 0, |p| p.compile.clone()),
    text("suspends", 0, |p| p.suspends.map(|once| if once { "once" } else { "no" }.to_owned())),
    text("isolation", 3, |p| p.isolation.clone()),
    setting("suppliers", 2, |p| p.suppliers.map(|count| count.to_string())),
    text("boundary", 3, |p| p.boundary.clone()),
    setting("threads", 0, |p| Some(p.threads.to_string())),
    setting("depth", 0, |p| Some(p.depth.to_string())),
    setting("runs", 8, |p| Some(p.repetitions.to_string())),
    measured("time", "", 6, |p| (p.seconds > 0.0).then(|| units::seconds(p.seconds))),
    measured("min", "", 9, |p| spread(p, p.seconds_min)),
    measured("max", "", 9, |p| spread(p, p.seconds_max)),
    measured("processor", "", 2, |p| p.processor_seconds.map(units::seconds)),
    measured("throughput", "GB/s", 0, |p| p.gb_per_s.map(units::number)),
    measured("decoded", "GB/s", 1, |p| p.decoded_gb_per_s.map(units::number)),
    measured("rows", "1/s", 0, |p| p.rows_per_s().map(units::number)),
    measured("bytes/row", "", 3, |p| Some(units::number(p.bytes_on_disk? as f64 / p.rows? as f64))),
    measured("per thread", "GB/s", 4, |p| several(p, p.gb_per_s_per_thread()).map(units::number)),
    measured("lookups", "1/s", 0, |p| p.lookups_per_s.map(units::number)),
    measured("per thread", "1/s", 4, |p| {
        several(p, p.lookups_per_s_per_thread()).map(units::number)
    }),
    measured("transactions", "1/s", 0, |p| p.txn_per_s.map(units::number)),
    measured("per processor", "1/s", 2, |p| p.txn_per_processor_s.map(units::number)),
    measured("new orders", "1/min", 4, |p| p.new_orders_per_minute.map(units::number)),
    measured("aborts", "", 4, |p| {
        p.aborts.as_ref().map(|by_kind| units::count(by_kind.values().sum::<u64>() as f64))
    }),
    measured("frame", "bytes", 1, |p| p.frame_bytes.map(|bytes| bytes.to_string())),
    measured("probes", "1/s", 0, |p| p.probes_per_s.map(units::number)),
    measured("reads", "1/s", 2, |p| p.iops.map(units::number)),
    measured("p50", "µs", 2, |p| p.latency_us.map(|l| units::number(l.p50))),
    measured("p90", "µs", 7, |p| p.latency_us.map(|l| units::number(l.p90))),
    measured("p99", "µs", 3, |p| p.latency_us.map(|l| units::number(l.p99))),
    measured("p99.9", "µs", 5, |p| p.latency_us.map(|l| units::number(l.p999))),
    measured("max", "µs", 7, |p| p.latency_us.map(|l| units::number(l.max))),
    measured("time/op", "ns", 0, |p| p.ns_per_op.map(units::number)),
    measured("time/call", "ns", 0, |p| p.ns_per_call.map(units::number)),
    measured("allocations/call", "", 1, |p| p.allocations_per_call.map(units::number)),
    measured("switch", "ns", 2, |p| p.overhead_ns.map(units::number)),
    measured("optimum", "GB/s", 5, |p| p.optimum_gb_per_s.map(units::number)),
    measured("vs naive", "", 1, |p| p.ratio_to_naive.map(units::ratio)),
    measured("vs blocking", "", 1, |p| p.ratio_to_blocking.map(units::ratio)),
    measured("vs fio", "", 1, |p| p.ratio_to_fio.map(units::ratio)),
    measured("read", "", 6, |p| p.bytes_read.map(units::bytes)),
    measured("written", "", 6, |p| p.bytes_written.map(units::bytes)),
    measured("spilled", "", 1, |p| p.spilled_bytes.map(units::bytes)),
    measured("uncompressed", "", 3, |p| p.spilled_bytes_raw.map(units::bytes)),
    measured("partitions", "", 4, |p| p.spilled_partitions.map(|n| n.to_string())),
    measured("spilled as", "", 3, schemes),
    measured("ratio", "", 0, |p| p.compression_ratio().map(units::ratio)),
    measured("compress", "ns/B", 1, |p| p.compress_ns.map(units::number)),
    measured("decompress", "ns/B", 1, |p| p.decompress_ns.map(units::number)),
    measured("on disk", "", 5, |p| p.bytes_on_disk.map(units::bytes)),
    measured("reads", "", 6, |p| p.reads.map(|n| units::count(n as f64))),
    measured("shared", "", 7, |p| p.reads_shared.map(|n| units::count(n as f64))),
    measured("memory peak", "", 6, |p| p.resident_bytes_peak.map(units::bytes)),
    measured("allowed", "", 5, |p| p.resident_bytes_allowed.map(units::bytes)),
    text("answer", 2, |p| p.answer.clone()),
];

const fn text(name: &'static str, rank: u8, cell: fn(&Point) -> Option<String>) -> Column {
    Column { name, unit: "", numeric: false, kind: Kind::Setting, rank, cell }
}

const fn setting(name: &'static str, rank: u8, cell: fn(&Point) -> Option<String>) -> Column {
    Column { name, unit: "", numeric: true, kind: Kind::Setting, rank, cell }
}

const fn measured(
    name: &'static str,
    unit: &'static str,
    rank: u8,
    cell: fn(&Point) -> Option<String>,
) -> Column {
    Column { name, unit, numeric: true, kind: Kind::Measured, rank, cell }
}

/// The device of a point with a word that it was simulated, if it was and its name does not say so.
pub fn device(point: &Point) -> String {
    if point.simulated && !point.device.to_lowercase().contains("simulated") {
        format!("{} (simulated)", point.device).trim_start().to_string()
    } else {
        point.device.clone()
    }
}

/// When a neighbour came, when it left, and what it left of the devices.
fn neighbour(point: &Point) -> Option<String> {
    let rate = units::bytes(point.neighbour_bytes_per_s?);
    let from = units::seconds(point.neighbour_from_s?);
    let to = point.neighbour_to_s.map_or("the end".to_owned(), units::seconds);
    Some(format!("{rate}/s from {from} to {to}"))
}

/// The part of what was spilled that each scheme had, if any but `off` had some.
pub fn schemes(point: &Point) -> Option<String> {
    let shares = point.scheme_shares();
    if shares.iter().all(|(scheme, _)| scheme == "off") {
        return None;
    }
    let words = shares.iter().map(|(scheme, share)| format!("{scheme} {}", units::percent(*share)));
    Some(words.collect::<Vec<_>>().join(", "))
}

fn spread(point: &Point, seconds: Option<f64>) -> Option<String> {
    seconds.filter(|_| point.repetitions > 1).map(units::seconds)
}

fn several(point: &Point, rate: Option<f64>) -> Option<f64> {
    rate.filter(|_| point.threads > 1)
}

/// The columns that a set of points needs, and the settings that are the same for all of them.
pub struct Selection {
    /// Columns that vary or that were measured, left to right.
    pub columns: Vec<&'static Column>,
    /// (name, value) of each setting shared by all points, for the caption.
    pub shared: Vec<(&'static str, String)>,
}

/// Chooses columns for the points: a setting becomes a column when it varies, a measured value when any
/// point has it.
pub fn select(points: &[&Point]) -> Selection {
    let mut selection = Selection { columns: Vec::new(), shared: Vec::new() };
    for column in ALL {
        let mut values = points.iter().map(|point| (column.cell)(point));
        let Some(first) = values.next() else { break };
        let constant = values.all(|value| value == first);
        match (column.kind, constant, first) {
            (Kind::Setting, true, Some(value)) => selection.shared.push((column.name, value)),
            (_, true, None) => {}
            _ => selection.columns.push(column),
        }
    }
    selection
}

/// The settings of a caption in words: `page 64 KiB, 60 % cached, 1 thread`.
pub fn caption(shared: &[(&str, String)]) -> String {
    let phrase = |(name, value): &(&str, String)| match *name {
        "cached" => format!("{value} cached"),
        "threads" => format!("{value} {}", if value == "1" { "thread" } else { "threads" }),
        "runs" => format!("{value} {}", if value == "1" { "run" } else { "runs (median)" }),
        "boundary" => format!("{value} morsel boundary"),
        "answer" => format!("answers {value}"),
        "device" | "scale" | "pattern" => value.clone(),
        _ => format!("{name} {value}"),
    };
    shared.iter().map(phrase).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varying_settings_become_columns_and_shared_ones_the_caption() {
        let point = |threads| Point {
            driver: "uring".into(),
            threads,
            depth: 64,
            cached: Some(0.6),
            gb_per_s: Some(2.0),
            ..Point::default()
        };
        let (one, four) = (point(1), point(4));
        let selection = select(&[&one, &four]);
        let names: Vec<_> = selection.columns.iter().map(|column| column.name).collect();
        assert_eq!(names, ["threads", "throughput", "per thread"]);
        assert_eq!(
            caption(&selection.shared),
            "driver uring, 60 % cached, depth 64, 0 runs (median)"
        );
    }

    #[test]
    fn simulated_devices_say_so_once() {
        let mut point = Point { simulated: true, device: "8 SSDs".into(), ..Point::default() };
        assert_eq!(device(&point), "8 SSDs (simulated)");
        point.device = "simulated array".into();
        assert_eq!(device(&point), "simulated array");
    }
}
