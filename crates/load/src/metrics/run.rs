//! Figures of a run as a whole: throughput, rates, concurrency, and how far the token counts agree.
//!
//! **Invariant:** amounts and the time they are divided by belong to one window. Tokens count when they are delivered,
//! prompts when their first token is, calls when they end; so the edges of the window favour nobody.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Boundary;
use super::call::moment;
use crate::results::Results;
use crate::sample::{CountSource, Ns, Outcome, Sample};
use crate::schedule::Pacing;
use crate::stats::{Estimate, RATE_SAMPLES_MIN, Real, wilson};

/// The part of a run that its samples can speak for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from_ns: Ns,
    pub to_ns: Ns,
}

impl Span {
    /// The run's window, ended early by the run's own end, and where samples were dropped by the last one kept.
    pub fn of(results: &Results) -> Self {
        let mut to_ns = results.window.to_ns.min(results.window.run_ns);
        if results.samples_dropped > 0 {
            let last = results.samples.iter().map(|sample| sample.intended_ns).max().unwrap_or(0);
            to_ns = to_ns.min(last);
        }
        Span { from_ns: results.window.from_ns, to_ns: to_ns.max(results.window.from_ns) }
    }

    pub fn seconds(self) -> f64 {
        (self.to_ns - self.from_ns) as f64 / 1e9
    }

    pub fn holds(self, at: Ns) -> bool {
        (self.from_ns..self.to_ns).contains(&at)
    }
}

/// A run's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFigures {
    /// Length of the window in which rates are taken.
    pub window_s: Real,
    /// Output tokens delivered in the window, a second.
    pub output_tokens_per_s: Estimate,
    /// Prompt tokens (cached ones too) of calls whose first token came in the window, a second.
    pub prompt_tokens_per_s: Estimate,
    /// The two together.
    pub total_tokens_per_s: Estimate,
    /// Calls a second that the schedule wanted in the window (closed loop: that users were ready to send).
    pub offered_per_s: Estimate,
    /// The schedule's own mean rate, where it has one.
    pub wanted_per_s: Option<Real>,
    /// Calls handed to a socket in the window, a second.
    pub sent_per_s: Estimate,
    /// Calls that finished in the window, a second.
    pub finished_per_s: Estimate,
    /// Failures over calls of the window that ended, 0 to 1, with Wilson's 95% interval.
    pub error_rate: Estimate,
    pub error_rate_between: Option<[Real; 2]>,
    /// Calls between sending and end, over the window.
    pub concurrency_mean: Real,
    pub concurrency_max: usize,
    /// How the calls of the window ended, by class.
    pub outcomes: BTreeMap<String, usize>,
    pub counts: CountAgreement,
}

/// Whether the server's usage and the count chunk by chunk agree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountAgreement {
    /// Calls that have both a usage and a count.
    pub compared: usize,
    /// Calls where they differ.
    pub differ: usize,
    /// Usage minus count, summed.
    pub difference: i64,
    /// The same without regard to sign.
    pub difference_absolute: u64,
    /// Calls that have no usage, so that our count stands for it.
    pub without_usage: usize,
    /// Calls by where the counts of their chunks come from.
    pub sources: BTreeMap<String, usize>,
}

pub fn figures(results: &Results) -> RunFigures {
    let span = Span::of(results);
    let seconds = span.seconds();
    let counted: Vec<&Sample> = in_window(results).collect();
    let ended: Vec<&Sample> = counted.iter().copied().filter(|s| s.outcome != Outcome::InFlight).collect();
    let failures = ended.iter().filter(|s| s.outcome.is_failure()).count();

    let chunks = |s: &Sample| -> u64 {
        s.chunks.iter().filter(|chunk| span.holds(chunk.at_ns)).map(|chunk| u64::from(chunk.tokens)).sum()
    };
    let output: u64 = results.samples.iter().map(chunks).sum();
    let delivering = results.samples.iter().filter(|s| chunks(s) > 0).count();
    let started: Vec<&Sample> = results
        .samples
        .iter()
        .filter(|s| moment(s, Boundary::FirstToken).is_some_and(|at| span.holds(at)))
        .collect();
    let prompt: u64 = started.iter().filter_map(|s| s.tokens.prompt).map(u64::from).sum();
    let prompts_known = started.iter().all(|s| s.tokens.prompt.is_some());
    let sent = results.samples.iter().filter(|s| s.sent_ns.is_some_and(|at| span.holds(at))).count();
    let finished = results
        .samples
        .iter()
        .filter(|s| matches!(s.outcome, Outcome::Finished | Outcome::Empty) && span.holds(end(s, results)))
        .count();

    let unknown =
        || Estimate::withheld("the server does not tell how many tokens its prompts have", started.len());
    let prompt_rate =
        if prompts_known { Estimate::rate(prompt as f64, seconds, started.len()) } else { unknown() };
    let total_rate = match (&prompt_rate, prompts_known) {
        (_, false) => unknown(),
        _ => Estimate::rate((prompt + output) as f64, seconds, started.len().min(delivering)),
    };
    let (concurrency_mean, concurrency_max) = concurrency(results, span);
    let mut outcomes = BTreeMap::new();
    for sample in &counted {
        *outcomes.entry(sample.outcome.class().to_owned()).or_default() += 1;
    }

    RunFigures {
        window_s: Real(seconds),
        output_tokens_per_s: Estimate::rate(output as f64, seconds, delivering),
        prompt_tokens_per_s: prompt_rate,
        total_tokens_per_s: total_rate,
        offered_per_s: Estimate::rate(counted.len() as f64, seconds, counted.len()),
        wanted_per_s: match results.pacing {
            Pacing::Open { mean_per_s, .. } => mean_per_s.map(Real),
            Pacing::Closed { .. } => None,
        },
        sent_per_s: Estimate::rate(sent as f64, seconds, sent),
        finished_per_s: Estimate::rate(finished as f64, seconds, finished),
        error_rate: share(failures, ended.len()),
        error_rate_between: (!ended.is_empty()).then(|| {
            let (low, high) = wilson(failures, ended.len(), 1.96);
            [Real(low), Real(high)]
        }),
        concurrency_mean: Real(concurrency_mean),
        concurrency_max,
        outcomes,
        counts: agreement(&counted),
    }
}

/// A share of calls, withheld where they are too few.
pub fn share(part: usize, whole: usize) -> Estimate {
    if whole < RATE_SAMPLES_MIN {
        return Estimate::withheld(
            format!("a share needs {RATE_SAMPLES_MIN} calls, there are {whole}"),
            whole,
        );
    }
    Estimate::given(part as f64 / whole as f64, whole)
}

/// The calls that count: those whose intended time lies in the window.
pub fn in_window(results: &Results) -> impl Iterator<Item = &Sample> {
    let window = results.window;
    results.samples.iter().filter(move |s| (window.from_ns..window.to_ns).contains(&s.intended_ns))
}

/// When a call ended: its last byte, the run's end if it was under way then, else the last that was seen of it.
pub fn end(sample: &Sample, results: &Results) -> Ns {
    if sample.outcome == Outcome::InFlight {
        return results.window.run_ns;
    }
    sample
        .last_byte_ns
        .or_else(|| sample.chunks.last().map(|chunk| chunk.at_ns))
        .or(sample.first_byte_ns)
        .or(sample.headers_ns)
        .or(sample.sent_ns)
        .unwrap_or(sample.intended_ns)
}

/// Mean over time and maximum of the calls between sending and end.
fn concurrency(results: &Results, span: Span) -> (f64, usize) {
    let mut events = Vec::new();
    for sample in &results.samples {
        let Some(sent) = sample.sent_ns else { continue };
        let (begin, end) = (sent.max(span.from_ns), end(sample, results).min(span.to_ns));
        if begin < end {
            events.push((begin, 1_i64));
            events.push((end, -1));
        }
    }
    // A call that ends at the moment another begins has made room for it.
    events.sort_unstable();
    let (mut now, mut max, mut busy_ns) = (0_i64, 0_i64, 0_f64);
    let mut before = span.from_ns;
    for (at, change) in events {
        busy_ns += now as f64 * (at - before) as f64;
        before = at;
        now += change;
        max = max.max(now);
    }
    let length = (span.to_ns - span.from_ns) as f64;
    (if length > 0.0 { busy_ns / length } else { 0.0 }, usize::try_from(max).unwrap_or(0))
}

fn agreement(samples: &[&Sample]) -> CountAgreement {
    let mut agreement = CountAgreement::default();
    for sample in samples.iter().filter(|s| s.outcome == Outcome::Finished) {
        let source = match sample.tokens.source {
            CountSource::Server => "server",
            CountSource::Usage => "usage",
            CountSource::Chunks => "chunks",
        };
        *agreement.sources.entry(source.to_owned()).or_default() += 1;
        let Some(usage) = sample.tokens.output else {
            agreement.without_usage += 1;
            continue;
        };
        let difference = i64::from(usage) - i64::from(sample.tokens.counted);
        agreement.compared += 1;
        agreement.differ += usize::from(difference != 0);
        agreement.difference += difference;
        agreement.difference_absolute += difference.unsigned_abs();
    }
    agreement
}
