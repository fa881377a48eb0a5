//! The swim lanes: calls over time, one lane each, coloured by what they were waiting for.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::plot::{Axis, Plot, SIDE};
use super::{escape, timeline};
use crate::report::number::{count, duration, quantity};
use crate::report::phases::{self, Phase, Span};
use crate::report::tally;
use crate::results::Results;
use crate::sample::Sample;

/// Lanes that are drawn.
pub const LANES_MAX: usize = 400;
/// Of those, lanes kept for the calls with the largest TTFT,
const SLOW: usize = 60;
/// and for failed calls.
const FAILED: usize = 60;

/// Which calls are drawn, by their place among the samples, and the rule in words.
pub fn chosen(samples: &[Sample]) -> (Vec<usize>, String) {
    let by_time = |mut indices: Vec<usize>| {
        indices.sort_by_key(|index| (samples[*index].intended_ns, samples[*index].call));
        indices
    };
    if samples.len() <= LANES_MAX {
        return (
            by_time((0..samples.len()).collect()),
            format!("All {} calls.", count(samples.len() as u64)),
        );
    }
    let mut kept: BTreeSet<usize> = every(&by_time(failed(samples)), FAILED).collect();
    let mut slow: Vec<(u64, usize)> = samples
        .iter()
        .enumerate()
        .filter_map(|(index, sample)| {
            Some((sample.chunks.first()?.at_ns.saturating_sub(sample.intended_ns), index))
        })
        .collect();
    slow.sort_unstable_by(|a, b| b.cmp(a));
    kept.extend(slow.iter().take(SLOW).map(|(_, index)| *index));
    let all = by_time((0..samples.len()).collect());
    kept.extend(every(&all, LANES_MAX - SLOW - FAILED));
    let rule = format!(
        "{} of {} calls: {} at equal distances in the order of their intended times, the {SLOW} with the largest TTFT, and \
         up to {FAILED} failed ones at equal distances.",
        count(kept.len() as u64),
        count(samples.len() as u64),
        LANES_MAX - SLOW - FAILED
    );
    (by_time(kept.into_iter().collect()), rule)
}

fn failed(samples: &[Sample]) -> Vec<usize> {
    (0..samples.len()).filter(|index| samples[*index].outcome.is_failure()).collect()
}

/// `n` of `indices` at equal distances, or all if there are not more.
fn every(indices: &[usize], n: usize) -> impl Iterator<Item = usize> {
    let len = indices.len();
    (0..n.min(len)).map(move |at| indices[if len <= n { at } else { at * len / n }])
}

pub fn chart(out: &mut String, results: &Results, x: &Axis) {
    let (indices, rule) = chosen(&results.samples);
    if indices.is_empty() {
        out.push_str("<p class=\"empty\">No call was made.</p>");
        return;
    }
    let slow = slow_threshold(results);
    let calls: Vec<(&Sample, Vec<Span>)> = indices
        .iter()
        .map(|index| &results.samples[*index])
        .map(|sample| (sample, phases::spans(sample, results.window.run_ns)))
        .collect();
    let (_, end_s) = x.ends();
    let (lanes, count) = lanes(&calls, (end_s * 1e9 / 400.0) as u64);
    let step = SIDE / count as f64;
    let mut seen = BTreeSet::new();
    let mut marks = timeline::shade(results, x);
    let _ = write!(marks, "<g class=\"calls\" style=\"--w:{:.2}\">", step * 0.74);
    for ((sample, spans), lane) in calls.iter().zip(lanes) {
        seen.extend(spans.iter().map(|span| span.phase));
        one(&mut marks, x, Lane { sample, spans, y: (lane as f64 + 0.5) * step, step, slow });
    }
    marks.push_str("</g>");
    let _ = write!(
        out,
        "<div class=\"lanes\" id=\"lanes\" data-show=\"all\"><p class=\"caption\">Calls <small>Each bar is a call from its \
         intended time on. A lane is taken again once its call has ended, so that as many are in use as calls that are drawn were under way. \
         {rule}</small></p>"
    );
    legend(out, &seen);
    let height = (count as f64 * 13.0).clamp(60.0, 720.0);
    let y = Axis::linear(1.0, |_| String::new()).without_ticks();
    let summary = format!("{rule} Coloured by what each call was waiting for.");
    let (note, over) = ("", String::new());
    Plot { title: "Calls", note, captioned: false, summary, x_name: "", x, y: &y, height, marks, over }
        .write(out);
    out.push_str(
        "<p class=\"caveat\">A server's account gives durations without their place in time: its stages until the first \
         token are laid down in the order of the line from the moment of sending. Point at a call for its numbers; choose \
         a stage in the legend to see it alone.</p></div>",
    );
}

/// A lane for each call, and how many lanes there are: the first that is free, with a little room between two calls.
fn lanes(calls: &[(&Sample, Vec<Span>)], room_ns: u64) -> (Vec<usize>, usize) {
    let mut free_from: Vec<u64> = Vec::new();
    let mut lanes = Vec::with_capacity(calls.len());
    for (sample, spans) in calls {
        let end = spans.last().map_or(sample.intended_ns, |span| span.to_ns) + room_ns;
        let lane = free_from.iter().position(|from| *from <= sample.intended_ns).unwrap_or(free_from.len());
        match free_from.get_mut(lane) {
            Some(from) => *from = end,
            None => free_from.push(end),
        }
        lanes.push(lane);
    }
    (lanes, free_from.len())
}

fn legend(out: &mut String, phases: &BTreeSet<Phase>) {
    out.push_str(
        "<div class=\"tools\"><div class=\"choice\" role=\"group\" aria-label=\"Which calls stand out\">",
    );
    for (value, label) in [("all", "All"), ("slow", "Slowest 5 %"), ("failed", "Failed")] {
        let pressed = value == "all";
        let _ = write!(
            out,
            "<button type=\"button\" data-choose=\"{value}\" aria-pressed=\"{pressed}\">{label}</button>"
        );
    }
    out.push_str("</div><div class=\"legend\" role=\"group\" aria-label=\"Stages\">");
    for phase in phases {
        let (slug, name) = (phase.slug(), phase.name());
        let meaning = escape::text(phase.meaning());
        let _ = write!(
            out,
            "<button type=\"button\" class=\"{slug}\" data-phase=\"{slug}\" aria-pressed=\"false\" title=\"{meaning}\"><i></i>{name}</button>"
        );
    }
    out.push_str("<span class=\"key\"><i class=\"cross\">×</i>failed</span></div></div>");
}

/// The TTFT in nanoseconds that 95 % of the calls with a first token do not exceed.
fn slow_threshold(results: &Results) -> u64 {
    let ttft = |sample: &Sample| Some(sample.chunks.first()?.at_ns.saturating_sub(sample.intended_ns));
    let mut found: Vec<u64> = results.samples.iter().filter_map(ttft).collect();
    if found.is_empty() {
        return u64::MAX;
    }
    let at = (found.len() * 95 / 100).min(found.len() - 1);
    *found.select_nth_unstable(at).1
}

struct Lane<'a> {
    sample: &'a Sample,
    spans: &'a [Span],
    y: f64,
    step: f64,
    slow: u64,
}

fn one(out: &mut String, x: &Axis, lane: Lane) {
    let Lane { sample, spans, y, step, slow } = lane;
    let ttft = sample.chunks.first().map(|chunk| chunk.at_ns.saturating_sub(sample.intended_ns));
    let failed = sample.outcome.is_failure();
    let mut class = String::new();
    if failed {
        class.push_str(" x");
    }
    if ttft.is_some_and(|ttft| ttft >= slow) {
        class.push_str(" slow");
    }
    let _ = write!(
        out,
        "<g class=\"c{class}\" data-t=\"{}\"><path class=\"hit\" d=\"M{:.1} {y:.1}H{:.1}\" style=\"stroke-width:{step:.1}\"/>",
        tip(sample, spans),
        x.at(sample.intended_ns as f64 / 1e9) - 1.0,
        x.at(spans.last().map_or(sample.intended_ns, |span| span.to_ns) as f64 / 1e9) + 1.0,
    );
    for span in spans {
        let (left, right) = (x.at(span.from_ns as f64 / 1e9), x.at(span.to_ns as f64 / 1e9));
        let width = (right - left).max(0.3);
        let _ = write!(out, "<path class=\"{}\" d=\"M{left:.1} {y:.1}h{width:.1}\"/>", span.phase.slug());
    }
    if failed {
        let at = spans.last().map_or(sample.intended_ns, |span| span.to_ns);
        let at = x.at(at as f64 / 1e9);
        let _ = write!(out, "<path class=\"end\" d=\"M{at:.1} {y:.1}h0\"/>");
    }
    out.push_str("</g>");
}

/// Phases of a lane that its numbers name.
const TIP_PHASES: usize = 6;

fn tip(sample: &Sample, spans: &[Span]) -> String {
    let mut out = format!("call {} · {}", sample.call.0, sample.outcome.class());
    if let Some(first) = sample.chunks.first() {
        let ms = |at: u64| Some(at.saturating_sub(sample.intended_ns) as f64 / 1e6);
        let last = sample.chunks.last().map_or(first.at_ns, |chunk| chunk.at_ns);
        let _ = write!(out, " · TTFT {}", quantity(ms(first.at_ns), "ms"));
        let _ = write!(out, " · E2E {} · {} tokens", quantity(ms(last), "ms"), sample.tokens.counted);
    }
    let mut sums: Vec<(Phase, u64)> = Vec::new();
    for span in spans {
        let ns = span.to_ns - span.from_ns;
        match sums.iter_mut().find(|(phase, _)| *phase == span.phase) {
            Some((_, sum)) => *sum += ns,
            None => sums.push((span.phase, ns)),
        }
    }
    let mut largest: Vec<u64> = sums.iter().map(|(_, ns)| *ns).collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    let least = largest.get(TIP_PHASES - 1).copied().unwrap_or(0);
    for (phase, ns) in sums.iter().filter(|(_, ns)| *ns >= least).take(TIP_PHASES) {
        let _ = write!(out, "&#10;{} {}", phase.name(), duration(*ns as f64 / 1e6));
    }
    if let Some(detail) = tally::detail(sample) {
        let _ = write!(out, "&#10;{}", escape::short(&detail, 120));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tally::tests::sample;
    use crate::sample::Outcome;

    #[test]
    fn few_calls_are_all_drawn_in_the_order_of_their_intended_times() {
        let samples = vec![sample(0, 300, &[340]), sample(1, 100, &[140])];
        assert_eq!(chosen(&samples), (vec![1, 0], "All 2 calls.".to_owned()));
    }

    #[test]
    fn calls_at_the_same_time_never_share_a_lane() {
        let samples =
            [sample(0, 0, &[100]), sample(1, 50, &[150]), sample(2, 120, &[220]), sample(3, 121, &[300])];
        let calls: Vec<(&Sample, Vec<Span>)> =
            samples.iter().map(|sample| (sample, phases::spans(sample, 0))).collect();
        assert_eq!(lanes(&calls, 0), (vec![0, 1, 0, 2], 3));
        assert_eq!(lanes(&calls, 30_000_000), (vec![0, 1, 2, 3], 4), "room is kept between two calls");
    }

    #[test]
    fn many_calls_are_thinned_evenly_and_keep_the_slow_and_the_failed() {
        let mut samples: Vec<Sample> =
            (0..5_000).map(|call| sample(call, 100 + call, &[140 + call])).collect();
        samples[4_321].chunks[0].at_ns += 1_000_000_000;
        samples[17].outcome = Outcome::TimedOut;
        let (indices, rule) = chosen(&samples);
        assert!(indices.len() <= LANES_MAX && indices.len() > LANES_MAX - SLOW - FAILED);
        assert!(indices.contains(&4_321) && indices.contains(&17), "the slow and the failed are kept");
        let gaps = indices.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(
            gaps <= 5_000usize.div_ceil(LANES_MAX - SLOW - FAILED),
            "no part of the run is left out: {gaps}"
        );
        assert!(rule.contains("of 5,000 calls"), "{rule}");
    }
}
