//! A [`Plan`] says which points make a figure and how; drawing it turns them into [`Chart`]s, one per
//! combination of the settings that may not be mixed in one figure.

use super::series::{Dim, group, label};
use super::svg::palette::Hue;
use super::svg::{Chart, Guide, Mark, Paint, Series, XScale};
use super::{Point, units};

/// More series than this do not stay readable in one figure.
const SERIES_MAX: usize = 12;

/// What the y axis shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Throughput of all threads, GB/s.
    GbPerS,
    /// Throughput per thread, GB/s.
    GbPerSPerThread,
    /// Lookups per second, all threads.
    LookupsPerS,
    /// Lookups per second per thread.
    LookupsPerSPerThread,
    /// Index probes per second, all threads.
    ProbesPerS,
    /// Transactions per second, all threads.
    TxnPerS,
    /// Reads per second, all threads.
    Iops,
    /// Nanoseconds per operation.
    NsPerOp,
    /// Run time, seconds.
    Seconds,
    /// Queries per hour, times the scale factor of their data: the same at any scale if twice the data takes twice the time.
    ScaledQueriesPerHour,
    /// Spilled bytes for each one on disk.
    CompressionRatio,
    /// Rows per second, all threads.
    RowsPerS,
    /// Spilled, as it lies on disk, GB.
    SpilledGb,
}

impl Measure {
    /// The value of a point, `None` if it was not measured or is not finite.
    pub fn value(self, point: &Point) -> Option<f64> {
        let value = match self {
            Measure::GbPerS => point.gb_per_s,
            Measure::GbPerSPerThread => point.gb_per_s_per_thread(),
            Measure::LookupsPerS => point.lookups_per_s,
            Measure::LookupsPerSPerThread => point.lookups_per_s_per_thread(),
            Measure::ProbesPerS => point.probes_per_s,
            Measure::TxnPerS => point.txn_per_s,
            Measure::Iops => point.iops,
            Measure::NsPerOp => point.ns_per_op,
            Measure::Seconds => Some(point.seconds),
            Measure::ScaledQueriesPerHour => {
                let scale = point.scale.filter(|_| point.seconds > 0.0);
                scale.map(|scale| 3600.0 * scale / point.seconds)
            }
            Measure::CompressionRatio => point.compression_ratio(),
            Measure::RowsPerS => point.rows_per_s(),
            Measure::SpilledGb => point.spilled_bytes.map(|bytes| bytes as f64 / 1e9),
        };
        value.filter(|value| value.is_finite())
    }

    fn title(self) -> &'static str {
        match self {
            Measure::GbPerS => "GB/s, all threads",
            Measure::GbPerSPerThread => "GB/s per thread",
            Measure::LookupsPerS => "lookups per second, all threads",
            Measure::LookupsPerSPerThread => "lookups per second per thread",
            Measure::ProbesPerS => "keys per second, all threads",
            Measure::TxnPerS => "transactions per second, all threads",
            Measure::Iops => "reads per second, all threads",
            Measure::NsPerOp => "nanoseconds per access",
            Measure::Seconds => "seconds",
            Measure::ScaledQueriesPerHour => "queries per hour × scale factor",
            Measure::CompressionRatio => "bytes for each one on disk",
            Measure::RowsPerS => "rows of the inputs per second, all threads",
            Measure::SpilledGb => "spilled, GB on disk",
        }
    }

    /// The point as a mark; its range follows from the shortest and longest run.
    fn mark(self, point: &Point, x: f64) -> Option<Mark> {
        let y = self.value(point)?;
        let scale = |seconds: f64| match self {
            Measure::NsPerOp | Measure::Seconds => y * seconds / point.seconds,
            Measure::CompressionRatio | Measure::SpilledGb => y,
            _ => y * point.seconds / seconds,
        };
        let range = point.seconds_min.zip(point.seconds_max).filter(|(shortest, _)| {
            point.repetitions > 1 && *shortest > 0.0 && point.seconds > 0.0
        });
        let range = range.map(|(shortest, longest)| {
            let (a, b) = (scale(shortest), scale(longest));
            (a.min(b), a.max(b))
        });
        Some(Mark { x, y, range })
    }
}

/// Which points make a figure, and how.
pub struct Plan {
    /// Headline; the facets' values and "simulated" are added.
    pub title: &'static str,
    /// The dimension along the x axis.
    pub x: Dim,
    /// What the y axis shows.
    pub measure: Measure,
    /// Never mixed in one figure.
    pub facets: &'static [Dim],
    /// Told apart by series.
    pub series: &'static [Dim],
    /// When there are too many series, one figure per value of the first of these, then the next.
    pub split: &'static [Dim],
    /// Draw `optimum_gb_per_s` and a guide at the asynchronous throughput with the least cached.
    pub bounds: bool,
}

impl Plan {
    /// The charts that the points give, none if no point has the measure.
    pub fn draw(&self, points: &[&Point]) -> Vec<Chart> {
        let usable: Vec<&Point> = points
            .iter()
            .copied()
            .filter(|point| self.measure.value(point).is_some() && self.x.x(point).is_some())
            .collect();
        let facets = group(&usable, self.facets);
        facets.iter().flat_map(|members| self.divide(members, self.split)).collect()
    }

    /// One chart, or several when it would have too many series. Every chart of a division by what a
    /// blocking driver does not have (or is not) shows the blocking points.
    fn divide(&self, members: &[&Point], split: &[Dim]) -> Vec<Chart> {
        let [first, rest @ ..] = split else { return vec![self.chart(members)] };
        if group(members, self.series).len() <= SERIES_MAX {
            return vec![self.chart(members)];
        }
        let shared =
            |point: &&Point| matches!(first, Dim::Driver | Dim::Boundary) && point.is_blocking();
        let (baseline, others): (Vec<&Point>, Vec<&Point>) =
            members.iter().copied().partition(|point| shared(point));
        let parts = group(&others, &[*first]);
        parts
            .iter()
            .flat_map(|part| self.divide(&[&baseline, part.as_slice()].concat(), rest))
            .collect()
    }

    fn chart(&self, members: &[&Point]) -> Chart {
        let mut groups = group(members, self.series);
        let longest = groups.iter().map(|group| self.x.values(group).len()).max().unwrap_or(0);
        let across = |group: &[&Point]| {
            self.x == Dim::Depth && longest > 1 && group.iter().all(|point| point.depth <= 1)
        };
        // A series with a single point beside swept ones belongs to another sweep.
        groups.retain(|group| longest < 3 || self.x.values(group).len() > 1 || across(group));
        let shown: Vec<&Point> = groups.iter().flatten().copied().collect();
        let paints = paints(&groups);
        let mut series: Vec<Series> = groups
            .iter()
            .zip(paints)
            .map(|(group, paint)| Series {
                label: label(group[0], &shown, self.series),
                paint,
                reference: false,
                across: across(group),
                filled: false,
                marks: self.marks(group),
            })
            .collect();
        let mut guides = Vec::new();
        if self.bounds {
            series.extend(optimum(&shown, self.x));
            guides.extend(empty_cache_guide(&shown));
        }
        let ranged =
            series.iter().any(|series| series.marks.iter().any(|mark| mark.range.is_some()));
        let whiskers = if ranged { " · whiskers from slowest to fastest run" } else { "" };
        let titled: Vec<Dim> =
            self.facets.iter().copied().filter(|dim| *dim == Dim::Threads).collect();
        Chart {
            title: self.headline(&shown),
            subtitle: subtitle(&shown, &[titled.as_slice(), &[self.x]].concat()) + whiskers,
            x_title: self.x_title().to_string(),
            x_scale: if self.x == Dim::Cached { XScale::Fraction } else { XScale::Log2 },
            y_title: self.measure.title().to_string(),
            y_log: false,
            series,
            guides,
            moments: Vec::new(),
            below: Vec::new(),
        }
    }

    /// Marks in ascending x. Of several points at one x the last measured counts.
    fn marks(&self, group: &[&Point]) -> Vec<Mark> {
        let mut marks: Vec<Mark> = Vec::new();
        for point in group {
            let Some(mark) = self.x.x(point).and_then(|x| self.measure.mark(point, x)) else {
                continue;
            };
            marks.retain(|earlier| earlier.x != mark.x);
            marks.push(mark);
        }
        marks.sort_by(|a, b| a.x.total_cmp(&b.x));
        marks
    }

    fn headline(&self, shown: &[&Point]) -> String {
        let mut title = self.title.to_string();
        for dim in self.facets.iter().filter(|dim| matches!(dim, Dim::Threads | Dim::Pattern)) {
            let values = dim.values(shown);
            if let [only] = values.as_slice()
                && !only.label.is_empty()
            {
                title.push_str(&format!(", {}", only.label));
            }
        }
        if shown.iter().any(|point| point.simulated) {
            title.push_str(" (simulated device)");
        }
        title
    }

    fn x_title(&self) -> &'static str {
        match self.x {
            Dim::Threads => "threads",
            Dim::Suppliers => "suppliers of Q2*",
            Dim::Cached => "cached in memory",
            Dim::PageSize => "bytes per read",
            Dim::MemoryLimit => "memory limit, MiB",
            Dim::Scale => "scale factor",
            Dim::Bandwidth => "bandwidth of the devices, MB/s",
            Dim::CompressionSpeed => "compression by one thread, MB/s",
            Dim::DecompressionSpeed => "decompression by one thread, MB/s",
            _ if matches!(
                self.measure,
                Measure::NsPerOp | Measure::ProbesPerS | Measure::TxnPerS
            ) =>
            {
                "batch size (coroutines)"
            }
            _ => "I/O depth per thread",
        }
    }
}

/// The settings shared by all points of a figure, without those named elsewhere in it.
pub fn subtitle(shown: &[&Point], elsewhere: &[Dim]) -> String {
    let all = [
        Dim::PageSize,
        Dim::Cached,
        Dim::Threads,
        Dim::Depth,
        Dim::Boundary,
        Dim::Scale,
        Dim::MemoryLimit,
        Dim::Compression,
        Dim::Bandwidth,
        Dim::Device,
    ];
    let mut words: Vec<String> = Vec::new();
    for dim in all.into_iter().filter(|dim| !elsewhere.contains(dim)) {
        let values = dim.values(shown);
        let [only] = values.as_slice() else { continue };
        match (dim, only.label.as_str()) {
            (_, "") => {}
            (Dim::Depth, _) if shown[0].depth <= 1 => {}
            (Dim::MemoryLimit, limit) => words.push(format!("{limit} of memory")),
            (Dim::Compression, name) => words.push(format!("compression {name}")),
            (Dim::Bandwidth, limit) => words.push(format!("devices at {limit}")),
            (Dim::PageSize, size) => words.push(format!("{size} pages")),
            (_, value) => words.push(value.to_string()),
        }
    }
    let repetitions = shown.iter().map(|point| point.repetitions).max().unwrap_or(0);
    if repetitions > 1 {
        words.push(format!("median of {repetitions} runs"));
    }
    words.join(" · ")
}

/// The dashed line of the theoretical optimum, if the points carry one.
fn optimum(shown: &[&Point], x: Dim) -> Option<Series> {
    let mut marks: Vec<Mark> = Vec::new();
    for point in shown {
        let Some((x, y)) = x.x(point).zip(point.optimum_gb_per_s.filter(|y| y.is_finite())) else {
            continue;
        };
        if marks.iter().all(|mark| mark.x != x) {
            marks.push(Mark { x, y, range: None });
        }
    }
    marks.sort_by(|a, b| a.x.total_cmp(&b.x));
    let paint = Paint::single(Hue::Grey);
    let highest = marks.iter().map(|mark| mark.y).fold(0.0, f64::max);
    let label = format!("theoretical optimum, up to {} GB/s", units::number(highest));
    (marks.len() > 1).then_some(Series {
        label,
        paint,
        reference: true,
        across: false,
        filled: false,
        marks,
    })
}

/// The line at the best asynchronous throughput with nothing cached.
fn empty_cache_guide(shown: &[&Point]) -> Option<Guide> {
    let empty = shown.iter().filter(|point| point.is_asynchronous() && point.cached == Some(0.0));
    let best = empty.filter_map(|point| point.gb_per_s).fold(f64::NAN, f64::max);
    let label = format!("nothing cached, asynchronous: {} GB/s", units::number(best));
    best.is_finite().then_some(Guide { label, y: best })
}

/// A hue per driver, or per variant for drivers without one; a ramp within each hue.
fn paints(groups: &[Vec<&Point>]) -> Vec<Paint> {
    let swept = |group: &&Vec<&Point>| group.iter().any(|point| point.depth > 1);
    let mut patterns: Vec<&Option<String>> =
        groups.iter().filter(swept).map(|group| &group[0].pattern).collect();
    patterns.dedup();
    let prefetch = |point: &Point| point.experiment == "prefetch";
    let hue = |point: &Point| match point.driver.as_str() {
        _ if prefetch(point) => {
            let place = patterns.iter().position(|pattern| **pattern == point.pattern).unwrap_or(0);
            if point.depth <= 1 {
                Hue::Orange
            } else {
                [Hue::Blue, Hue::Green, Hue::Pink][place % 3]
            }
        }
        _ if point.is_blocking() => Hue::Orange,
        "uring" | "sim" => Hue::Blue,
        "posix" => Hue::Green,
        _ => Hue::Pink,
    };
    let hues: Vec<Hue> = groups
        .iter()
        .map(|group| {
            hue(group.iter().max_by_key(|point| point.depth).expect("groups are not empty"))
        })
        .collect();
    let steps = |hue: Hue| hues.iter().filter(|other| **other == hue).count();
    let step = |index: usize| hues[..index].iter().filter(|other| **other == hues[index]).count();
    (0..hues.len()).map(|i| Paint { hue: hues[i], step: step(i), steps: steps(hues[i]) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        title: "title",
        x: Dim::Threads,
        measure: Measure::GbPerS,
        facets: &[Dim::Device],
        series: &[Dim::Driver, Dim::Depth],
        split: &[Dim::Driver],
        bounds: false,
    };

    fn point(driver: &str, threads: u32, depth: u32) -> Point {
        Point {
            driver: driver.into(),
            threads,
            depth,
            repetitions: 3,
            seconds: 2.0,
            seconds_min: Some(1.0),
            seconds_max: Some(4.0),
            gb_per_s: Some(8.0),
            ..Point::default()
        }
    }

    #[test]
    fn too_many_series_are_split_and_the_baseline_is_in_each_part() {
        let mut points = vec![point("blocking", 1, 1), point("blocking", 2, 1)];
        for driver in ["uring", "posix"] {
            for threads in [1, 2] {
                points.extend((0..8).map(|power| point(driver, threads, 1 << power)));
            }
        }
        let members: Vec<&Point> = points.iter().collect();
        let charts = PLAN.draw(&members);
        assert_eq!(charts.len(), 2);
        for chart in &charts {
            assert_eq!(chart.series.len(), 9);
            assert_eq!(chart.series[0].label, "blocking");
        }
    }

    #[test]
    fn whiskers_follow_from_the_run_times() {
        let mark = Measure::GbPerS.mark(&point("uring", 1, 1), 1.0).unwrap();
        assert_eq!(mark.range, Some((4.0, 16.0)));
        let mut timed = point("uring", 1, 1);
        timed.ns_per_op = Some(100.0);
        assert_eq!(Measure::NsPerOp.mark(&timed, 1.0).unwrap().range, Some((50.0, 200.0)));
        timed.repetitions = 1;
        assert_eq!(Measure::NsPerOp.mark(&timed, 1.0).unwrap().range, None);
    }

    #[test]
    fn the_last_measured_of_equal_points_counts() {
        let mut later = point("uring", 1, 1);
        later.gb_per_s = Some(9.0);
        let points = [point("uring", 1, 1), later, point("uring", 2, 1)];
        let members: Vec<&Point> = points.iter().collect();
        let ys: Vec<f64> =
            PLAN.draw(&members)[0].series[0].marks.iter().map(|mark| mark.y).collect();
        assert_eq!(ys, [9.0, 8.0]);
    }
}
