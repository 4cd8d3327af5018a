//! Runs over their time, a figure each: processor, memory and bandwidth (Spilly, Figure 8).

use super::plan::subtitle;
use super::svg::palette::Hue;
use super::svg::{Chart, Guide, Mark, Paint, Series, XScale};
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
        if shown.len() < SHOWN_MAX && shown.iter().all(|other| other.pattern != point.pattern) {
            shown.push(point);
        }
    }
    shown.into_iter().filter_map(|point| Some(chart(point, point.over_time.as_ref()?))).collect()
}

fn chart(point: &Point, over_time: &OverTime) -> Chart {
    let name = point.pattern.as_deref().unwrap_or(&point.experiment);
    let cores = series("cores in use", Hue::Green, over_time, over_time.cores.iter().copied());
    let resident = in_gb(&over_time.resident_bytes);
    let reserved = in_gb(&over_time.reserved_bytes);
    let memory = vec![
        series("resident", Hue::Blue, over_time, resident),
        series("reserved", Hue::Orange, over_time, reserved),
    ];
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
    let threads =
        Guide { label: units::plural(point.threads, "thread"), y: f64::from(point.threads) };
    let limit = point.memory_limit.map(|limit| Guide {
        label: format!("limit, {}", units::bytes(limit)),
        y: limit as f64 / GB,
    });
    // A limit far above what was used would leave no room for it.
    let highest =
        memory.iter().flat_map(|series| &series.marks).map(|mark| mark.y).fold(0.0, f64::max);
    let limit = limit.filter(|limit| limit.y <= 2.0 * highest);
    let plot = |y_title: &str, series: Vec<Series>, guides: Vec<Guide>| Chart {
        title: String::new(),
        subtitle: String::new(),
        x_title: "seconds".to_owned(),
        x_scale: XScale::Linear,
        y_title: y_title.to_owned(),
        y_log: false,
        series,
        guides,
        below: Vec::new(),
    };
    let below = vec![
        plot("memory, GB", memory, limit.into_iter().collect()),
        plot("devices, GB/s", bandwidth, Vec::new()),
    ];
    let mut chart = plot("processor, cores", vec![cores], vec![threads]);
    chart.title = format!("{name} over time");
    chart.subtitle = subtitle(&[point], &[]);
    chart.below = below;
    chart
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
        marks: marks.map(|(x, y)| Mark { x: *x, y, range: None }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::Layout;
    use crate::report::synthetic;

    #[test]
    fn the_longest_run_of_each_query_is_shown() {
        let point = |query: &str, seconds: f64, samples: usize| Point {
            pattern: Some(query.into()),
            seconds,
            over_time: Some(synthetic::over_time(samples)),
            threads: 2,
            memory_limit: Some(1 << 30),
            spilled_bytes: Some(1),
            spilled_bytes_raw: Some(2),
            ..Point::default()
        };
        let points =
            [point("a", 1.0, 10), point("a", 4.0, 40), point("b", 2.0, 20), point("c", 9.0, 2)];
        let charts = charts(&points.iter().collect::<Vec<_>>());
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(titles, ["a over time", "b over time"]);
        for layout in [Layout::Wide, Layout::Narrow] {
            let svg = charts[0].render(layout).into_string();
            assert_eq!(svg.matches("<polyline").count(), 6, "{svg}");
            for text in
                ["processor, cores", "memory, GB", "devices, GB/s", "limit, 1 GiB", ">seconds<"]
            {
                assert!(svg.contains(text), "{text}: {svg}");
            }
        }
    }
}
