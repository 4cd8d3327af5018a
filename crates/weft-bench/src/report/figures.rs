//! The figures of the paper (von Merzljak et al., ADMS 2022; CoroBase for prefetching), redrawn from
//! measured points: which exist, and which points go into each.

use super::Point;
use super::latency;
use super::plan::{Measure, Plan};
use super::series::{Dim, group, widest_slice};
use super::spilling;
use super::svg::{Chart, Layout};

/// A part of the report: one table or figure of a paper with all that redraws it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Section {
    /// Table 1: bandwidth and latency of the devices.
    Table1,
    /// Figure 5: throughput per thread of a scan.
    Figure5,
    /// Figures 6 and 7: throughput over the cached fraction.
    Figures6And7,
    /// Figure 8: lookups per second per thread.
    Figure8,
    /// Figure 10: index-nested-loop joins of TPC-H.
    Figure10,
    /// CoroBase's index probing: prefetching with coroutines.
    Prefetch,
    /// CoroBase's figure 5.1: index probing in a B+tree.
    Probes,
    /// CoroBase's table 5.1 and figures 5.10 and 5.11: TPC-C.
    Transactions,
    /// CoroBase's figures 5.2 to 5.8: YCSB.
    Ycsb,
    /// Spilly's figures 6 to 8, 10 and 11: an aggregation that spills.
    SpilledAggregation,
    /// The same of joins.
    SpilledJoins,
    /// The same of a sort.
    SpilledSort,
    /// Spilly's figure 3: what compression saves and costs.
    Compression,
    /// Spilly's figures 6 to 8 and 11: TPC-H over memory limits, scales and bandwidths, and over the time of its queries.
    Tpch,
    /// The same of TPC-DS.
    Tpcds,
}

impl Section {
    /// All sections, in the order of the papers.
    pub const ALL: [Section; 15] = [
        Section::Table1,
        Section::Figure5,
        Section::Figures6And7,
        Section::Figure8,
        Section::Figure10,
        Section::Prefetch,
        Section::Probes,
        Section::Transactions,
        Section::Ycsb,
        Section::SpilledAggregation,
        Section::SpilledJoins,
        Section::SpilledSort,
        Section::Compression,
        Section::Tpch,
        Section::Tpcds,
    ];

    /// True if it is one of what asynchronous I/O and prefetching buy: a report of one of these lacks the others.
    pub fn is_of_asynchronous_io(self) -> bool {
        matches!(
            self,
            Section::Table1
                | Section::Figure5
                | Section::Figures6And7
                | Section::Figure8
                | Section::Prefetch
        )
    }

    /// The experiment whose points the section shows.
    pub fn experiment(self) -> &'static str {
        match self {
            Section::Table1 => "io",
            Section::Figure5 | Section::Figures6And7 => "scan",
            Section::Figure8 => "lookup",
            Section::Figure10 => "inlj",
            Section::Prefetch => "prefetch",
            Section::Probes => "probe",
            Section::Transactions => "tpcc",
            Section::Ycsb => "ycsb",
            Section::SpilledAggregation => "agg",
            Section::SpilledJoins => "join",
            Section::SpilledSort => "sort",
            Section::Compression => "compression",
            Section::Tpch => "tpch",
            Section::Tpcds => "tpcds",
        }
    }
}

/// A figure of the report.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of its file without the ending, unique in a report: `figure-5-scan-over-threads`.
    pub name: String,
    /// Where it belongs.
    pub section: Section,
    /// What it shows.
    pub chart: Chart,
}

impl Figure {
    /// The figure as an SVG document for a file.
    pub fn svg(&self) -> String {
        self.chart.render(Layout::Wide).into_string()
    }
}

/// The title of an experiment, for tables.
pub fn experiment_title(experiment: &str) -> String {
    match experiment {
        "io" => "I/O: bandwidth, reads per second and latency (Table 1)".to_string(),
        "scan" => "Table scan: TPC-H Q1 (Figures 5 to 7)".to_string(),
        "lookup" => "Index lookups: TPC-H Q14 (Figure 8)".to_string(),
        "inlj" => "Index-nested-loop joins: TPC-H Q4, Q5 and Q10 (Figure 10)".to_string(),
        "probe" => "Index probing in memory (CoroBase, Figure 5.1)".to_string(),
        "coroutine" => "Calls of an awaited function".to_string(),
        "tpcc" => "TPC-C in memory (CoroBase, Table 5.1, Figures 5.10 and 5.11)".to_string(),
        "htap" => "TPC-C beside the queries of the CH-benCHmark".to_string(),
        "ycsb" => "YCSB (CoroBase, Figures 5.2 to 5.8)".to_string(),
        "prefetch" => "Memory accesses: prefetching with coroutines".to_string(),
        "tpch" => "TPC-H: 22 queries, cold and hot".to_string(),
        "tpcds" => "TPC-DS: 99 queries, cold and hot".to_string(),
        "memory" => "Memory: import and scans of data larger than the limit".to_string(),
        "agg" => "Aggregation: lineitem by order and part".to_string(),
        "join" => "Joins: lineitem with partsupp and with itself".to_string(),
        "sort" => "Sort: the rows of lineitem numbered by comment".to_string(),
        "compression" => "Compression of what is spilled (Figure 3 of Spilly)".to_string(),
        "rate" => "Rows per second and core: TPC-H Q1 and Q6 in memory".to_string(),
        "storage" => "Storage: the columns of lineitem".to_string(),
        other => format!("Experiment: {other}"),
    }
}

const SCAN_OVER_THREADS: Plan = Plan {
    title: "Scan throughput per thread, TPC-H Q1",
    x: Dim::Threads,
    measure: Measure::GbPerSPerThread,
    facets: &[Dim::Device, Dim::PageSize, Dim::Scale, Dim::Cached],
    series: &[Dim::Driver, Dim::Depth, Dim::Boundary],
    split: &[Dim::Boundary, Dim::Driver],
    bounds: false,
};
const SCAN_OVER_CACHED: Plan = Plan {
    title: "Throughput over the cached part, TPC-H Q1",
    x: Dim::Cached,
    measure: Measure::GbPerS,
    facets: &[Dim::Device, Dim::PageSize, Dim::Scale, Dim::Threads],
    series: &[Dim::Driver, Dim::Depth, Dim::Boundary],
    split: &[Dim::Boundary, Dim::Driver],
    bounds: true,
};
const SCAN_OVER_DEPTH: Plan = Plan {
    title: "Scan throughput over I/O depth, TPC-H Q1",
    x: Dim::Depth,
    measure: Measure::GbPerS,
    facets: &[Dim::Device, Dim::PageSize, Dim::Scale, Dim::Cached],
    series: &[Dim::Driver, Dim::Threads, Dim::Boundary],
    split: &[Dim::Boundary, Dim::Driver],
    bounds: false,
};
const LOOKUPS_OVER_THREADS: Plan = Plan {
    title: "Index lookups per thread, TPC-H Q14",
    measure: Measure::LookupsPerSPerThread,
    ..SCAN_OVER_THREADS
};
const LOOKUPS_OVER_CACHED: Plan = Plan {
    title: "Index lookups over the cached part, TPC-H Q14",
    measure: Measure::LookupsPerS,
    bounds: false,
    ..SCAN_OVER_CACHED
};
const LOOKUPS_OVER_DEPTH: Plan = Plan {
    title: "Index lookups over I/O depth, TPC-H Q14",
    measure: Measure::LookupsPerS,
    ..SCAN_OVER_DEPTH
};
const JOINS_OVER_CACHED: Plan = Plan {
    title: "Time over the part of what a query reads that fits in memory",
    x: Dim::Cached,
    measure: Measure::Seconds,
    facets: &[Dim::Device, Dim::Scale, Dim::Threads],
    series: &[Dim::Pattern, Dim::Driver, Dim::Depth],
    split: &[Dim::Pattern, Dim::Driver],
    bounds: false,
};
const READS_OVER_DEPTH: Plan = Plan {
    title: "Read bandwidth over I/O depth",
    x: Dim::Depth,
    measure: Measure::GbPerS,
    facets: &[Dim::Device, Dim::Pattern],
    series: &[Dim::Driver, Dim::PageSize, Dim::Threads],
    split: &[Dim::Threads, Dim::Driver],
    bounds: false,
};
const IOPS_OVER_DEPTH: Plan =
    Plan { title: "Reads per second over I/O depth", measure: Measure::Iops, ..READS_OVER_DEPTH };
const READS_OVER_THREADS: Plan = Plan {
    title: "Read bandwidth over threads",
    x: Dim::Threads,
    series: &[Dim::Driver, Dim::PageSize, Dim::Depth],
    split: &[Dim::Driver],
    ..READS_OVER_DEPTH
};
const MEMORY_OVER_THREADS: Plan = Plan {
    title: "Memory bandwidth over threads",
    x: Dim::Threads,
    facets: &[Dim::Device],
    series: &[Dim::Pattern, Dim::PageSize, Dim::Driver],
    split: &[Dim::Driver],
    ..READS_OVER_DEPTH
};
const PROBES_OVER_BATCH: Plan = Plan {
    title: "Index probes over batch size",
    x: Dim::Depth,
    measure: Measure::ProbesPerS,
    facets: &[Dim::Pattern, Dim::Threads],
    series: &[Dim::Variant],
    split: &[],
    bounds: false,
};
const TRANSACTIONS_OVER_THREADS: Plan = Plan {
    title: "Transactions over threads",
    x: Dim::Threads,
    measure: Measure::TxnPerS,
    facets: &[Dim::Pattern, Dim::Suppliers, Dim::Isolation],
    series: &[Dim::Variant, Dim::Depth],
    split: &[],
    bounds: false,
};
const TRANSACTIONS_OVER_BATCH: Plan = Plan {
    title: "Transactions over batch size",
    x: Dim::Depth,
    facets: &[Dim::Pattern, Dim::Suppliers, Dim::Isolation, Dim::Threads],
    series: &[Dim::Variant],
    ..TRANSACTIONS_OVER_THREADS
};
const TRANSACTIONS_OVER_SUPPLIERS: Plan = Plan {
    title: "Transactions over the size of Q2*",
    x: Dim::Suppliers,
    facets: &[Dim::Pattern, Dim::Isolation, Dim::Threads],
    ..TRANSACTIONS_OVER_THREADS
};
const YCSB_OVER_THREADS: Plan = Plan {
    facets: &[Dim::Pattern, Dim::Isolation],
    series: &[Dim::Variant, Dim::Driver, Dim::Depth],
    ..TRANSACTIONS_OVER_THREADS
};
const YCSB_OVER_BATCH: Plan = Plan {
    title: "Transactions over batch size",
    x: Dim::Depth,
    facets: &[Dim::Pattern, Dim::Isolation, Dim::Threads],
    series: &[Dim::Variant, Dim::Driver],
    ..TRANSACTIONS_OVER_THREADS
};
const PREFETCH_OVER_BATCH: Plan = Plan {
    title: "Time per dependent memory access over batch size",
    x: Dim::Depth,
    measure: Measure::NsPerOp,
    facets: &[Dim::Device, Dim::Threads],
    series: &[Dim::Pattern, Dim::Driver],
    split: &[],
    bounds: false,
};

/// Every figure that the points give, in the order of the papers.
pub fn figures(points: &[Point]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for section in Section::ALL {
        let members: Vec<&Point> =
            points.iter().filter(|point| point.experiment == section.experiment()).collect();
        for (name, chart) in section_charts(section, &members) {
            let twins =
                figures.iter().filter(|figure: &&Figure| figure.name.starts_with(name)).count();
            let name = if twins == 0 { name.to_string() } else { format!("{name}-{}", twins + 1) };
            figures.push(Figure { name, section, chart });
        }
    }
    figures
}

fn section_charts(section: Section, points: &[&Point]) -> Vec<(&'static str, Chart)> {
    match section {
        Section::Table1 => io_charts(points),
        Section::Figure5 => {
            let mut charts =
                named("figure-5-scan-over-threads", over_threads(&SCAN_OVER_THREADS, points));
            charts.extend(named("figure-5-scan-over-depth", over_depth(&SCAN_OVER_DEPTH, points)));
            charts
        }
        Section::Figures6And7 => {
            named("figure-6-7-scan-over-cached", over_cached(&SCAN_OVER_CACHED, points))
        }
        Section::Figure8 => {
            let threads = over_threads(&LOOKUPS_OVER_THREADS, points);
            let mut charts = named("figure-8-lookups-over-threads", threads);
            charts.extend(named(
                "figure-8-lookups-over-depth",
                over_depth(&LOOKUPS_OVER_DEPTH, points),
            ));
            let cached = over_cached(&LOOKUPS_OVER_CACHED, points);
            charts.extend(named("figure-8-lookups-over-cached", cached));
            charts
        }
        Section::Figure10 => named("figure-10-joins-over-cached", JOINS_OVER_CACHED.draw(points)),
        Section::Prefetch => named("figure-prefetch-over-batch", PREFETCH_OVER_BATCH.draw(points)),
        Section::Probes => named("figure-probes-over-batch", PROBES_OVER_BATCH.draw(points)),
        Section::Transactions => transaction_charts(points),
        Section::Ycsb if Dim::Depth.values(points).len() > 2 => {
            named("figure-ycsb-over-batch", YCSB_OVER_BATCH.draw(points))
        }
        Section::Ycsb => named("figure-ycsb-over-threads", YCSB_OVER_THREADS.draw(points)),
        Section::SpilledAggregation => spilling::charts(points, &spilling::AGGREGATION),
        Section::SpilledJoins => spilling::charts(points, &spilling::JOINS),
        Section::SpilledSort => spilling::charts(points, &spilling::SORT),
        Section::Tpch => spilling::suite_charts(points, &spilling::TPCH),
        Section::Tpcds => spilling::suite_charts(points, &spilling::TPCDS),
        Section::Compression => spilling::compression_charts(points),
    }
}

/// Transactions per second over what was swept of threads, batch sizes and suppliers; over threads if nothing was.
fn transaction_charts(points: &[&Point]) -> Vec<(&'static str, Chart)> {
    let mut charts = Vec::new();
    if Dim::Suppliers.values(points).len() > 1 {
        let over = TRANSACTIONS_OVER_SUPPLIERS.draw(points);
        charts.extend(named("figure-tpcc-over-suppliers", over));
    }
    if Dim::Depth.values(points).len() > 2 {
        charts.extend(named("figure-tpcc-over-batch", TRANSACTIONS_OVER_BATCH.draw(points)));
    }
    if charts.is_empty() || Dim::Threads.values(points).len() > 1 {
        charts.extend(named("figure-tpcc-over-threads", TRANSACTIONS_OVER_THREADS.draw(points)));
    }
    charts
}

pub(super) fn named(name: &'static str, charts: Vec<Chart>) -> Vec<(&'static str, Chart)> {
    charts.into_iter().map(|chart| (name, chart)).collect()
}

/// The slice over the thread counts, at the cached fraction where they were swept.
fn over_threads(plan: &Plan, points: &[&Point]) -> Vec<Chart> {
    let settings = group(points, &[Dim::Device, Dim::PageSize, Dim::Scale]);
    let slices = settings.iter().filter_map(|members| {
        let slice = widest_slice(members, Dim::Threads);
        // A run of one thread count that sweeps the cache has nothing to say here.
        let swept = Dim::Threads.values(&slice).len() > 1 || Dim::Cached.values(members).len() < 2;
        swept.then_some(slice)
    });
    slices.flat_map(|slice| plan.draw(&slice)).collect()
}

/// One chart per thread count at which the cached fraction was swept.
fn over_cached(plan: &Plan, points: &[&Point]) -> Vec<Chart> {
    let settings = group(points, &[Dim::Device, Dim::PageSize, Dim::Scale, Dim::Threads]);
    let swept = settings.iter().filter(|members| Dim::Cached.values(members).len() > 1);
    swept.flat_map(|members| plan.draw(members)).collect()
}

/// The slice over the I/O depths, at the cached fraction where they were swept.
fn over_depth(plan: &Plan, points: &[&Point]) -> Vec<Chart> {
    const THREAD_COUNTS_MAX: usize = 4;
    let settings = group(points, &[Dim::Device, Dim::PageSize, Dim::Scale]);
    let mut charts = Vec::new();
    for members in settings {
        let mut slice = widest_slice(&members, Dim::Depth);
        let (blocking, swept): (Vec<_>, Vec<_>) =
            slice.iter().partition(|point| point.is_blocking());
        if Dim::Depth.values(&swept).len() < 3 {
            continue;
        }
        let counts = Dim::Threads.values(&swept);
        if counts.len() > THREAD_COUNTS_MAX {
            let last = counts.len() - 1;
            let even = |part: usize| counts[part * last / (THREAD_COUNTS_MAX - 1)].clone();
            let chosen: Vec<_> = (0..THREAD_COUNTS_MAX).map(even).collect();
            slice.retain(|point| chosen.contains(&Dim::Threads.key(point)));
        }
        let crowded = blocking.len() > THREAD_COUNTS_MAX;
        slice.retain(|point| {
            !(crowded && point.is_blocking() && point.threads != blocking[0].threads)
        });
        charts.extend(plan.draw(&slice));
    }
    charts
}

fn io_charts(points: &[&Point]) -> Vec<(&'static str, Chart)> {
    let is_memory = |point: &&&Point| point.pattern.as_ref().is_some_and(|p| p.starts_with("dram"));
    let (memory, reads): (Vec<&Point>, Vec<&Point>) = points.iter().partition(is_memory);
    let mut charts = Vec::new();
    for members in group(&reads, &[Dim::Device, Dim::Pattern]) {
        if Dim::Depth.values(&members).len() > 1 || Dim::Threads.values(&members).len() < 2 {
            charts.extend(named("figure-table-1-bandwidth", READS_OVER_DEPTH.draw(&members)));
            let small: Vec<&Point> = members
                .iter()
                .copied()
                .filter(|p| p.page_size.is_some_and(|size| size <= 16384))
                .collect();
            charts.extend(named("figure-table-1-reads-per-second", IOPS_OVER_DEPTH.draw(&small)));
        } else {
            charts.extend(named("figure-table-1-bandwidth", READS_OVER_THREADS.draw(&members)));
        }
    }
    charts.extend(named("figure-table-1-latency", latency::charts(&reads)));
    charts.extend(named("figure-table-1-memory", MEMORY_OVER_THREADS.draw(&memory)));
    charts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    fn names(points: &[Point]) -> Vec<String> {
        figures(points).into_iter().map(|figure| figure.name).collect()
    }

    #[test]
    fn the_paper_s_runs_give_the_paper_s_figures() {
        let points = synthetic::paper_points();
        let names = names(&points);
        for wanted in [
            "figure-table-1-bandwidth",
            "figure-table-1-latency",
            "figure-table-1-memory",
            "figure-5-scan-over-threads",
            "figure-5-scan-over-depth",
            "figure-6-7-scan-over-cached",
            "figure-6-7-scan-over-cached-2",
            "figure-8-lookups-over-threads",
            "figure-prefetch-over-batch",
        ] {
            assert!(names.iter().any(|name| name == wanted), "{wanted} is not in {names:?}");
        }
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn figure_5_has_a_series_per_kind_of_io_and_depth() {
        let figures = figures(&synthetic::paper_points());
        let svg = figures.iter().find(|f| f.name == "figure-5-scan-over-threads").unwrap().svg();
        for text in
            ["blocking (simulated)", "depth 64", "depth 128", "GB/s per thread", "64 KiB pages"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.contains("60 % cached") && svg.contains("(simulated device)"));
        assert_eq!(svg.matches("<polyline").count(), 7);
    }

    #[test]
    fn figures_6_and_7_have_optimum_and_auxiliary_line() {
        let figures = figures(&synthetic::paper_points());
        let charts: Vec<_> =
            figures.iter().filter(|f| f.section == Section::Figures6And7).collect();
        assert_eq!(charts.len(), 2);
        for figure in charts {
            assert!(figure.chart.series.iter().any(|series| series.reference));
            assert_eq!(figure.chart.guides.len(), 1);
            assert!(figure.svg().contains("nothing cached"));
        }
    }

    #[test]
    fn few_points_become_bars() {
        let figures = figures(&synthetic::laptop_points());
        let scan = figures.iter().find(|f| f.name == "figure-5-scan-over-threads").unwrap().svg();
        assert!(scan.matches("<rect").count() > 2 && !scan.contains("<polyline"));
    }

    #[test]
    fn degenerate_points_do_not_panic() {
        assert!(names(&[]).is_empty());
        let odd = Point {
            threads: 0,
            depth: 0,
            seconds_min: Some(0.0),
            seconds_max: Some(0.0),
            repetitions: 3,
            gb_per_s: Some(0.0),
            lookups_per_s: Some(f64::INFINITY),
            ns_per_op: Some(f64::NAN),
            cached: Some(0.0),
            optimum_gb_per_s: Some(f64::NAN),
            latency_us: Some(Default::default()),
            ..Point::default()
        };
        for experiment in ["io", "scan", "lookup", "prefetch", "other"] {
            for driver in ["", "blocking", "uring"] {
                let one =
                    Point { experiment: experiment.into(), driver: driver.into(), ..odd.clone() };
                let two = Point { depth: 3, threads: 7, cached: Some(1.0), ..one.clone() };
                for figure in figures(&[one.clone(), two, one]) {
                    assert!(!figure.svg().contains("NaN"), "{}", figure.name);
                    assert!(!figure.chart.render(Layout::Narrow).into_string().contains("inf"));
                }
            }
        }
    }
}
