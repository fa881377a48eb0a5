//! The run over time, on one axis: tokens a second, calls in flight, and the calls themselves, a lane each.

use std::fmt::Write;

use super::plot::{Axis, Plot, SIDE, seconds};
use super::{lanes, open_section};
use crate::report::number::{counted, plain, value_text};
use crate::results::Results;

/// Points of a line over time.
const POINTS: usize = 240;

pub fn section(out: &mut String, results: &Results) {
    let lead = "Everything on one axis, in seconds since the run's start. The shaded ends are warm-up and cool-down, which \
                do not count.";
    open_section(out, "timeline", "The run over time", lead);
    let last = results.samples.iter().flat_map(|sample| sample.last_byte_ns).max().unwrap_or(0);
    // Behind the last sample that was kept nothing is known, and a line at zero would say otherwise.
    let end_ns = if results.samples_dropped > 0 { last } else { results.window.run_ns.max(last) };
    let x = Axis::span(0.0, end_ns as f64 / 1e9, seconds);
    tokens(out, results, &x);
    in_flight(out, results, &x);
    lanes::chart(out, results, &x);
    out.push_str("</section>");
}

/// Shades what does not count.
pub fn shade(results: &Results, x: &Axis) -> String {
    let (from, to) = (x.at(results.window.from_ns as f64 / 1e9), x.at(results.window.to_ns as f64 / 1e9));
    let mut out = String::new();
    for (left, right) in [(0.0, from), (to, SIDE)] {
        if right > left {
            let width = right - left;
            let _ = write!(
                out,
                "<rect class=\"cut\" x=\"{left:.1}\" y=\"0\" width=\"{width:.1}\" height=\"{SIDE}\"/>"
            );
        }
    }
    out
}

fn tokens(out: &mut String, results: &Results, x: &Axis) {
    let (_, end) = x.ends();
    let width = end / POINTS as f64; // seconds
    let mut bins = vec![0u64; POINTS];
    for chunk in results.samples.iter().flat_map(|sample| &sample.chunks) {
        let bin = (chunk.at_ns as f64 / 1e9 / width) as usize;
        bins[bin.min(POINTS - 1)] += u64::from(chunk.tokens);
    }
    let rates: Vec<f64> = bins.iter().map(|tokens| *tokens as f64 / width).collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    let y = Axis::linear(most, plain);
    let mut path = String::from("M0 1000");
    for (index, rate) in rates.iter().enumerate() {
        let step = SIDE / POINTS as f64;
        let (left, height) = (index as f64 * step, SIDE - y.at(*rate));
        let _ = write!(path, "L{left:.1} {height:.1}H{:.1}", left + step);
    }
    let marks = format!("{}<path class=\"fill\" d=\"{path}V1000Z\"/>", shade(results, x));
    let note = format!("in steps of {} s", value_text(width));
    let summary = format!("at most {} tokens/s", value_text(most));
    let (title, over) = ("Output tokens a second", String::new());
    Plot { title, note: &note, captioned: true, summary, x_name: "", x, y: &y, height: 110.0, marks, over }
        .write(out);
}

fn in_flight(out: &mut String, results: &Results, x: &Axis) {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    let mut unknown_end = 0u64;
    for sample in &results.samples {
        let Some(sent) = sample.sent_ns else { continue };
        let end = if sample.outcome == crate::sample::Outcome::InFlight {
            Some(results.window.run_ns)
        } else {
            sample.last_byte_ns.or(sample.chunks.last().map(|chunk| chunk.at_ns)).or(sample.headers_ns)
        };
        match end {
            Some(end) => changes.extend([(sent, 1), (end.max(sent), -1)]),
            None => unknown_end += 1,
        }
    }
    changes.sort_unstable();
    let (_, end) = x.ends();
    let step = end * 1e9 / POINTS as f64; // nanoseconds
    // The most that were in flight at once within each step, so that a short peak is not lost between two points.
    let mut peaks = vec![0i64; POINTS];
    let (mut now, mut next) = (0i64, 0);
    for (index, peak) in peaks.iter_mut().enumerate() {
        *peak = now;
        while let Some((at, change)) =
            changes.get(next).filter(|(at, _)| *at as f64 <= (index + 1) as f64 * step)
        {
            let _ = at;
            now += change;
            *peak = (*peak).max(now);
            next += 1;
        }
    }
    let most = peaks.iter().copied().max().unwrap_or(0);
    let y = Axis::linear(most as f64, plain);
    let mut path = String::from("M0 1000");
    for (index, peak) in peaks.iter().enumerate() {
        let (left, width) = (index as f64 / POINTS as f64 * SIDE, SIDE / POINTS as f64);
        let _ = write!(path, "L{left:.1} {:.1}H{:.1}", SIDE - y.at(*peak as f64), left + width);
    }
    let marks = format!("{}<path class=\"fill second\" d=\"{path}V1000Z\"/>", shade(results, x));
    let mut note = "the most at once in each step".to_owned();
    if unknown_end > 0 {
        let _ = write!(note, "; without {} whose end was not seen", counted(unknown_end, "call", "calls"));
    }
    let summary = format!("at most {most} at once");
    let (title, over) = ("Calls in flight", String::new());
    Plot { title, note: &note, captioned: true, summary, x_name: "", x, y: &y, height: 80.0, marks, over }
        .write(out);
}
