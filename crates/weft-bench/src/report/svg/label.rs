//! Labels of series: beside the ends of their lines, pushed apart so that none overlap, or as a legend
//! in rows above the plot.

use maud::{Markup, html};

use super::{Chart, Paint, XScale, palette, px, text};

const SIZE: f64 = 12.5;
const ROW: f64 = 17.0;

/// One entry: a swatch and the text.
pub struct Entry<'a> {
    /// The text.
    pub label: &'a str,
    /// Colour and marker.
    pub paint: Paint,
    /// Dashed line in the swatch.
    pub reference: bool,
    /// Marker in the swatch.
    pub is_marked: bool,
    /// Where the line ends: the label wants to stand at this height.
    pub end: (f64, f64),
}

/// Entries for the series and the guides of a chart; `end` gives the point where each one ends.
pub fn entries<'a>(
    chart: &'a Chart,
    end: impl Fn(&super::Mark, bool) -> (f64, f64),
) -> Vec<Entry<'a>> {
    let mut entries = Vec::new();
    for series in &chart.series {
        let Some(last) = series.marks.last() else { continue };
        let end = end(last, series.across);
        let (label, paint) = (series.label.as_str(), series.paint);
        let reference = series.reference || series.across;
        let is_marked = !reference && chart.x_scale != XScale::Linear;
        entries.push(Entry { label, paint, reference, is_marked, end });
    }
    for guide in &chart.guides {
        let mark = super::Mark { x: f64::NAN, y: guide.y, range: None };
        let paint = Paint::single(palette::Hue::Grey);
        let (label, end) = (guide.label.as_str(), end(&mark, true));
        entries.push(Entry { label, paint, reference: true, is_marked: false, end });
    }
    entries
}

/// The longest label that gets one line beside the plot, pixels; longer ones wrap.
const LONGEST: f64 = 190.0;

/// Width that labels beside the plot take, pixels.
pub fn gutter(chart: &Chart) -> f64 {
    let labels = chart.series.iter().map(|s| &s.label).chain(chart.guides.iter().map(|g| &g.label));
    let rows = labels.flat_map(|label| rows(label));
    rows.map(|row| text::width(&row, SIZE)).fold(0.0, f64::max) + 52.0
}

/// Height that labels beside the plot need at least, pixels.
pub fn stack_height(chart: &Chart) -> f64 {
    let labels = chart.series.iter().map(|s| &s.label).chain(chart.guides.iter().map(|g| &g.label));
    labels.map(|label| height(label)).sum()
}

fn rows(label: &str) -> Vec<String> {
    text::wrap_phrases(label, ", ", SIZE, LONGEST)
}

fn height(label: &str) -> f64 {
    rows(label).len() as f64 * 15.0 + 3.0
}

/// Labels at x = `left`, each as near to the end of its line as the others permit, between `head` and
/// `foot`. A thin leader joins a label to its line when the line reaches the plot's edge at `edge`.
pub fn beside(mut entries: Vec<Entry>, edge: f64, left: f64, head: f64, foot: f64) -> Markup {
    entries.sort_by(|a, b| a.end.1.total_cmp(&b.end.1));
    let sizes: Vec<f64> = entries.iter().map(|entry| height(entry.label)).collect();
    let wanted: Vec<f64> = entries.iter().map(|entry| entry.end.1).collect();
    let centers = spread(&wanted, &sizes, head, foot);
    html! {
        @for (entry, &y) in entries.iter().zip(&centers) {
            @if edge - entry.end.0 < 24.0 {
                path d=(format!("M{} {}L{} {}L{} {}", px(entry.end.0.max(edge - 8.0) + 8.0), px(entry.end.1),
                    px(left - 12.0), px(y), px(left - 4.0), px(y)))
                    fill="none" stroke=(entry.paint.color()) stroke-opacity="0.45" stroke-width="1" {}
            }
            (swatch(entry, left, y))
            @let rows = rows(entry.label);
            @for (index, row) in rows.iter().enumerate() {
                @let offset = (index as f64 - (rows.len() - 1) as f64 / 2.0) * 15.0;
                text x=(px(left + 28.0)) y=(px(y + 4.3 + offset)) font-size="12.5" fill=(palette::INK) { (row) }
            }
        }
    }
}

/// The legend in rows from (16, `top`) to the right edge `width`; returns it and the y below it.
pub fn legend(entries: &[Entry], top: f64, width: f64) -> (Markup, f64) {
    let (mut x, mut y) = (16.0, top + 8.0);
    let mut placed = Vec::new();
    for entry in entries {
        let rows = text::wrap_phrases(entry.label, ", ", SIZE, width - 60.0);
        let widest = rows.iter().map(|row| text::width(row, SIZE)).fold(0.0, f64::max) + 28.0;
        if x > 16.0 && (x + widest > width - 12.0 || rows.len() > 1) {
            (x, y) = (16.0, y + ROW);
        }
        placed.push((x, y, entry, rows.clone()));
        x += widest + 14.0;
        if rows.len() > 1 {
            (x, y) = (16.0, y + ROW + (rows.len() - 1) as f64 * 15.0);
        }
    }
    let below = if x > 16.0 { y + ROW } else { y };
    let markup = html! {
        @for (x, y, entry, rows) in &placed {
            (swatch(entry, *x, *y))
            @for (index, row) in rows.iter().enumerate() {
                text x=(px(x + 28.0)) y=(px(y + 4.3 + index as f64 * 15.0)) font-size="12.5"
                    fill=(palette::INK) { (row) }
            }
        }
    };
    (markup, if entries.is_empty() { top } else { below })
}

fn swatch(entry: &Entry, x: f64, y: f64) -> Markup {
    html! {
        line x1=(px(x)) y1=(px(y)) x2=(px(x + 22.0)) y2=(px(y)) stroke=(entry.paint.color())
            stroke-width="2" stroke-dasharray=[entry.reference.then_some("5 4")] {}
        @if entry.is_marked { (entry.paint.marker(x + 11.0, y)) }
    }
}

/// Centres for labels of the given heights, in the order of `wanted` (ascending), as near to it as
/// possible without overlap and within [`head`, `foot`]. Labels that touch move as one block, which is
/// centred on the mean of what its members want.
fn spread(wanted: &[f64], heights: &[f64], head: f64, foot: f64) -> Vec<f64> {
    struct Block {
        first: usize,
        top: f64,
        height: f64,
    }
    let place = |first: usize, end: usize| {
        let height: f64 = heights[first..end].iter().sum();
        let mut above = 0.0;
        let mut sum = 0.0;
        for index in first..end {
            sum += wanted[index] - above - heights[index] / 2.0;
            above += heights[index];
        }
        let top = sum / (end - first) as f64;
        Block { first, top: top.min(foot - height).max(head), height }
    };
    let mut blocks: Vec<Block> = Vec::new();
    for index in 0..wanted.len() {
        let mut block = place(index, index + 1);
        while let Some(previous) =
            blocks.pop_if(|previous| previous.top + previous.height > block.top)
        {
            block = place(previous.first, index + 1);
        }
        blocks.push(block);
    }
    let mut centers = Vec::with_capacity(wanted.len());
    for (number, block) in blocks.iter().enumerate() {
        let end = blocks.get(number + 1).map_or(wanted.len(), |next| next.first);
        let mut top = block.top;
        for height in &heights[block.first..end] {
            centers.push(top + height / 2.0);
            top += height;
        }
    }
    centers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_labels_neither_overlap_nor_leave() {
        for wanted in [vec![50.0; 9], vec![0.0, 1.0, 2.0, 200.0], vec![198.0, 199.0, 200.0], vec![]]
        {
            let heights = vec![18.0; wanted.len()];
            let centers = spread(&wanted, &heights, 0.0, 200.0);
            assert!(centers.windows(2).all(|pair| pair[1] - pair[0] >= 17.99), "{centers:?}");
            assert!(centers.iter().all(|y| (8.99..=191.01).contains(y)), "{centers:?}");
        }
    }

    #[test]
    fn labels_with_room_stay_where_they_want() {
        assert_eq!(spread(&[20.0, 100.0], &[18.0, 18.0], 0.0, 200.0), [20.0, 100.0]);
    }
}
