//! Bar charts, for series measured at one setting only: one bar per series with its value at the end.

use maud::{Markup, html};

use super::scale::{Axis, linear_axis};
use super::{Chart, Layout, Mark, Paint, framed, palette, px, text};
use crate::report::units;

/// A bar: label, colour, value.
struct Bar<'a> {
    label: &'a str,
    paint: Paint,
    mark: Mark,
}

pub fn render(chart: &Chart, layout: Layout) -> Markup {
    let bars: Vec<Bar> = chart
        .series
        .iter()
        .filter_map(|series| {
            let mark = *series.marks.first()?;
            Some(Bar { label: &series.label, paint: series.paint, mark })
        })
        .collect();
    framed(chart, layout, |top| match layout {
        Layout::Wide => draw(chart, &bars, top, layout, 34.0),
        Layout::Narrow => draw(chart, &bars, top, layout, 44.0),
    })
}

fn draw(chart: &Chart, bars: &[Bar], top: f64, layout: Layout, row: f64) -> (Markup, f64) {
    let beside = layout == Layout::Wide;
    let widest = bars.iter().map(|bar| text::width(bar.label, 12.5)).fold(0.0, f64::max);
    let left = if beside { (32.0 + widest).min(360.0) } else { 16.0 };
    let highest =
        bars.iter().map(|bar| bar.mark.range.map_or(bar.mark.y, |(_, high)| high.max(bar.mark.y)));
    let highest = highest.fold(0.0, f64::max);
    let value_width =
        bars.iter().map(|bar| text::width(&value(&bar.mark), 12.5)).fold(0.0, f64::max);
    let (axis, _) = linear_axis(highest, left, layout.width() - 28.0 - value_width);
    let first = top + 24.0;
    let foot = first + bars.len() as f64 * row;
    let markup = html! {
        text x="16" y=(px(top + 10.0)) font-size="12" fill=(palette::INK) { (chart.y_title) }
        @if bars.is_empty() {
            text x="16" y=(px(first + 10.0)) font-size="12.5" fill=(palette::SOFT_INK) { "no points" }
        }
        @for (index, bar) in bars.iter().enumerate() {
            @let y = first + index as f64 * row;
            @if beside {
                (caption(bar.label, left - 10.0, y + row / 2.0 + 4.3, "end"))
                (bar_at(bar, &axis, left, y + 6.0, row - 12.0))
            } @else {
                (caption(bar.label, left, y + 12.0, "start"))
                (bar_at(bar, &axis, left, y + 18.0, row - 24.0))
            }
        }
        line x1=(px(left)) x2=(px(left)) y1=(px(first)) y2=(px(foot)) stroke=(palette::AXIS) {}
    };
    (markup, foot + if bars.is_empty() { 36.0 } else { 18.0 })
}

fn caption(label: &str, x: f64, y: f64, anchor: &str) -> Markup {
    html! {
        text x=(px(x)) y=(px(y)) text-anchor=(anchor) font-size="12.5" fill=(palette::INK) { (label) }
    }
}

fn bar_at(bar: &Bar, axis: &Axis, left: f64, y: f64, height: f64) -> Markup {
    let end = axis.at(bar.mark.y).max(left + 1.0);
    let middle = y + height / 2.0;
    let (mut label_x, mut whisker) = (end + 8.0, html! {});
    let range = bar.mark.range.map(|(low, high)| (axis.at(low), axis.at(high)));
    if let Some((low, high)) = range.filter(|(low, high)| high - low > 2.0) {
        label_x = high.max(end) + 8.0;
        whisker = html! {
            path d=(format!("M{l} {t}V{b}M{l} {m}H{h}M{h} {t}V{b}", l = px(low), h = px(high),
                t = px(middle - 4.0), b = px(middle + 4.0), m = px(middle)))
                fill="none" stroke=(palette::INK) stroke-width="1.2" {}
        };
    }
    html! {
        rect x=(px(left)) y=(px(y)) width=(px(end - left)) height=(px(height)) fill=(bar.paint.color()) {}
        (whisker)
        text x=(px(label_x)) y=(px(middle + 4.3)) font-size="12.5" font-weight="600" fill=(palette::INK) {
            (value(&bar.mark))
        }
    }
}

fn value(mark: &Mark) -> String {
    units::count(mark.y)
}
