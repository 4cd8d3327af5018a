//! Runs over their time, a figure each: processor, memory, bandwidth, and how what is spilled is compressed (Spilly, Figures 8 and
//! 11). A neighbour that comes and leaves is a vertical line each.

use super::plan::subtitle;
use super::point::schemes;
use super::svg::palette::Hue;
use super::svg::{Chart, Guide, Mark, Moment, Paint, Series, XScale};
use super::{OverTime, Point, units};

/// Runs that are shown of an experiment, at most: the longest.
const SHOWN_MAX: usize = 4;

/// Of fewer samples no course is seen.
const SAMPLES_MIN: usize = 5;

const GB: f64 = 1e9;

/// The longest runs of these points, one of each query at most.
pub fn charts(points: &[&Point]) -> Vec<Chart> {
    let sampled = |point: &&Point| {
        let samples = point.over_time.as_ref().map_or(0, |over_time| over_time.seconds.len());
        samples >= SAMPLES_MIN
    };
    let mut longest: Vec<&Point> = points.iter().copied().filter(sampled).collect();
    longest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let mut shown: Vec<&Point> = Vec::new();
    for point in longest {
        if shown.len() < SHOWN_MAX && shown.iter().all(|other| !is_alike(point, other)) {
            shown.push(point);
        }
    }
    shown.into_iter().filter_map(|point| Some(chart(point, point.over_time.as_ref()?))).collect()
}

/// True if one figure suffices for both: of the same query, and compressed the same where a neighbour came.
fn is_alike(point: &Point, other: &Point) -> bool {
    let is_visited = point.neighbour_from_s.is_some() && other.neighbour_from_s.is_some();
    point.pattern == other.pattern
        && (!is_visited || point.spill_compression == other.spill_compression)
}

fn chart(point: &Point, over_time: &OverTime) -> Chart {
    let name = point.pattern.as_deref().unwrap_or(&point.experiment);
    let cores = series("cores in use", Hue::Green, over_time, over_time.cores.iter().copied());
    let threads =
        Guide { label: units::plural(point.threads, "thread"), y: f64::from(point.threads) };
    let mut below = vec![memory(point, over_time), bandwidth(point, over_time)];
    below.extend(compression(over_time));
    Chart {
        title: format!("{name} over time"),
        subtitle: subtitle(&[point], &[]),
        moments: moments(point),
        below,
        ..plot("processor, cores", vec![cores], vec![threads])
    }
}

/// One of the plots above each other.
fn plot(y_title: &str, series: Vec<Series>, guides: Vec<Guide>) -> Chart {
    Chart {
        title: String::new(),
        subtitle: String::new(),
        x_title: "seconds".to_owned(),
        x_scale: XScale::Linear,
        y_title: y_title.to_owned(),
        y_log: false,
        series,
        guides,
        moments: Vec::new(),
        below: Vec::new(),
    }
}

fn memory(point: &Point, over_time: &OverTime) -> Chart {
    let memory = vec![
        series("resident", Hue::Blue, over_time, in_gb(&over_time.resident_bytes)),
        series("reserved", Hue::Orange, over_time, in_gb(&over_time.reserved_bytes)),
    ];
    let limit = point.memory_limit.map(|limit| Guide {
        label: format!("limit, {}", units::bytes(limit)),
        y: limit as f64 / GB,
    });
    // A limit far above what was used would leave no room for it.
    let highest =
        memory.iter().flat_map(|series| &series.marks).map(|mark| mark.y).fold(0.0, f64::max);
    let limit = limit.filter(|limit| limit.y <= 2.0 * highest);
    plot("memory, GB", memory, limit.into_iter().collect())
}

fn bandwidth(point: &Point, over_time: &OverTime) -> Chart {
    let read = over_time.read_bytes_per_s.iter().map(|rate| rate / GB);
    let written = over_time.written_bytes_per_s.iter().map(|rate| rate / GB);
    let mut bandwidth = vec![
        series("read", Hue::Blue, over_time, read),
        series("written", Hue::Orange, over_time, written),
    ];
    // How much is compressed, and when.
    if point.spilled_bytes_raw > point.spilled_bytes {
        let raw = over_time.spilled_raw_bytes_per_s.iter().map(|rate| rate / GB);
        bandwidth.push(series("spilled, uncompressed", Hue::Pink, over_time, raw));
    }
    plot("devices, GB/s", bandwidth, Vec::new())
}

/// What was spilled by each scheme, above each other; `None` if nothing was compressed.
fn compression(over_time: &OverTime) -> Option<Chart> {
    let rates = &over_time.spilled_by_scheme_bytes_per_s;
    let of_schemes = schemes().filter_map(|scheme| Some((rates.get(&scheme)?, scheme)));
    let mut sums = vec![0.0; over_time.seconds.len()];
    let mut stacked = Vec::new();
    for (rates, scheme) in of_schemes {
        sums.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate / GB);
        let line = series(&scheme, Hue::Grey, over_time, sums.iter().copied());
        stacked.push(Series { paint: of_scheme(&scheme), filled: true, ..line });
    }
    stacked.reverse();
    let is_compressed = rates.keys().any(|scheme| scheme != "off");
    is_compressed.then(|| plot("spilled, by compression, GB/s", stacked, Vec::new()))
}

/// The colour of a scheme: the darker, the smaller it makes pages.
pub fn of_scheme(scheme: &str) -> Paint {
    let levels: Vec<String> = schemes().filter(|name| name != "off" && name != "other").collect();
    match levels.iter().position(|name| name == scheme) {
        Some(step) => Paint { hue: Hue::Blue, step, steps: levels.len() },
        None if scheme == "off" => Paint { hue: Hue::Orange, step: 0, steps: 2 },
        None => Paint::single(Hue::Pink),
    }
}

/// When a neighbour came, and when it left.
fn moments(point: &Point) -> Vec<Moment> {
    let rate = point.neighbour_bytes_per_s.map(|rate| units::bytes(rate) + "/s");
    let came = point.neighbour_from_s.zip(rate);
    let came = came.map(|(x, rate)| Moment { label: format!("neighbour, leaves {rate}"), x });
    let left = point.neighbour_to_s.map(|x| Moment { label: "neighbour gone".to_owned(), x });
    came.into_iter().chain(left).collect()
}

fn in_gb(bytes: &[u64]) -> impl Iterator<Item = f64> {
    bytes.iter().map(|bytes| *bytes as f64 / GB)
}

fn series(
    label: &str,
    hue: Hue,
    over_time: &OverTime,
    values: impl Iterator<Item = f64>,
) -> Series {
    let marks = over_time.seconds.iter().zip(values);
    Series {
        label: label.to_owned(),
        paint: Paint::single(hue),
        reference: false,
        across: false,
        filled: false,
        marks: marks.map(|(x, y)| Mark { x: *x, y, range: None }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::Layout;
    use crate::report::synthetic;

    fn point(query: &str, seconds: f64, samples: usize) -> Point {
        Point {
            pattern: Some(query.into()),
            seconds,
            over_time: Some(synthetic::over_time(samples)),
            threads: 2,
            memory_limit: Some(1 << 30),
            spilled_bytes: Some(1),
            spilled_bytes_raw: Some(2),
            ..Point::default()
        }
    }

    #[test]
    fn the_longest_run_of_each_query_is_shown() {
        let points =
            [point("a", 1.0, 10), point("a", 4.0, 40), point("b", 2.0, 20), point("c", 9.0, 2)];
        let charts = charts(&points.iter().collect::<Vec<_>>());
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(titles, ["a over time", "b over time"]);
        for layout in [Layout::Wide, Layout::Narrow] {
            let svg = charts[0].render(layout).into_string();
            assert_eq!(svg.matches("<polyline").count(), 6, "{svg}");
            // Without compression, with LZ4, and both beside each other.
            assert_eq!(svg.matches("<polygon").count(), 2, "{svg}");
            for text in [
                "processor, cores",
                "memory, GB",
                "devices, GB/s",
                "by compression, GB/s",
                "limit, 1 GiB",
                ">seconds<",
            ] {
                assert!(svg.contains(text), "{text}: {svg}");
            }
            assert!(!svg.contains("neighbour"), "{svg}");
        }
    }

    #[test]
    fn schemes_are_stacked() {
        let chart = compression(&synthetic::over_time(10)).unwrap();
        let [all, off] = &chart.series[..] else { panic!("{chart:?}") };
        assert_eq!((all.label.as_str(), off.label.as_str()), ("lz4", "off"));
        let over_time = synthetic::over_time(10);
        for (sample, raw) in over_time.spilled_raw_bytes_per_s.iter().enumerate() {
            assert!((all.marks[sample].y * GB - raw).abs() < 1.0);
            assert!(off.marks[sample].y <= all.marks[sample].y);
        }
        let mut uncompressed = over_time;
        uncompressed.spilled_by_scheme_bytes_per_s.remove("lz4");
        assert!(compression(&uncompressed).is_none());
    }

    #[test]
    fn a_neighbour_is_seen_in_every_plot() {
        let at = |compression: &str, seconds: f64| Point {
            neighbour_bytes_per_s: Some(100_000_000),
            neighbour_from_s: Some(1.0),
            neighbour_to_s: Some(2.0),
            spill_compression: Some(compression.into()),
            ..point("a", seconds, 40)
        };
        let points = [at("off", 4.0), at("auto", 3.0), at("auto", 2.0)];
        let charts = charts(&points.iter().collect::<Vec<_>>());
        assert_eq!(charts.len(), 2);
        let svg = charts[0].render(Layout::Wide).into_string();
        assert_eq!(svg.matches("stroke-dasharray=\"2 3\"").count(), 2 * 4, "{svg}");
        for text in ["neighbour, leaves 95.4 MiB/s", "neighbour gone"] {
            assert_eq!(svg.matches(text).count(), 1, "{text}: {svg}");
        }
    }
}
