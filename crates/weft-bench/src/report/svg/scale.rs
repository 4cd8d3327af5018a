//! From values to pixels, and which values get a tick.

use super::{Chart, XScale};
use crate::report::units;

/// A labelled position on an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Pixels.
    pub at: f64,
    /// Text beside it.
    pub label: String,
}

/// One axis: a mapping from [`from`, `to`] to pixels.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    from: f64,
    to: f64,
    log: bool,
    start: f64,
    end: f64,
}

impl Axis {
    /// Pixel position of a value; values below the range of a logarithmic axis lie at its start.
    pub fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.start + share * (self.end - self.start)
    }
}

/// The x axis of a chart between two pixel positions, with a tick at each measured x (powers of two on
/// a logarithmic axis with many).
pub fn x_axis(chart: &Chart, start: f64, end: f64) -> (Axis, Vec<Tick>) {
    let mut values: Vec<f64> = chart.swept().flat_map(|s| s.marks.iter().map(|m| m.x)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    match chart.x_scale {
        XScale::Fraction => {
            let axis = Axis { from: 0.0, to: 1.0, log: false, start, end };
            let steps = if end - start > 420.0 { 10 } else { 5 };
            let fractions = (0..=steps).map(|step| f64::from(step) / f64::from(steps));
            let ticks = fractions.map(|f| Tick { at: axis.at(f), label: units::percent(f) });
            (axis, ticks.collect())
        }
        XScale::Linear => linear_axis(values.last().copied().unwrap_or(1.0), start, end),
        XScale::Log2 => {
            let from = values.first().copied().filter(|first| *first > 0.0).unwrap_or(1.0);
            let to = values.last().copied().unwrap_or(1.0).max(from * 2.0);
            let axis = Axis { from, to, log: true, start, end };
            if values.len() > 12 {
                values.retain(|value| value.log2().fract() == 0.0);
            }
            let ticks = values.iter().map(|&v| Tick { at: axis.at(v), label: units::tick(v) });
            (axis, thin(ticks.collect()))
        }
    }
}

/// Drops ticks whose labels would touch; the outermost ones stay.
fn thin(ticks: Vec<Tick>) -> Vec<Tick> {
    let half = |tick: &Tick| super::text::width(&tick.label, 12.0) / 2.0;
    let Some(last) = ticks.last().cloned() else { return ticks };
    let mut kept: Vec<Tick> = Vec::new();
    for tick in ticks {
        let clear =
            |left: &Tick, right: &Tick| left.at + half(left) + 5.0 <= right.at - half(right);
        let is_last = tick == last;
        let fits = kept.last().is_none_or(|left| clear(left, &tick)) && clear(&tick, &last);
        if is_last || fits {
            kept.push(tick);
        }
    }
    kept
}

/// The y axis of a chart from the pixel of its foot to that of its head.
pub fn y_axis(chart: &Chart, foot: f64, head: f64) -> (Axis, Vec<Tick>) {
    let tops = chart.measured().flat_map(|s| s.marks.iter().map(top));
    let measured = tops.fold(0.0, f64::max);
    if chart.y_log {
        let lows = chart.measured().flat_map(|s| s.marks.iter().map(|m| m.y));
        let lowest = lows.filter(|low| *low > 0.0).fold(f64::INFINITY, f64::min);
        return log_axis(lowest, measured, foot, head);
    }
    let marked = chart.guides.iter().map(|guide| guide.y);
    let references =
        chart.series.iter().filter(|s| s.reference).flat_map(|s| s.marks.iter().map(top));
    // A theoretical optimum far above everything measured may leave the plot at the top.
    let wanted = marked.chain(references).fold(measured, f64::max);
    let is_course = chart.x_scale == XScale::Linear;
    linear_axis(if is_course { wanted } else { wanted.min(measured * 2.5) }, foot, head)
}

/// An axis from zero that holds `highest`, with four to seven round ticks.
pub fn linear_axis(highest: f64, start: f64, end: f64) -> (Axis, Vec<Tick>) {
    let highest = if highest.is_finite() && highest > 0.0 { highest } else { 1.0 };
    let step = round_step(highest / 5.0);
    let steps = (highest / step - 1e-9).ceil().max(1.0);
    let axis = Axis { from: 0.0, to: step * steps, log: false, start, end };
    let ticks = (0..=steps as u32).map(|index| {
        let value = step * f64::from(index);
        Tick { at: axis.at(value), label: units::tick(value) }
    });
    (axis, ticks.collect())
}

fn log_axis(lowest: f64, highest: f64, start: f64, end: f64) -> (Axis, Vec<Tick>) {
    let (lowest, highest) = if lowest.is_finite() { (lowest, highest) } else { (1.0, 10.0) };
    let rounds: Vec<f64> = (-12..=15)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
        .collect();
    let from = rounds.iter().copied().rfind(|v| *v <= lowest * 1.0001).unwrap_or(lowest);
    let to =
        rounds.iter().copied().find(|v| *v >= highest * 0.9999).unwrap_or(highest).max(from * 2.0);
    let axis = Axis { from, to, log: true, start, end };
    let mut shown: Vec<f64> =
        rounds.into_iter().filter(|v| (from..=to * 1.0001).contains(v)).collect();
    if shown.len() > 9 {
        shown.retain(|value| value.log10().fract().abs() < 1e-9);
    }
    let ticks = shown.into_iter().map(|v| Tick { at: axis.at(v), label: units::tick(v) });
    (axis, ticks.collect())
}

/// The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let digit = [1.0, 2.0, 2.5, 5.0].into_iter().find(|digit| digit * power >= least * 0.999);
    digit.unwrap_or(10.0) * power
}

fn top(mark: &super::Mark) -> f64 {
    mark.range.map_or(mark.y, |(_, high)| high.max(mark.y))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_start_at_zero_and_hold_the_highest() {
        for highest in [0.0, 1e-3, 0.7, 1.0, 3.3, 47.0, 1_854_512.0, f64::NAN] {
            let (axis, ticks) = linear_axis(highest, 100.0, 0.0);
            assert_eq!(axis.at(0.0), 100.0);
            assert!(highest.is_nan() || axis.at(highest) >= -1e-9, "{highest}");
            assert!((2..=8).contains(&ticks.len()), "{highest}: {ticks:?}");
        }
    }

    #[test]
    fn log_axes_have_round_ends() {
        let (axis, ticks) = log_axis(73.0, 4200.0, 0.0, 100.0);
        assert_eq!((axis.from.round(), axis.to.round()), (50.0, 5000.0));
        assert!(ticks.len() >= 2);
    }

    #[test]
    fn thinned_ticks_keep_the_outermost() {
        let ticks = (0..30).map(|i| Tick { at: f64::from(i) * 6.0, label: i.to_string() });
        let kept = thin(ticks.collect());
        assert_eq!(kept.first().unwrap().label, "0");
        assert_eq!(kept.last().unwrap().label, "29");
        assert!(kept.len() < 15);
    }
}
