//! The metrics of one call.
//!
//! **Invariant:** a call that failed is infinitely slow in every latency, and of speed 0, whatever it delivered before; a
//! call under way, or one that lacks a boundary, has no value.

use ledger::Stage;

use super::{Boundary, Metric, PrefillBasis, Unit};
use crate::sample::{Channel, Ns, Outcome, Sample};

const NS_PER_MS: f64 = 1e6;
const NS_PER_S: f64 = 1e9;

/// What a call has of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// In the metric's unit; not empty.
    Values(Vec<f64>),
    /// The call failed.
    Failed,
    /// Still under way at the run's end.
    InFlight,
    /// A boundary is missing, for one or another good reason.
    Absent,
}

/// How the run's metrics are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub stream: bool,
    pub prefill: PrefillBasis,
}

impl Reading {
    /// The values with failures in: infinite for latencies, 0 for speeds. None where the call does not count.
    pub fn judged(self, unit: Unit) -> Option<Vec<f64>> {
        match self {
            Reading::Values(values) => Some(values),
            Reading::Failed if unit.larger_is_better() => Some(vec![0.0]),
            Reading::Failed => Some(vec![f64::INFINITY]),
            Reading::InFlight | Reading::Absent => None,
        }
    }

    /// The call's one value: itself, or the mean of several.
    pub fn mean(self, unit: Unit) -> Option<f64> {
        self.judged(unit).map(|values| crate::stats::mean(&values))
    }
}

/// A metric of a call.
pub fn read(sample: &Sample, metric: Metric, rules: Rules) -> Reading {
    if sample.outcome == Outcome::InFlight {
        return Reading::InFlight;
    }
    if metric.definition().streamed && !rules.stream {
        return Reading::Absent;
    }
    if sample.outcome.is_failure() {
        return Reading::Failed;
    }
    match values(sample, metric, rules) {
        Some(values) if !values.is_empty() => Reading::Values(values),
        _ => Reading::Absent,
    }
}

fn values(sample: &Sample, metric: Metric, rules: Rules) -> Option<Vec<f64>> {
    match metric {
        Metric::Itl => Some(
            gaps(sample)
                .flat_map(|(gap, tokens)| std::iter::repeat_n(gap / f64::from(tokens), tokens as usize))
                .collect(),
        ),
        Metric::ItlChunk => Some(gaps(sample).map(|(gap, _)| gap).collect()),
        Metric::Tbt => Some(
            gaps(sample)
                .flat_map(|(gap, tokens)| (0..tokens).map(move |index| if index == 0 { gap } else { 0.0 }))
                .collect(),
        ),
        Metric::TbtMax => gaps(sample).map(|(gap, _)| gap).max_by(f64::total_cmp).map(|gap| vec![gap]),
        Metric::Tpot => {
            let tokens = tokens_after_first(sample);
            (tokens > 0).then_some(())?;
            Some(vec![span_ms(sample, Boundary::FirstToken, Boundary::LastToken)? / tokens as f64])
        }
        Metric::OutputSpeed => {
            let ms = span_ms(sample, Boundary::FirstToken, Boundary::LastToken)?;
            Some(vec![speed(tokens_after_first(sample), ms * NS_PER_MS)?])
        }
        Metric::PrefillSpeed => {
            let ns = match rules.prefill {
                PrefillBasis::Server => server_prefill_ns(sample)? as f64,
                PrefillBasis::Ttft if rules.stream => {
                    span_ms(sample, Boundary::Sent, Boundary::FirstToken)? * NS_PER_MS
                }
                PrefillBasis::Ttft => return None,
            };
            let prompt = sample.tokens.prompt?;
            Some(vec![speed(u64::from(prompt.saturating_sub(sample.tokens.cached.unwrap_or(0))), ns)?])
        }
        Metric::DecodeSpeed => {
            let ns = server_decode_ns(sample)?;
            Some(vec![speed(tokens_after_first(sample), ns as f64)?])
        }
        _ => {
            let definition = metric.definition();
            Some(vec![span_ms(sample, definition.from, definition.to)?])
        }
    }
}

/// When a boundary was; None if it was not seen.
pub fn moment(sample: &Sample, boundary: Boundary) -> Option<Ns> {
    match boundary {
        Boundary::Intended => Some(sample.intended_ns),
        Boundary::Sent => sample.sent_ns,
        Boundary::Headers => sample.headers_ns,
        Boundary::FirstByte => sample.first_byte_ns,
        Boundary::FirstToken => sample.chunks.first().map(|chunk| chunk.at_ns),
        Boundary::FirstAnswerToken => {
            sample.chunks.iter().find(|chunk| chunk.channel == Channel::Answer).map(|chunk| chunk.at_ns)
        }
        Boundary::LastToken => sample.chunks.last().map(|chunk| chunk.at_ns).or(sample.last_byte_ns),
        Boundary::LastByte => sample.last_byte_ns,
        Boundary::ChunkBefore | Boundary::Chunk | Boundary::ServerBegin | Boundary::ServerEnd => None,
    }
}

/// Between two boundaries, in milliseconds; negative spans do not occur on one monotonic clock, and are none.
pub fn span_ms(sample: &Sample, from: Boundary, to: Boundary) -> Option<f64> {
    let ns = moment(sample, to)?.checked_sub(moment(sample, from)?)?;
    Some(ns as f64 / NS_PER_MS)
}

/// The gap before each chunk after the first, in milliseconds, with the chunk's tokens.
fn gaps(sample: &Sample) -> impl Iterator<Item = (f64, u32)> + '_ {
    sample
        .chunks
        .windows(2)
        .map(|pair| (pair[1].at_ns.saturating_sub(pair[0].at_ns) as f64 / NS_PER_MS, pair[1].tokens.max(1)))
}

/// Tokens that came behind the first chunk.
pub fn tokens_after_first(sample: &Sample) -> u64 {
    sample.chunks.iter().skip(1).map(|chunk| u64::from(chunk.tokens)).sum()
}

/// Output tokens of a call: the server's usage, or what was counted.
pub fn output_tokens(sample: &Sample) -> u64 {
    u64::from(sample.tokens.output.unwrap_or(sample.tokens.counted))
}

fn speed(tokens: u64, ns: f64) -> Option<f64> {
    (tokens > 0 && ns > 0.0).then(|| tokens as f64 / ns * NS_PER_S)
}

/// What the server says it spent computing the prompt, waits left out.
pub fn server_prefill_ns(sample: &Sample) -> Option<u64> {
    sum_of(&sample.server.to_first_token, &[Stage::Prefill])
}

/// What the server says it spent on tokens behind the first, waits left out.
pub fn server_decode_ns(sample: &Sample) -> Option<u64> {
    sum_of(&sample.server.after_it, &[Stage::Decode, Stage::Communicate, Stage::Sample])
        .filter(|_| sample.server.after_it.iter().any(|(stage, _)| *stage == Stage::Decode))
}

fn sum_of(account: &[(Stage, u64)], stages: &[Stage]) -> Option<u64> {
    let sum: u64 = account.iter().filter(|(stage, _)| stages.contains(stage)).map(|(_, ns)| ns).sum();
    (sum > 0).then_some(sum)
}
