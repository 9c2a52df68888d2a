//! Charts as SVG. Colours come from the page's style, so that they follow light and dark.

use std::fmt::Write as _;

use super::markup::escape;
use crate::numbers::short;

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 36.0;
/// Number of marks on an axis, about.
const TICKS: f64 = 4.0;

/// How values become places.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scale {
    Linear { from: f64, to: f64 },
    Log { from: f64, to: f64 },
}

impl Scale {
    /// From 0 to the largest value, with some room.
    pub(super) fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let to = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let step = step(to.max(1e-9));
        Self::Linear {
            from: 0.0,
            to: ((to * 1.02 / step).ceil() * step).max(step),
        }
    }

    /// Around the values; not from 0, so that small differences are seen.
    pub(super) fn around(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extremes(values);
        let room = ((high - low) * 0.15).max(high.abs() * 0.05).max(1e-9);
        let step = step(high - low + 2.0 * room);
        Self::Linear {
            from: (((low - room) / step).floor() * step).max(0.0_f64.min(low)),
            to: ((high + room) / step).ceil() * step,
        }
    }

    /// Powers of ten around the values, which are above 0.
    pub(super) fn decades(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extremes(values.filter(|value| *value > 0.0));
        let from = 10_f64.powf(low.max(1e-6).log10().floor());
        let to = 10_f64.powf(high.max(1e-6).log10().ceil());
        Self::Log {
            from,
            to: if to > from { to } else { from * 10.0 },
        }
    }

    /// Where a value is, from 0 to 1.
    fn place(self, value: f64) -> f64 {
        let place = match self {
            Self::Linear { from, to } => (value - from) / (to - from),
            Self::Log { from, to } => (value.max(from).ln() - from.ln()) / (to.ln() - from.ln()),
        };
        if place.is_finite() {
            place.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear { from, to } => {
                let step = step(to - from);
                let first = (from / step).ceil() as i64;
                let last = (to / step + 1e-9).floor() as i64;
                (first..=last).map(|at| at as f64 * step).collect()
            }
            Self::Log { from, to } => {
                let decades = (to / from).log10().round() as i32;
                let every = (decades / 5 + 1).max(1);
                (0..=decades)
                    .step_by(every as usize)
                    .map(|at| from * 10_f64.powi(at))
                    .collect()
            }
        }
    }
}

fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

/// 1, 2 or 5 times a power of ten: about [`TICKS`] of them in a range.
fn step(range: f64) -> f64 {
    let rough = range / TICKS;
    let power = 10_f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|times| rough <= times * power * 1.001);
    times.unwrap_or(10.0) * power
}

/// A chart being drawn.
pub(super) struct Plot {
    x: Scale,
    y: Scale,
    svg: String,
}

impl Plot {
    /// A chart with a name for screen readers, and marks at the y axis.
    pub(super) fn new(name: &str, x: Scale, y: Scale, y_text: impl Fn(f64) -> String) -> Self {
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(name)
        );
        let mut plot = Self { x, y, svg };
        for tick in y.ticks() {
            let place = plot.y(tick);
            let end = WIDTH - RIGHT;
            let text = escape(&y_text(tick));
            let _ = write!(
                plot.svg,
                "<path class=\"grid\" d=\"M{LEFT} {place:.1}H{end}\"/><text class=\"tick end\" x=\"{}\" y=\"{:.1}\">{text}</text>",
                LEFT - 6.0,
                place + 4.0
            );
        }
        plot
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(value) * (HEIGHT - TOP - BOTTOM)
    }

    /// Marks at the x axis where the scale has them.
    pub(super) fn x_ticks(&mut self) {
        let ticks: Vec<(f64, String)> = self
            .x
            .ticks()
            .into_iter()
            .map(|at| (at, short(at)))
            .collect();
        self.x_marks(&ticks);
    }

    /// Marks at the x axis.
    pub(super) fn x_marks(&mut self, marks: &[(f64, String)]) {
        let y = HEIGHT - BOTTOM + 15.0;
        for (at, text) in marks {
            let x = self.x(*at);
            let _ = write!(
                self.svg,
                "<text class=\"tick middle\" x=\"{x:.1}\" y=\"{y}\">{}</text>",
                escape(text)
            );
        }
    }

    /// The label of the x axis.
    pub(super) fn x_label(&mut self, text: &str) {
        let _ = write!(
            self.svg,
            "<text class=\"label middle\" x=\"{}\" y=\"{}\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 4.0,
            escape(text)
        );
    }

    /// A dot with a tooltip.
    pub(super) fn dot(&mut self, x: f64, y: f64, class: &str, title: &str) {
        let (x, y) = (self.x(x), self.y(y));
        let _ = write!(
            self.svg,
            "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"><title>{}</title></circle>",
            escape(title)
        );
    }

    pub(super) fn line(&mut self, points: &[(f64, f64)], class: &str) {
        let Some((first, others)) = points.split_first() else {
            return;
        };
        let mut path = format!("M{:.1} {:.1}", self.x(first.0), self.y(first.1));
        for (x, y) in others {
            let _ = write!(path, "L{:.1} {:.1}", self.x(*x), self.y(*y));
        }
        let _ = write!(self.svg, "<path class=\"line {class}\" d=\"{path}\"/>");
    }

    /// A stretch of values over the whole width.
    pub(super) fn band(&mut self, low: f64, high: f64, class: &str) {
        let (top, bottom) = (self.y(high), self.y(low));
        let _ = write!(
            self.svg,
            "<rect class=\"band {class}\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{}\" height=\"{:.1}\"/>",
            WIDTH - LEFT - RIGHT,
            (bottom - top).max(1.0)
        );
    }

    /// A value's interval at a place.
    pub(super) fn whisker(&mut self, x: f64, low: f64, high: f64, class: &str) {
        let (x, low, high) = (self.x(x), self.y(low), self.y(high));
        let (left, right) = (x - 4.0, x + 4.0);
        let _ = write!(
            self.svg,
            "<path class=\"line {class}\" d=\"M{x:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}H{right:.1}M{left:.1} {high:.1}H{right:.1}\"/>"
        );
    }

    /// A line from top to bottom, with a tooltip.
    pub(super) fn upright(&mut self, at: f64, class: &str, title: &str) {
        let x = self.x(at);
        let _ = write!(
            self.svg,
            "<path class=\"upright {class}\" d=\"M{x:.1} {TOP}V{}\"><title>{}</title></path>",
            HEIGHT - BOTTOM,
            escape(title)
        );
    }

    /// A label next to a line from top to bottom.
    pub(super) fn flag(&mut self, at: f64, row: usize, class: &str, text: &str) {
        let x = self.x(at);
        let is_right = x > (LEFT + WIDTH) * 0.6;
        let (x, anchor) = if is_right {
            (x - 4.0, "end")
        } else {
            (x + 4.0, "start")
        };
        let y = TOP + 10.0 + row as f64 * 13.0;
        let _ = write!(
            self.svg,
            "<text class=\"flag {class} {anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            escape(text)
        );
    }

    pub(super) fn end(mut self) -> String {
        self.svg.push_str("</svg>");
        self.svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_a_few_round_marks() {
        for (values, expected) in [
            (vec![10.0], vec![0.0, 5.0, 10.0, 15.0]),
            (vec![1.9], vec![0.0, 0.5, 1.0, 1.5, 2.0]),
            (vec![0.0], vec![]),
        ] {
            let ticks = Scale::from_zero(values.iter().copied()).ticks();
            if !expected.is_empty() {
                assert_eq!(ticks, expected, "{values:?}");
            }
            assert!((2..=8).contains(&ticks.len()), "{ticks:?}");
        }
        let decades = Scale::decades([0.3, 70.0].into_iter()).ticks();
        assert_eq!(
            decades.iter().map(|tick| short(*tick)).collect::<Vec<_>>(),
            ["0.1", "1", "10", "100"]
        );
    }

    #[test]
    fn odd_values_are_drawn_inside_the_chart() {
        let odd = [f64::NAN, f64::INFINITY, -5.0, 0.0, 1e300];
        for scale in [
            Scale::from_zero(odd.into_iter()),
            Scale::around(odd.into_iter()),
            Scale::decades(odd.into_iter()),
            Scale::around(std::iter::empty()),
        ] {
            for value in odd {
                assert!(
                    (0.0..=1.0).contains(&scale.place(value)),
                    "{scale:?} {value}"
                );
            }
            assert!(scale.ticks().len() < 100, "{scale:?}");
        }
    }

    #[test]
    fn text_is_escaped() {
        let scale = Scale::from_zero([1.0].into_iter());
        let mut plot = Plot::new("<a>", scale, scale, |_| "<b>".to_owned());
        plot.dot(0.0, 0.0, "a", "</title><script>");
        plot.x_marks(&[(0.0, "<c>".to_owned())]);
        plot.flag(0.0, 0, "fault", "<d>");
        let svg = plot.end();
        for tag in ["<a>", "<b>", "<c>", "<d>", "<script>"] {
            assert!(!svg.contains(tag), "{svg}");
        }
    }
}
