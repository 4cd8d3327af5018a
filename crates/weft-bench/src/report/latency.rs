//! Read latency in percentiles, the last line of Table 1 over the whole range of depths.

use super::Point;
use super::plan::subtitle;
use super::series::{Dim, group};
use super::svg::palette::Hue;
use super::svg::{Chart, Mark, Paint, Series, XScale};

/// Latency percentiles over depth for the smallest reads with the fewest threads, one chart per device,
/// pattern and asynchronous driver. The axis is logarithmic: the percentiles span orders of magnitude.
pub fn charts(points: &[&Point]) -> Vec<Chart> {
    let measured: Vec<&Point> =
        points.iter().copied().filter(|point| point.latency_us.is_some()).collect();
    let mut charts = Vec::new();
    for members in group(&measured, &[Dim::Device, Dim::Pattern, Dim::Driver]) {
        let smallest = group(&members, &[Dim::PageSize, Dim::Threads]).swap_remove(0);
        if Dim::Depth.values(&smallest).len() > 1 {
            charts.push(chart(&smallest));
        }
    }
    charts
}

fn chart(points: &[&Point]) -> Chart {
    let labels = ["median", "90 %", "99 %", "99.9 %", "slowest read"];
    let series = labels.iter().enumerate().map(|(step, label)| Series {
        label: (*label).to_string(),
        paint: Paint { hue: Hue::Blue, step, steps: labels.len() },
        reference: false,
        across: false,
        filled: false,
        marks: marks(points, step),
    });
    let first = points[0];
    let pattern = first.pattern.as_ref().map_or(String::new(), |pattern| format!(", {pattern}"));
    let driver = Dim::Driver.key(first).label;
    Chart {
        title: format!("Read latency over I/O depth{pattern}, {driver}"),
        subtitle: subtitle(points, &[Dim::Depth]),
        x_title: "I/O depth per thread".to_string(),
        x_scale: XScale::Log2,
        y_title: "µs per read (logarithmic)".to_string(),
        y_log: true,
        series: series.filter(|series| !series.marks.is_empty()).collect(),
        guides: Vec::new(),
        moments: Vec::new(),
        below: Vec::new(),
    }
}

fn marks(points: &[&Point], percentile: usize) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    for point in points {
        let Some(latency) = point.latency_us else { continue };
        let y = [latency.p50, latency.p90, latency.p99, latency.p999, latency.max][percentile];
        let x = f64::from(point.depth);
        if y > 0.0 && y.is_finite() {
            marks.retain(|earlier| earlier.x != x);
            marks.push(Mark { x, y, range: None });
        }
    }
    marks.sort_by(|a, b| a.x.total_cmp(&b.x));
    marks
}
