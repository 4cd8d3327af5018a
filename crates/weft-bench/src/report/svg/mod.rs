//! Charts as SVG. A [`Chart`] says what to draw; [`Chart::render`] lays it out for one of two widths,
//! so that the page can show a phone a figure made for a phone instead of a shrunken one. Text is
//! measured by estimate (`text.rs`), for no font is at hand; the estimates are those of a wide font.
//!
//! Conventions: one hue per I/O driver and a ramp from light to dark within it, a marker shape per
//! series (never colour alone), labels beside the lines where there is room and a legend above the plot
//! where there is not, y axes from zero unless they are logarithmic.

mod bars;
mod label;
mod line;
pub mod palette;
mod scale;
mod text;

use maud::{Markup, html};

pub use palette::Paint;

/// How wide the figure is drawn, and thus where its labels go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// For a desktop page or a file: labels beside the lines.
    Wide,
    /// For a phone: legend above the plot.
    Narrow,
}

impl Layout {
    /// Width of the figure, CSS pixels.
    pub fn width(self) -> f64 {
        match self {
            Layout::Wide => 780.0,
            Layout::Narrow => 370.0,
        }
    }
}

/// How the x axis divides its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XScale {
    /// Each doubling takes the same space; values below one are drawn at one.
    Log2,
    /// Proportional, with the ticks of a fraction from 0 to 1.
    Fraction,
    /// Proportional from 0 on, round ticks. The points of a series are many: they have no markers.
    Linear,
}

/// A figure: axes, series, guides.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Headline.
    pub title: String,
    /// The settings under which the points were taken.
    pub subtitle: String,
    /// What the x axis counts.
    pub x_title: String,
    /// How the x axis divides its space.
    pub x_scale: XScale,
    /// What the y axis measures, with its unit.
    pub y_title: String,
    /// Whether the y axis is logarithmic; otherwise it starts at zero.
    pub y_log: bool,
    /// The lines.
    pub series: Vec<Series>,
    /// Horizontal auxiliary lines.
    pub guides: Vec<Guide>,
    /// Vertical ones, through the plots below, too.
    pub moments: Vec<Moment>,
    /// Further plots over the same x axis, below this one; of these only the y axis, series and guides count.
    pub below: Vec<Chart>,
}

/// One line with its markers.
#[derive(Clone, Debug)]
pub struct Series {
    /// What the line shows.
    pub label: String,
    /// Colour and marker shape.
    pub paint: Paint,
    /// A reference rather than a measurement: dashed, no markers, may leave the plot at the top.
    pub reference: bool,
    /// A single point that holds for every x: its value is drawn as a dashed line across the plot.
    pub across: bool,
    /// What lies below the line has its colour. Series that are stacked come from the highest to the lowest, with the sums
    /// up to them as values.
    pub filled: bool,
    /// In ascending x.
    pub marks: Vec<Mark>,
}

/// One point of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// Position on the x axis.
    pub x: f64,
    /// Median value.
    pub y: f64,
    /// Lowest and highest value of the repetitions, if there were several.
    pub range: Option<(f64, f64)>,
}

/// A horizontal auxiliary line.
#[derive(Clone, Debug)]
pub struct Guide {
    /// What the line marks, with its value.
    pub label: String,
    /// Where it lies.
    pub y: f64,
}

/// A vertical auxiliary line.
#[derive(Clone, Debug)]
pub struct Moment {
    /// What happened there.
    pub label: String,
    /// Where it lies.
    pub x: f64,
}

impl Chart {
    /// Draws the chart: lines, or bars when all points have the same x.
    pub fn render(&self, layout: Layout) -> Markup {
        let mut xs = self.swept().flat_map(|series| series.marks.iter().map(|mark| mark.x));
        let first = xs.next();
        let one_x = xs.all(|x| Some(x) == first);
        if one_x { bars::render(self, layout) } else { line::render(self, layout) }
    }

    /// The series whose points lie along the x axis.
    fn swept(&self) -> impl Iterator<Item = &Series> {
        self.measured().filter(|series| !series.across)
    }

    fn measured(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| !series.reference)
    }
}

/// How much wider bold text is than the estimates of [`text`].
const BOLD: f64 = 1.15;

/// The outer element, the background, title and subtitle; returns the drawing placed below them.
/// `body` gets the y at which it may start and returns its elements and the y at which it ended.
fn framed(chart: &Chart, layout: Layout, body: impl FnOnce(f64) -> (Markup, f64)) -> Markup {
    let width = layout.width();
    let title_size = if layout == Layout::Wide { 17.0 } else { 15.5 };
    let title = text::wrap(&chart.title, title_size * BOLD, width - 32.0);
    let subtitle = text::wrap_phrases(&chart.subtitle, " · ", 12.5, width - 32.0);
    let subtitle_top = 12.0 + title.len() as f64 * (title_size + 4.0);
    let body_top = subtitle_top + subtitle.len() as f64 * 16.5 + 14.0;
    let (drawing, height) = body(body_top);
    let line_y = |top: f64, index: usize, step: f64| px(top + (index + 1) as f64 * step);
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {} {}", px(width), px(height)))
            width=(px(width)) height=(px(height)) role="img" aria-label=(chart.title)
            font-family="system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, 'DejaVu Sans', sans-serif" {
            rect width="100%" height="100%" fill="#ffffff" {}
            g font-size=(px(title_size)) font-weight="700" fill=(palette::INK) {
                @for (index, row) in title.iter().enumerate() {
                    text x="16" y=(line_y(8.0, index, title_size + 4.0)) { (row) }
                }
            }
            g font-size="12.5" fill=(palette::SOFT_INK) {
                @for (index, row) in subtitle.iter().enumerate() {
                    text x="16" y=(line_y(subtitle_top, index, 16.5)) { (row) }
                }
            }
            (drawing)
        }
    }
}

/// A coordinate with one decimal.
fn px(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    format!("{rounded}")
}
