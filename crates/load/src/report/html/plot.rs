//! The frame that all charts share: an SVG that stretches with the page, and labels in HTML around it, so that text keeps
//! its size on a phone.

use std::fmt::Write;

use crate::report::number::{duration, plain};

/// The SVG's units along either side.
pub const SIDE: f64 = 1000.0;

/// A scale from values to the SVG's units.
#[derive(Clone, Debug)]
pub struct Axis {
    from: f64,
    to: f64,
    log: bool,
    /// Values with a line and a label.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0 to at least `to`, with round ticks.
    pub fn linear(to: f64, label: impl Fn(f64) -> String) -> Self {
        let to = if to > 0.0 && to.is_finite() { to } else { 1.0 };
        Axis::with_steps(to, 5.0, label)
    }

    /// From 0 to at least `to`, in about `steps` round steps.
    fn with_steps(to: f64, steps: f64, label: impl Fn(f64) -> String) -> Self {
        let rough = to / steps;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(power * 10.0);
        let count = (to / step - 1e-9).ceil().max(1.0) as usize;
        let ticks = (0..=count).map(|index| index as f64 * step).map(|value| (value, label(value))).collect();
        Axis { from: 0.0, to: count as f64 * step, log: false, ticks }
    }

    /// Exactly from `from` to `to`, with round ticks between.
    pub fn span(from: f64, to: f64, label: impl Fn(f64) -> String) -> Self {
        let length = if to > from { to - from } else { 1.0 };
        let mut axis = Axis::with_steps(length, 10.0, &label);
        axis.ticks.retain(|(value, _)| *value <= length * 1.000_001);
        for (value, text) in &mut axis.ticks {
            *value += from;
            *text = label(*value);
        }
        Axis { from, to: from + length, ..axis }
    }

    /// Milliseconds from below `from` to above `to`, by powers.
    pub fn log_ms(from: f64, to: f64, ticks_max: usize) -> Self {
        let from = from.max(1e-3);
        let to = to.max(from * 1.01);
        // Short ranges end at 1, 2 or 5 of a power, so that a narrow distribution is not a spike in a decade.
        let (from, to) = (step_down(from), step_up(to));
        let powers = from.log10().floor() as i32..=to.log10().ceil() as i32;
        let with = |digits: &[f64]| -> Vec<f64> {
            let powers =
                powers.clone().flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)));
            powers.filter(|value| *value >= from * 0.999 && *value <= to * 1.001).collect()
        };
        let sets = [with(&[1.0, 2.0, 5.0]), with(&[1.0, 3.0]), with(&[1.0])];
        let fitting = sets.iter().find(|values| values.len() <= ticks_max).unwrap_or(&sets[2]);
        let ticks = fitting.iter().map(|value| (*value, tick(*value))).collect();
        Axis { from, to, log: true, ticks }
    }

    pub fn without_ticks(self) -> Self {
        Axis { ticks: Vec::new(), ..self }
    }

    /// The axis with one more tick at its very end.
    pub fn with_end(mut self, label: &str) -> Self {
        self.ticks.retain(|(value, _)| *value < self.to * 0.999);
        self.ticks.push((self.to, label.to_owned()));
        self
    }

    /// The place of a value, 0 to [`SIDE`]; what lies outside is at the nearer end.
    pub fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(1e-9) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        share.clamp(0.0, 1.0) * SIDE
    }

    pub fn ends(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// `count` intervals of equal width on the page, by their edges.
    pub fn edges(&self, count: usize) -> Vec<f64> {
        let share = |index: usize| index as f64 / count as f64;
        let value = |share: f64| {
            if self.log {
                self.from * (self.to / self.from).powf(share)
            } else {
                self.from + (self.to - self.from) * share
            }
        };
        (0..=count).map(|index| value(share(index))).collect()
    }
}

fn step_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].map(|digit| digit * power).into_iter().find(|step| *step <= value).unwrap_or(power)
}

fn step_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].map(|digit| digit * power).into_iter().find(|step| *step >= value).unwrap_or(power * 10.0)
}

/// A round time, without the digits that measurements have.
fn tick(ms: f64) -> String {
    let text = duration(ms);
    match text.split_once(' ') {
        Some((value, unit)) if value.contains('.') => {
            format!("{} {unit}", value.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// Labels of an axis of seconds.
pub fn seconds(value: f64) -> String {
    format!("{} s", plain(value))
}

/// A chart. Its texts are ours or escaped already.
pub struct Plot<'a> {
    /// As headings and readers of the screen have it.
    pub title: &'a str,
    /// Stands small behind the title.
    pub note: &'a str,
    /// What a reader who cannot see it should know.
    pub summary: String,
    /// Whether the title is shown, or a heading above says it.
    pub captioned: bool,
    /// Stands under the chart.
    pub x_name: &'a str,
    pub x: &'a Axis,
    pub y: &'a Axis,
    /// CSS pixels.
    pub height: f64,
    /// SVG elements in units of [`SIDE`], y downwards.
    pub marks: String,
    /// HTML that is laid over the SVG, placed in percent.
    pub over: String,
}

impl Plot<'_> {
    /// Writes the chart as a figure.
    pub fn write(&self, out: &mut String) {
        let _ = write!(out, "<figure class=\"plot\">");
        if self.captioned {
            let _ = write!(out, "<figcaption>{} <small>{}</small></figcaption>", self.title, self.note);
        }
        let _ = write!(out, "<div class=\"frame\" style=\"--h:{}px\"><div class=\"ylabels\">", self.height);
        for (value, label) in &self.y.ticks {
            let _ =
                write!(out, "<span style=\"bottom:{:.2}%\">{label}</span>", self.y.at(*value) / SIDE * 100.0);
        }
        let _ = write!(
            out,
            "</div><div class=\"area\"><svg viewBox=\"0 0 {SIDE} {SIDE}\" preserveAspectRatio=\"none\" role=\"img\">\
             <title>{}</title><desc>{}</desc><g class=\"grid\">",
            self.title, self.summary
        );
        for (value, _) in &self.y.ticks {
            let y = SIDE - self.y.at(*value);
            let _ = write!(out, "<path d=\"M0 {y:.1}H{SIDE}\"/>");
        }
        for (value, _) in &self.x.ticks {
            let _ = write!(out, "<path d=\"M{:.1} 0V{SIDE}\"/>", self.x.at(*value));
        }
        let _ = write!(out, "</g>{}</svg>{}</div><div class=\"xlabels\">", self.marks, self.over);
        let close = self.x.ticks.len() > 5;
        for (index, (value, label)) in self.x.ticks.iter().enumerate() {
            // On narrow pages every other label goes.
            let minor = if close && index % 2 == 1 { " class=\"minor\"" } else { "" };
            let left = self.x.at(*value) / SIDE * 100.0;
            let _ = write!(out, "<span{minor} style=\"left:{left:.2}%\">{label}</span>");
        }
        let _ = write!(out, "</div><div class=\"xname\">{}</div></div></figure>", self.x_name);
    }
}

/// A label laid over a chart at a place in units of [`SIDE`], y downwards.
pub fn over_label(out: &mut String, class: &str, x: f64, y: f64, label: &str) {
    let (left, top) = (x / SIDE * 100.0, y / SIDE * 100.0);
    let _ =
        write!(out, "<span class=\"over {class}\" style=\"left:{left:.2}%;top:{top:.2}%\">{label}</span>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_reach_beyond_the_largest_value() {
        let labels =
            |to| Axis::linear(to, plain).ticks.into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels(9.3), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(0.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(1_200.0), ["0", "250", "500", "750", "1,000", "1,250"]);
    }

    #[test]
    fn a_log_axis_holds_its_range_and_labels_powers() {
        let axis = Axis::log_ms(13.0, 870.0, 8);
        assert_eq!(axis.ends(), (10.0, 1000.0));
        let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["10 ms", "20 ms", "50 ms", "100 ms", "200 ms", "500 ms", "1 s"]);
        assert_eq!((axis.at(10.0), axis.at(100.0).round(), axis.at(1e9)), (0.0, 500.0, SIDE));
        let labels = |ticks_max| Axis::log_ms(13.0, 870.0, ticks_max).ticks.len();
        assert_eq!((labels(8), labels(5), labels(4)), (7, 5, 3), "fewer where there is less room");
        assert!(axis.at(0.0) == 0.0 && axis.at(f64::INFINITY) == SIDE);
    }

    #[test]
    fn degenerate_ranges_still_have_an_axis() {
        for axis in
            [Axis::log_ms(0.0, 0.0, 8), Axis::linear(f64::INFINITY, plain), Axis::span(3.0, 3.0, plain)]
        {
            let (from, to) = axis.ends();
            assert!(from < to && axis.at(from).is_finite() && !axis.ticks.is_empty(), "{axis:?}");
        }
    }
}
