//! Line charts: grid, axes, references, lines, whiskers, markers, labels, in this order from back to
//! front.

use maud::{Markup, html};

use super::scale::{Axis, Tick, x_axis, y_axis};
use super::{Chart, Layout, Series, XScale, framed, label, palette, px, text};

/// The plot's rectangle, pixels.
struct Plot {
    left: f64,
    right: f64,
    head: f64,
    foot: f64,
}

/// Space between the plot's edge and the outermost points.
const INSET: f64 = 12.0;

/// Heights of a plot that is alone, and of one of several, wide and narrow.
const ALONE: (f64, f64) = (300.0, 240.0);
const OF_SEVERAL: (f64, f64) = (130.0, 110.0);

pub fn render(chart: &Chart, layout: Layout) -> Markup {
    framed(chart, layout, |top| {
        let charts: Vec<&Chart> = std::iter::once(chart).chain(&chart.below).collect();
        let is_wide = layout == Layout::Wide;
        let gutters = charts.iter().map(|chart| if is_wide { label::gutter(chart) } else { 14.0 });
        let right = layout.width() - gutters.fold(0.0, f64::max);
        // The width of the y labels depends on the ticks, which do not depend on the pixels.
        let ticks = charts.iter().flat_map(|chart| y_axis(chart, 100.0, 0.0).1);
        let widest = ticks.map(|tick| text::width(&tick.label, 12.0)).fold(0.0, f64::max);
        let left = 24.0 + widest;
        let (x, x_ticks) = x_axis(chart, left + INSET, right - INSET);
        let (wide, narrow) = if charts.len() == 1 { ALONE } else { OF_SEVERAL };
        let mut plots = Vec::new();
        let mut top = top;
        for (number, of) in charts.iter().enumerate() {
            let entries = label::entries(of, |_, _| (0.0, 0.0));
            let (legend, below) = match layout {
                Layout::Wide => (html! {}, top),
                Layout::Narrow => label::legend(&entries, top, layout.width()),
            };
            let height = if is_wide { label::stack_height(of).max(wide) } else { narrow };
            let head = below + 22.0;
            let plot = Plot { left, right, head, foot: head + height };
            let is_last = number + 1 == charts.len();
            plots.push(html! {
                (legend)
                (drawn(of, &plot, &x, &x_ticks, (layout, is_last)))
                (moments(chart, &plot, &x, number == 0))
            });
            top = plot.foot + if is_last { 52.0 } else { 12.0 };
        }
        (html! { @for plot in &plots { (plot) } }, top)
    })
}

/// One plot.
fn drawn(
    chart: &Chart,
    plot: &Plot,
    x: &Axis,
    x_ticks: &[Tick],
    (layout, is_last): (Layout, bool),
) -> Markup {
    let (y, y_ticks) = y_axis(chart, plot.foot, plot.head);
    html! {
        (grid(chart, plot, x_ticks, &y_ticks, is_last))
        @for series in chart.series.iter().filter(|series| series.filled) {
            (area(series, plot, x, &y))
        }
        (guides(chart, plot, &y))
        @for series in chart.series.iter().filter(|series| series.reference) {
            (line(series, 1.6, plot, x, &y))
        }
        // Where lines coincide the lower ones, being wider, stay visible as an edge.
        @for (above, series) in chart.measured().filter(|series| !series.filled).collect::<Vec<_>>().iter().rev().enumerate().rev() {
            (line(series, (2.0 + above as f64 * 0.35).min(3.8), plot, x, &y))
        }
        @if chart.x_scale != XScale::Linear {
            @for series in chart.swept() { (markers(series, x, &y)) }
        }
        @if layout == Layout::Wide { (labels(chart, plot, x, &y)) }
    }
}

fn grid(chart: &Chart, plot: &Plot, x_ticks: &[Tick], y_ticks: &[Tick], is_last: bool) -> Markup {
    html! {
        g font-size="12" fill=(palette::SOFT_INK) {
            text x="16" y=(px(plot.head - 12.0)) fill=(palette::INK) { (chart.y_title) }
            @for tick in y_ticks {
                line x1=(px(plot.left)) x2=(px(plot.right)) y1=(px(tick.at)) y2=(px(tick.at))
                    stroke=(palette::GRID) {}
                text x=(px(plot.left - 8.0)) y=(px(tick.at + 4.2)) text-anchor="end" { (tick.label) }
            }
            line x1=(px(plot.left)) x2=(px(plot.right)) y1=(px(plot.foot)) y2=(px(plot.foot))
                stroke=(palette::AXIS) {}
            @for tick in x_ticks {
                line x1=(px(tick.at)) x2=(px(tick.at)) y1=(px(plot.foot)) y2=(px(plot.foot + 5.0))
                    stroke=(palette::AXIS) {}
                @if is_last {
                    text x=(px(tick.at)) y=(px(plot.foot + 19.0)) text-anchor="middle" { (tick.label) }
                }
            }
            @if is_last {
                text x=(px((plot.left + plot.right) / 2.0)) y=(px(plot.foot + 40.0)) text-anchor="middle"
                    fill=(palette::INK) { (chart.x_title) }
            }
        }
    }
}

fn guides(chart: &Chart, plot: &Plot, y: &Axis) -> Markup {
    html! {
        @for guide in &chart.guides {
            @let at = px(y.at(guide.y));
            line x1=(px(plot.left)) x2=(px(plot.right)) y1=(at) y2=(at) stroke="#5f6368"
                stroke-width="1.3" stroke-dasharray="5 4" {}
        }
    }
}

/// The vertical lines of the whole chart in one of its plots, with their labels in the first.
fn moments(chart: &Chart, plot: &Plot, x: &Axis, is_first: bool) -> Markup {
    // Further to the right a label would leave the plot.
    let (width, row) = (plot.right - plot.left, 13.0);
    html! {
        @for (index, moment) in chart.moments.iter().enumerate() {
            @let at = x.at(moment.x);
            line x1=(px(at)) x2=(px(at)) y1=(px(plot.head)) y2=(px(plot.foot)) stroke="#5f6368"
                stroke-width="1.3" stroke-dasharray="2 3" {}
            @if is_first {
                @let (label_x, anchor) =
                    if at < plot.left + 0.7 * width { (at + 5.0, "start") } else { (at - 5.0, "end") };
                text x=(px(label_x)) y=(px(plot.head - 2.0 + index as f64 * row)) font-size="11.5" text-anchor=(anchor)
                    fill=(palette::SOFT_INK) { (moment.label) }
            }
        }
    }
}

/// What lies below a line.
fn area(series: &Series, plot: &Plot, x: &Axis, y: &Axis) -> Markup {
    let corner = |x: f64, y: f64| format!("{},{}", px(x), px(y));
    let line = series.marks.iter().map(|mark| corner(x.at(mark.x), y.at(mark.y).max(plot.head)));
    let ends = [series.marks.last(), series.marks.first()].into_iter().flatten();
    let corners = line.chain(ends.map(|mark| corner(x.at(mark.x), plot.foot)));
    html! {
        polygon points=(corners.collect::<Vec<_>>().join(" ")) fill=(series.paint.color()) {}
    }
}

fn line(series: &Series, width: f64, plot: &Plot, x: &Axis, y: &Axis) -> Markup {
    let (color, dash) = (series.paint.color(), series.reference || series.across);
    let corners: Vec<(f64, f64)> = match (series.across, series.marks.first()) {
        (true, Some(mark)) => [plot.left, plot.right].map(|at| (at, y.at(mark.y))).to_vec(),
        _ => series.marks.iter().map(|mark| (x.at(mark.x), y.at(mark.y))).collect(),
    };
    let path =
        clipped(&corners, plot.head).into_iter().map(|(x, y)| format!("{},{}", px(x), px(y)));
    html! {
        polyline points=(path.collect::<Vec<_>>().join(" ")) fill="none" stroke=(color)
            stroke-width=(px(width)) stroke-linejoin="round"
            stroke-dasharray=[dash.then_some("5 4")] {}
    }
}

/// The line up to the point where it leaves the plot at `head`.
fn clipped(corners: &[(f64, f64)], head: f64) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for &(x, y) in corners {
        if y < head - 0.5 {
            if let Some(&(left, below)) = kept.last() {
                let share = (below - head) / (below - y);
                kept.push((left + (x - left) * share, head));
            }
            break;
        }
        kept.push((x, y));
    }
    kept
}

fn markers(series: &Series, x: &Axis, y: &Axis) -> Markup {
    let color = series.paint.color();
    html! {
        @for mark in &series.marks {
            @let at = x.at(mark.x);
            @if let Some((low, high)) = mark.range.map(|(low, high)| (y.at(low), y.at(high))) {
                @if low - high > 2.0 {
                    path d=(format!("M{l} {h}H{r}M{c} {h}V{f}M{l} {f}H{r}", l = px(at - 4.0),
                        r = px(at + 4.0), c = px(at), h = px(high), f = px(low)))
                        fill="none" stroke=(color) stroke-width="1.2" {}
                }
            }
        }
        @for mark in &series.marks { (series.paint.marker(x.at(mark.x), y.at(mark.y))) }
    }
}

fn labels(chart: &Chart, plot: &Plot, x: &Axis, y: &Axis) -> Markup {
    let entries = label::entries(chart, |mark, across| {
        let at = if across { plot.right } else { x.at(mark.x) };
        (at, y.at(mark.y).max(plot.head))
    });
    label::beside(entries, plot.right, plot.right + 20.0, plot.head - 6.0, plot.foot + 6.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stop_where_they_leave_the_plot() {
        let line = clipped(&[(0.0, 100.0), (10.0, 50.0), (20.0, -50.0), (30.0, -60.0)], 0.0);
        assert_eq!(line, [(0.0, 100.0), (10.0, 50.0), (15.0, 0.0)]);
        assert!(clipped(&[(0.0, -100.0)], 0.0).is_empty());
    }
}
