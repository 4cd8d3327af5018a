//! The figures of what spills (Kuschewski et al., Spilly, figures 3, 6 to 8, 10 and 11): time, throughput and spilled bytes
//! over memory limits, scales and the bandwidth of the devices, and what compression makes of it.

use std::collections::BTreeMap;

use super::courses::{self, of_scheme};
use super::figures::named;
use super::plan::{Measure, Plan, subtitle};
use super::point::schemes;
use super::series::{Dim, group};
use super::svg::{Chart, Mark, Series, XScale};
use super::{Point, units};

/// What the figures of an experiment are called, in the order in which they come.
pub struct Names {
    time_over_limit: &'static str,
    throughput_over_limit: &'static str,
    spilled_over_limit: &'static str,
    time_over_bandwidth: &'static str,
    schemes_over_bandwidth: &'static str,
    throughput_over_scale: &'static str,
    spilled_over_scale: &'static str,
    over_time: &'static str,
}

macro_rules! names {
    ($experiment:literal) => {
        Names {
            time_over_limit: concat!("figure-", $experiment, "-time-over-limit"),
            throughput_over_limit: concat!("figure-", $experiment, "-throughput-over-limit"),
            spilled_over_limit: concat!("figure-", $experiment, "-spilled-over-limit"),
            time_over_bandwidth: concat!("figure-", $experiment, "-time-over-bandwidth"),
            schemes_over_bandwidth: concat!("figure-", $experiment, "-schemes-over-bandwidth"),
            throughput_over_scale: concat!("figure-", $experiment, "-throughput-over-scale"),
            spilled_over_scale: concat!("figure-", $experiment, "-spilled-over-scale"),
            over_time: concat!("figure-", $experiment, "-over-time"),
        }
    };
}

/// Those of the aggregation.
pub const AGGREGATION: Names = names!("agg");
/// Those of the joins.
pub const JOINS: Names = names!("join");
/// Those of the sort.
pub const SORT: Names = names!("sort");
/// Those of TPC-H.
pub const TPCH: Names = names!("tpch");
/// Those of TPC-DS.
pub const TPCDS: Names = names!("tpcds");

const TIME_OVER_LIMIT: Plan = Plan {
    title: "Time over the memory limit",
    x: Dim::MemoryLimit,
    measure: Measure::Seconds,
    facets: &[Dim::Device, Dim::Scale, Dim::Threads, Dim::Bandwidth],
    series: &[Dim::Pattern, Dim::Compression, Dim::Way],
    split: &[Dim::Pattern],
    bounds: false,
};
const ROWS_OVER_LIMIT: Plan = Plan {
    title: "Throughput over the memory limit",
    measure: Measure::RowsPerS,
    ..TIME_OVER_LIMIT
};
const QUERIES_OVER_LIMIT: Plan = Plan {
    title: "Throughput over the memory limit",
    measure: Measure::ScaledQueriesPerHour,
    ..TIME_OVER_LIMIT
};
const SPILLED_OVER_LIMIT: Plan = Plan {
    title: "What is spilled over the memory limit",
    measure: Measure::SpilledGb,
    ..TIME_OVER_LIMIT
};
const TIME_OVER_BANDWIDTH: Plan = Plan {
    title: "Time over the bandwidth of the devices",
    x: Dim::Bandwidth,
    facets: &[Dim::Device, Dim::Scale, Dim::Threads, Dim::Pattern],
    series: &[Dim::Compression, Dim::MemoryLimit, Dim::Way],
    split: &[Dim::MemoryLimit],
    ..TIME_OVER_LIMIT
};
const ROWS_OVER_SCALE: Plan = Plan {
    title: "Throughput over the scale of the data",
    x: Dim::Scale,
    measure: Measure::RowsPerS,
    facets: &[Dim::Device, Dim::Threads, Dim::Bandwidth],
    series: &[Dim::Pattern, Dim::MemoryLimit, Dim::Compression, Dim::Way],
    split: &[Dim::MemoryLimit],
    ..TIME_OVER_LIMIT
};
const QUERIES_OVER_SCALE: Plan = Plan { measure: Measure::ScaledQueriesPerHour, ..ROWS_OVER_SCALE };
const SPILLED_OVER_SCALE: Plan = Plan {
    title: "What is spilled over the scale of the data",
    measure: Measure::SpilledGb,
    ..ROWS_OVER_SCALE
};
const RATIO_OVER_SPEED: Plan = Plan {
    title: "How much smaller pages become, over how fast",
    x: Dim::CompressionSpeed,
    measure: Measure::CompressionRatio,
    facets: &[Dim::Device, Dim::Scale, Dim::Threads, Dim::Bandwidth, Dim::Pattern],
    series: &[Dim::Compression],
    split: &[],
    bounds: false,
};
const RATIO_OVER_SPEED_BACK: Plan = Plan {
    title: "How much smaller pages became, over how fast they come back",
    x: Dim::DecompressionSpeed,
    ..RATIO_OVER_SPEED
};

/// Over memory limits, bandwidths and scales, if they were swept, and over the time of the longest runs.
pub fn charts(points: &[&Point], names: &Names) -> Vec<(&'static str, Chart)> {
    swept(points, names, [&ROWS_OVER_LIMIT, &ROWS_OVER_SCALE], points)
}

/// The same of all queries of a benchmark together, and of the longest over their time.
pub fn suite_charts(points: &[&Point], names: &Names) -> Vec<(&'static str, Chart)> {
    let suites = suites(points);
    let suites: Vec<&Point> = suites.iter().collect();
    swept(&suites, names, [&QUERIES_OVER_LIMIT, &QUERIES_OVER_SCALE], points)
}

fn swept(
    points: &[&Point],
    names: &Names,
    [throughput_over_limit, throughput_over_scale]: [&Plan; 2],
    runs: &[&Point],
) -> Vec<(&'static str, Chart)> {
    let is_swept = |dim: Dim| dim.values(points).len() > 1;
    let has_spilled = points.iter().any(|point| point.spilled_bytes > Some(0));
    let mut charts = Vec::new();
    let mut add = |name, plan: &Plan| charts.extend(named(name, plan.draw(points)));
    if is_swept(Dim::MemoryLimit) {
        add(names.time_over_limit, &TIME_OVER_LIMIT);
        add(names.throughput_over_limit, throughput_over_limit);
        if has_spilled {
            add(names.spilled_over_limit, &SPILLED_OVER_LIMIT);
        }
    }
    if is_swept(Dim::Bandwidth) {
        add(names.time_over_bandwidth, &TIME_OVER_BANDWIDTH);
    }
    if is_swept(Dim::Scale) {
        add(names.throughput_over_scale, throughput_over_scale);
        if has_spilled {
            add(names.spilled_over_scale, &SPILLED_OVER_SCALE);
        }
    }
    charts.extend(named(names.schemes_over_bandwidth, schemes_over_bandwidth(points)));
    charts.extend(named(names.over_time, courses::charts(runs)));
    charts
}

/// What part of what is spilled each scheme has, over the bandwidth of the devices, where it is chosen as pages are written.
fn schemes_over_bandwidth(points: &[&Point]) -> Vec<Chart> {
    let is_chosen = |point: &&Point| {
        let is_auto = point.spill_compression.as_deref() == Some("auto");
        is_auto && Dim::Bandwidth.x(point).is_some() && !point.scheme_shares().is_empty()
    };
    let chosen: Vec<&Point> = points.iter().copied().filter(is_chosen).collect();
    let facets = [
        Dim::Device,
        Dim::Scale,
        Dim::Threads,
        Dim::Pattern,
        Dim::MemoryLimit,
        Dim::Way,
        Dim::Compression,
    ];
    let groups = group(&chosen, &facets);
    let swept = groups.iter().filter(|members| Dim::Bandwidth.values(members).len() > 1);
    swept.map(|members| shares(members)).collect()
}

/// The parts above each other: one hundred percent in all.
fn shares(members: &[&Point]) -> Chart {
    let mut at: Vec<(f64, BTreeMap<String, f64>)> = members
        .iter()
        .filter_map(|point| {
            Some((Dim::Bandwidth.x(point)?, point.scheme_shares().into_iter().collect()))
        })
        .collect();
    at.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut sums = vec![0.0; at.len()];
    let mut series = Vec::new();
    for scheme in
        schemes().filter(|scheme| at.iter().any(|(_, shares)| shares.contains_key(scheme)))
    {
        let mut marks = Vec::new();
        for (sum, (x, shares)) in sums.iter_mut().zip(&at) {
            *sum += 100.0 * shares.get(&scheme).copied().unwrap_or(0.0);
            marks.push(Mark { x: *x, y: *sum, range: None });
        }
        let paint = of_scheme(&scheme);
        let (reference, across, filled) = (false, false, true);
        series.push(Series { label: scheme, paint, reference, across, filled, marks });
    }
    series.reverse();
    let pattern = members[0].pattern.as_deref().unwrap_or_default();
    Chart {
        title: format!("What is spilled by each scheme, {pattern}"),
        subtitle: subtitle(members, &[Dim::Bandwidth]),
        x_title: "bandwidth of the devices, MB/s".to_owned(),
        x_scale: XScale::Log2,
        y_title: "% of what is spilled, before compression".to_owned(),
        y_log: false,
        series,
        guides: Vec::new(),
        moments: Vec::new(),
        below: Vec::new(),
    }
}

/// The queries of each setting as one point, whose time is their mean, and which has spilled what all of them have.
fn suites(points: &[&Point]) -> Vec<Point> {
    let queries: Vec<&Point> = points
        .iter()
        .copied()
        .filter(|point| point.cached.is_some() && !point.has_failed())
        .collect();
    let settings = [
        Dim::Device,
        Dim::Threads,
        Dim::Scale,
        Dim::MemoryLimit,
        Dim::Bandwidth,
        Dim::Compression,
        Dim::Way,
        Dim::Driver,
        Dim::Cached,
    ];
    let suite = |members: &Vec<&Point>| {
        let count = members.len() as u32;
        let mean = members.iter().map(|point| point.seconds).sum::<f64>() / f64::from(count.max(1));
        let state = if members[0].cached == Some(0.0) { "cold" } else { "hot" };
        let driver = match members[0].driver.as_str() {
            "auto" => String::new(),
            driver => format!(", {driver}"),
        };
        let sum = |of: fn(&Point) -> Option<u64>| members.iter().map(|point| of(point)).sum();
        let mut by_scheme = BTreeMap::new();
        for (scheme, bytes) in members.iter().filter_map(|p| p.spilled_by_scheme.as_ref()).flatten()
        {
            *by_scheme.entry(scheme.clone()).or_default() += bytes;
        }
        Point {
            pattern: Some(format!(
                "{}, {state}{driver}",
                units::plural_of(count, "query", "queries")
            )),
            seconds: mean,
            seconds_min: None,
            seconds_max: None,
            spilled_bytes: sum(|point| point.spilled_bytes),
            spilled_bytes_raw: sum(|point| point.spilled_bytes_raw),
            spilled_by_scheme: Some(by_scheme),
            over_time: None,
            ..members[0].clone()
        }
    };
    group(&queries, &settings).iter().map(suite).collect()
}

/// What is smaller against what is faster, of each query: on the way to disk, and back.
pub fn compression_charts(points: &[&Point]) -> Vec<(&'static str, Chart)> {
    let fixed: Vec<&Point> = points
        .iter()
        .copied()
        .filter(|point| point.spill_compression.as_deref() != Some("auto"))
        .collect();
    let mut charts = named("figure-3-compression", RATIO_OVER_SPEED.draw(&fixed));
    charts.extend(named("figure-3-decompression", RATIO_OVER_SPEED_BACK.draw(&fixed)));
    charts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figures::{Figure, figures};
    use crate::report::svg::Layout;
    use crate::report::synthetic;

    fn of_name<'a>(figures: &'a [Figure], name: &str) -> &'a Figure {
        let names = || figures.iter().map(|figure| figure.name.as_str()).collect::<Vec<_>>();
        let found = figures.iter().find(|figure| figure.name == name);
        found.unwrap_or_else(|| panic!("{name} is not in {:?}", names()))
    }

    /// A sort of a million rows that takes a second at each limit, scale and bandwidth, and spills a GB per unit of scale.
    fn sort(limit_mib: u64, scale: f64, bandwidth_mb: Option<u64>) -> Point {
        let lz4 = bandwidth_mb.map_or(0, |mb| 1_000 - mb);
        Point {
            experiment: "sort".into(),
            pattern: Some("row_number".into()),
            driver: "auto".into(),
            threads: 2,
            scale: Some(scale),
            memory_limit: Some(limit_mib << 20),
            io_bandwidth_limit: bandwidth_mb.map(|mb| mb * 1_000_000),
            spill_compression: Some("auto".into()),
            seconds: scale,
            rows: Some(1_000_000),
            spilled_bytes: Some((scale * 1e9) as u64),
            spilled_by_scheme: Some([("off".into(), 1_000 - lz4), ("lz4".into(), lz4)].into()),
            ..Point::default()
        }
    }

    #[test]
    fn what_was_swept_is_drawn() {
        let mut points = Vec::new();
        for limit in [64, 256] {
            points.extend([1.0, 2.0].map(|scale| sort(limit, scale, None)));
        }
        let found = figures(&points);
        let throughput = &of_name(&found, "figure-sort-throughput-over-limit").chart;
        let marks = |chart: &Chart| -> Vec<(f64, f64)> {
            chart.series[0].marks.iter().map(|mark| (mark.x, mark.y)).collect()
        };
        assert_eq!(marks(throughput), [(64.0, 1e6), (256.0, 1e6)]);
        let spilled = &of_name(&found, "figure-sort-spilled-over-scale").chart;
        assert_eq!(marks(spilled), [(1.0, 1.0), (2.0, 2.0)]);
        for name in ["time-over-limit", "spilled-over-limit", "throughput-over-scale"] {
            of_name(&found, &format!("figure-sort-{name}"));
        }
        assert!(!found.iter().any(|figure| figure.name.contains("bandwidth")), "{found:?}");
        points.iter_mut().for_each(|point| point.spilled_bytes = Some(0));
        assert!(!figures(&points).iter().any(|figure| figure.name.contains("spilled")));
    }

    #[test]
    fn schemes_have_their_parts_over_bandwidths() {
        let points = [800, 100, 400].map(|mb| sort(64, 1.0, Some(mb)));
        let found = figures(&points);
        of_name(&found, "figure-sort-time-over-bandwidth");
        let figure = of_name(&found, "figure-sort-schemes-over-bandwidth");
        let [lz4, off] = &figure.chart.series[..] else { panic!("{figure:?}") };
        assert_eq!((lz4.label.as_str(), off.label.as_str()), ("lz4", "off"));
        let at =
            |series: &Series| series.marks.iter().map(|mark| mark.y.round()).collect::<Vec<_>>();
        assert_eq!((at(lz4), at(off)), (vec![100.0; 3], vec![10.0, 40.0, 80.0]));
        assert_eq!(lz4.marks.iter().map(|mark| mark.x).collect::<Vec<_>>(), [100.0, 400.0, 800.0]);
        for layout in [Layout::Wide, Layout::Narrow] {
            assert!(figure.chart.render(layout).into_string().contains("<polygon"));
        }
    }

    #[test]
    fn decompression_is_drawn_beside_compression() {
        let at = |scheme: &str, compress_ns: f64| Point {
            experiment: "compression".into(),
            spill_compression: Some(scheme.into()),
            spilled_bytes_raw: Some(3_000),
            compress_ns: Some(compress_ns),
            decompress_ns: Some(compress_ns / 4.0),
            ..sort(64, 1.0, None)
        };
        let found = figures(&[at("lz4", 1.0), at("zstd:1", 3.0), at("zstd:3", 4.0)]);
        let x = |name: &str| of_name(&found, name).chart.series[0].marks[0].x;
        assert_eq!(x("figure-3-compression") * 4.0, x("figure-3-decompression"));
    }

    #[test]
    fn tpch_is_drawn_over_limits_scales_and_time() {
        let query = |number: u64, limit: u64, scale: f64, cached: f64| Point {
            experiment: "tpch".into(),
            pattern: Some(format!("q0{number}")),
            driver: "auto".into(),
            threads: 2,
            scale: Some(scale),
            memory_limit: Some(limit << 20),
            cached: Some(cached),
            seconds: scale * number as f64,
            over_time: Some(synthetic::over_time(20)),
            ..Point::default()
        };
        let mut points = Vec::new();
        for (limit, scale) in [(256, 1.0), (1024, 1.0), (256, 10.0), (1024, 10.0)] {
            for cached in [0.0, 1.0] {
                points.extend((1..=2).map(|number| query(number, limit, scale, cached)));
            }
        }
        let figures = figures(&points);
        let named = |name: &str| of_name(&figures, name);
        let over_scale = &named("figure-tpch-throughput-over-scale").chart;
        assert_eq!(over_scale.series.len(), 4);
        // Twice the data takes twice the time; a query of two takes 1.5 s on average.
        assert!(over_scale.series.iter().all(|series| {
            series.marks.iter().map(|mark| (mark.x, mark.y)).eq([(1.0, 2400.0), (10.0, 2400.0)])
        }));
        assert_eq!(named("figure-tpch-throughput-over-limit").chart.series.len(), 2);
        assert!(named("figure-tpch-throughput-over-limit").svg().contains("2 queries, cold"));
        assert_eq!(named("figure-tpch-over-time").chart.title, "q02 over time");
        assert_eq!(named("figure-tpch-over-time-2").chart.title, "q01 over time");
    }
}
