//! The dimensions along which points differ, and grouping by them: how a heap of points becomes the
//! facets, series and x positions of figures.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Point, columns, units};

/// Units of axes, in bytes.
const MIB: f64 = 1_048_576.0;
const MB: f64 = 1e6;

/// A setting of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Access pattern or variant.
    Pattern,
    /// How index probes are made, or transactions are run.
    Variant,
    /// Suppliers that Q2* looks at.
    Suppliers,
    /// What transactions see of each other.
    Isolation,
    /// I/O driver.
    Driver,
    /// Device, real or simulated.
    Device,
    /// Worker threads.
    Threads,
    /// I/O depth per thread, or batch size.
    Depth,
    /// Fraction served from memory.
    Cached,
    /// Bytes per page or read.
    PageSize,
    /// Morsel boundary.
    Boundary,
    /// Scale factor of the data.
    Scale,
    /// Memory limit.
    MemoryLimit,
    /// How what is spilled is compressed.
    Compression,
    /// When operators partition, and which partitions they spill.
    Way,
    /// Bytes per second that the devices are limited to.
    Bandwidth,
    /// Bytes per second that one thread compresses.
    CompressionSpeed,
    /// Bytes per second that come out where one thread decompresses.
    DecompressionSpeed,
}

/// The value of a setting: ordered by `order`, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    order: u64,
    /// The value in words, empty if the point does not have the setting.
    pub label: String,
}

impl Dim {
    /// The value that a point has in this dimension.
    pub fn key(self, point: &Point) -> Key {
        let number = |value: f64, label: String| ((value * 1e4).round() as u64, label);
        let (order, label) = match self {
            Dim::Pattern => pattern(point),
            Dim::Variant => (0, point.variant.clone().unwrap_or_default()),
            Dim::Suppliers => point.suppliers.map_or((0, String::new()), |count| {
                (u64::from(count), format!("{count} suppliers"))
            }),
            Dim::Isolation => (0, point.isolation.clone().unwrap_or_default()),
            Dim::Driver => driver(point),
            Dim::Device => (u64::from(point.simulated), columns::device(point)),
            Dim::Threads => (u64::from(point.threads), units::plural(point.threads, "thread")),
            Dim::Depth => (u64::from(point.depth), format!("depth {}", point.depth)),
            Dim::Cached => point.cached.map_or((0, String::new()), |cached| {
                number(cached, format!("{} cached", units::percent(cached)))
            }),
            Dim::PageSize => {
                point.page_size.map_or((0, String::new()), |bytes| (bytes, units::bytes(bytes)))
            }
            Dim::Boundary => point
                .boundary
                .as_ref()
                .map_or((0, String::new()), |boundary| (0, format!("{boundary} boundary"))),
            Dim::Scale => point
                .scale
                .map_or((0, String::new()), |scale| number(scale, format!("scale factor {scale}"))),
            Dim::MemoryLimit => {
                point.memory_limit.map_or((0, String::new()), |bytes| (bytes, units::bytes(bytes)))
            }
            Dim::Compression => compression(point),
            Dim::Way => (0, way(point)),
            Dim::Bandwidth => point
                .io_bandwidth_limit
                .map_or((u64::MAX, String::new()), |bytes| (bytes, units::bytes(bytes) + "/s")),
            Dim::CompressionSpeed | Dim::DecompressionSpeed => self
                .x(point)
                .map_or((0, String::new()), |speed| number(speed, format!("{speed:.0} MB/s"))),
        };
        Key { order, label }
    }

    /// Position on an x axis, `None` for dimensions without numbers.
    pub fn x(self, point: &Point) -> Option<f64> {
        match self {
            Dim::Threads => Some(f64::from(point.threads)),
            Dim::Depth => Some(f64::from(point.depth)),
            Dim::Suppliers => point.suppliers.map(f64::from),
            Dim::Cached => point.cached,
            Dim::PageSize => point.page_size.map(|bytes| bytes as f64),
            Dim::Scale => point.scale,
            Dim::MemoryLimit => point.memory_limit.map(|bytes| (bytes as f64 / MIB).round()),
            Dim::Bandwidth => point.io_bandwidth_limit.map(|bytes| bytes as f64 / MB),
            Dim::CompressionSpeed => speed(point.compress_ns),
            Dim::DecompressionSpeed => speed(point.decompress_ns),
            Dim::Pattern
            | Dim::Variant
            | Dim::Isolation
            | Dim::Driver
            | Dim::Device
            | Dim::Boundary
            | Dim::Compression
            | Dim::Way => None,
        }
    }

    /// The distinct values among the points, ascending.
    pub fn values(self, points: &[&Point]) -> Vec<Key> {
        let mut keys: Vec<Key> = points.iter().map(|point| self.key(point)).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

/// MB per second where a byte takes so many nanoseconds.
fn speed(ns: Option<f64>) -> Option<f64> {
    ns.filter(|ns| *ns > 0.0).map(|ns| (1e9 / ns / MB).round())
}

/// What was chosen of how operators partition and spill.
fn way(point: &Point) -> String {
    let partition = point.partition.as_ref().map(|mode| format!("partitioned {mode}"));
    let spilled = point.spill_mode.as_ref().map(|mode| format!("spilling {mode}"));
    let chosen: Vec<String> = partition.into_iter().chain(spilled).collect();
    chosen.join(", ")
}

/// An access pattern, sequential before random.
fn pattern(point: &Point) -> (u64, String) {
    let name = point.pattern.clone().unwrap_or_default();
    let known = ["sequential", "random", "dram-sequential", "dram-random"];
    let order = known.iter().position(|pattern| *pattern == name).unwrap_or(known.len());
    (order as u64, name)
}

/// How what is spilled was compressed, in words: off first, then by how much, `auto` last.
fn compression(point: &Point) -> (u64, String) {
    let Some(name) = &point.spill_compression else { return (0, String::new()) };
    let level = name.strip_prefix("zstd:").and_then(|level| level.parse::<i64>().ok());
    let order = match (name.as_str(), level) {
        ("off", _) => 1,
        ("lz4", _) => 2,
        (_, Some(level)) => (100 + level).unsigned_abs(),
        _ => u64::MAX,
    };
    (order, name.clone())
}

/// A driver in words, ordered with the baselines first.
fn driver(point: &Point) -> (u64, String) {
    let (order, label) = match point.driver.as_str() {
        "blocking" => (0, "blocking"),
        "sim-blocking" => (1, "blocking (simulated)"),
        "posix" => (2, "POSIX threads"),
        "uring" => (3, "io_uring"),
        "sim" => (4, "asynchronous (simulated)"),
        "fio" => (5, "fio"),
        other => (6, other),
    };
    let simulated = point.simulated && !label.contains("simulated");
    (order, if simulated { format!("{label} (simulated)") } else { label.to_string() })
}

/// Groups points by their values in the given dimensions, groups in ascending order, points in the
/// order given.
pub fn group<'a>(points: &[&'a Point], dims: &[Dim]) -> Vec<Vec<&'a Point>> {
    let mut groups: BTreeMap<Vec<Key>, Vec<&Point>> = BTreeMap::new();
    for point in points {
        let keys = dims.iter().map(|dim| dim.key(point)).collect();
        groups.entry(keys).or_default().push(point);
    }
    groups.into_values().collect()
}

/// The cached fraction of the paper's Figures 5 and 8.
const CACHED_IN_PAPER: f64 = 0.6;

/// Of the slices with the same fraction cached, the one whose points take the most distinct values in
/// `along`: that in which `along` was swept. Of equals it is the one nearest to the paper's; with
/// everything cached there would be no I/O to compare.
pub fn widest_slice<'a>(points: &[&'a Point], along: Dim) -> Vec<&'a Point> {
    let distance = |members: &[&Point]| {
        let cached = members[0].cached.unwrap_or(CACHED_IN_PAPER);
        ((cached - CACHED_IN_PAPER).abs() * 1e4) as u64
    };
    let slices = group(points, &[Dim::Cached]).into_iter();
    slices
        .max_by_key(|members| (along.values(members).len(), Reverse(distance(members))))
        .unwrap_or_default()
}

/// The label of a series in words: its values in the dimensions that vary among all `points` of the
/// figure. A blocking driver has no depth and no morsel boundary worth naming.
pub fn label(member: &Point, points: &[&Point], dims: &[Dim]) -> String {
    let varying = dims.iter().filter(|dim| {
        let moot = member.is_blocking() && matches!(dim, Dim::Depth | Dim::Boundary);
        !moot && dim.values(points).len() > 1
    });
    let words: Vec<String> =
        varying.map(|dim| dim.key(member).label).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { Dim::Driver.key(member).label } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(driver: &str, threads: u32, depth: u32, cached: f64) -> Point {
        let driver = driver.to_string();
        Point { driver, threads, depth, cached: Some(cached), ..Point::default() }
    }

    #[test]
    fn groups_come_in_numeric_order() {
        let points =
            [point("uring", 16, 1, 0.5), point("uring", 2, 1, 0.5), point("uring", 16, 2, 0.5)];
        let members: Vec<&Point> = points.iter().collect();
        let groups = group(&members, &[Dim::Threads]);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn the_slice_that_was_swept_is_found() {
        let points = [
            point("uring", 1, 1, 0.6),
            point("uring", 2, 1, 0.6),
            point("uring", 4, 1, 0.6),
            point("uring", 4, 1, 0.9),
        ];
        let members: Vec<&Point> = points.iter().collect();
        assert_eq!(widest_slice(&members, Dim::Threads).len(), 3);
    }

    #[test]
    fn of_slices_swept_alike_it_is_the_paper_s() {
        let fractions = [0.0, 0.4, 0.6, 0.9, 1.0];
        let points = fractions.map(|cached| point("uring", 1, 8, cached));
        let members: Vec<&Point> = points.iter().collect();
        assert_eq!(widest_slice(&members, Dim::Threads)[0].cached, Some(0.6));
        assert_eq!(widest_slice(&members[3..], Dim::Threads)[0].cached, Some(0.9));
    }

    #[test]
    fn labels_name_only_what_varies() {
        let points =
            [point("blocking", 1, 1, 0.6), point("uring", 1, 8, 0.6), point("uring", 1, 64, 0.6)];
        let members: Vec<&Point> = points.iter().collect();
        let labels: Vec<_> = members
            .iter()
            .map(|p| label(p, &members, &[Dim::Driver, Dim::Depth, Dim::Cached]))
            .collect();
        assert_eq!(labels, ["blocking", "io_uring, depth 8", "io_uring, depth 64"]);
        assert_eq!(label(&points[1], &[&points[1]], &[Dim::Driver]), "io_uring");
    }
}
