//! Colours and marker shapes. The hues are those of Okabe and Ito, which stay apart for colour-blind
//! readers; a ramp within a hue orders the depths or page sizes of one driver.

use maud::{Markup, html};

use super::px;

/// Titles, labels.
pub const INK: &str = "#1f2328";
/// Subtitles, ticks.
pub const SOFT_INK: &str = "#57606a";
/// Grid lines.
pub const GRID: &str = "#e4e7eb";
/// Axis lines.
pub const AXIS: &str = "#8c959f";

/// The family of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hue {
    /// Asynchronous through io_uring or the simulated device.
    Blue,
    /// Synchronous: the baseline.
    Orange,
    /// Asynchronous through POSIX threads.
    Green,
    /// Other programs, such as fio.
    Pink,
    /// References and optima.
    Grey,
}

impl Hue {
    /// Light to dark.
    fn anchors(self) -> &'static [[u8; 3]] {
        match self {
            Hue::Blue => &[[77, 175, 225], [0, 114, 178], [35, 62, 140], [58, 16, 90]],
            Hue::Orange => &[[230, 159, 0], [213, 94, 0], [130, 50, 0]],
            Hue::Green => &[[70, 190, 130], [0, 128, 95], [0, 66, 52]],
            Hue::Pink => &[[214, 135, 178], [160, 70, 125], [88, 24, 70]],
            Hue::Grey => &[[95, 99, 104]],
        }
    }

    /// The colour of a series that has the hue to itself.
    fn base(self) -> [u8; 3] {
        match self {
            Hue::Grey => self.anchors()[0],
            _ => self.anchors()[1],
        }
    }
}

/// Colour and marker of a series: the `step`-th of `steps` series of one hue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    /// The family of the colour.
    pub hue: Hue,
    /// Position on the ramp, from light to dark, below `steps`.
    pub step: usize,
    /// How many series share the hue.
    pub steps: usize,
}

impl Paint {
    /// The only series of a hue.
    pub fn single(hue: Hue) -> Paint {
        Paint { hue, step: 0, steps: 1 }
    }

    /// The colour as `#rrggbb`.
    pub fn color(self) -> String {
        let [red, green, blue] = if self.steps <= 1 { self.hue.base() } else { self.on_ramp() };
        format!("#{red:02x}{green:02x}{blue:02x}")
    }

    fn on_ramp(self) -> [u8; 3] {
        let anchors = self.hue.anchors();
        let position = self.step as f64 / (self.steps - 1) as f64 * (anchors.len() - 1) as f64;
        let below = (position.floor() as usize).min(anchors.len() - 1);
        let above = (below + 1).min(anchors.len() - 1);
        let share = position - below as f64;
        std::array::from_fn(|channel| {
            let (from, to) =
                (f64::from(anchors[below][channel]), f64::from(anchors[above][channel]));
            (from + (to - from) * share).round() as u8
        })
    }

    /// The marker centred on (x, y), with a white edge that sets it off from lines below it.
    pub fn marker(self, x: f64, y: f64) -> Markup {
        let color = self.color();
        let polygon = |corners: &[(f64, f64)]| {
            let corners = corners.iter().map(|(dx, dy)| format!("{},{}", px(x + dx), px(y + dy)));
            let corners = corners.collect::<Vec<_>>().join(" ");
            html! { polygon points=(corners) fill=(color) stroke="#ffffff" stroke-width="1" {} }
        };
        let first = match self.hue {
            Hue::Blue | Hue::Grey => 0,
            Hue::Orange => 1,
            Hue::Green => 2,
            Hue::Pink => 3,
        };
        match (first + self.step) % 6 {
            0 => html! {
                circle cx=(px(x)) cy=(px(y)) r="4.4" fill=(color) stroke="#ffffff" stroke-width="1" {}
            },
            1 => polygon(&[(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)]),
            2 => polygon(&[(0.0, -5.4), (5.0, 3.9), (-5.0, 3.9)]),
            3 => polygon(&[(0.0, -5.8), (5.8, 0.0), (0.0, 5.8), (-5.8, 0.0)]),
            4 => polygon(&[(0.0, 5.4), (5.0, -3.9), (-5.0, -3.9)]),
            _ => polygon(&[
                (-5.6, 0.0),
                (-2.8, -4.9),
                (2.8, -4.9),
                (5.6, 0.0),
                (2.8, 4.9),
                (-2.8, 4.9),
            ]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_of_a_ramp_differ() {
        for hue in [Hue::Blue, Hue::Orange, Hue::Green, Hue::Pink] {
            let colors: Vec<_> =
                (0..10).map(|step| Paint { hue, step, steps: 10 }.color()).collect();
            for pair in colors.windows(2) {
                assert_ne!(pair[0], pair[1], "{hue:?}");
            }
        }
        assert_eq!(Paint::single(Hue::Blue).color(), "#0072b2");
    }
}
