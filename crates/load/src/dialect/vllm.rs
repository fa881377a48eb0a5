//! `vllm bench serve`.
//!
//! Every frame with a `choices` list counts as a token there, so that a role frame starts the first token and a frame that
//! only holds the finish reason adds a gap. Latency ends at the last such frame. TPOT is over usage's tokens, one value a
//! call; ITL is per frame and pooled over calls.

use serde::{Deserialize, Serialize};

use super::{Spread, common_notes, has_failed, per};
use crate::metrics::call::output_tokens;
use crate::results::Results;
use crate::sample::{Ns, Outcome, Sample};
use crate::slo::{Slo, Subject};

/// Its result file's names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub duration: f64,
    pub completed: usize,
    pub failed: usize,
    pub total_input_tokens: u64,
    pub total_output_tokens: u64,
    pub request_throughput: f64,
    /// Calls a second within every objective on TTFT, TPOT and E2EL; None without such objectives.
    pub request_goodput: Option<f64>,
    pub output_throughput: f64,
    pub total_token_throughput: f64,
    pub ttft_ms: Option<Spread>,
    pub tpot_ms: Option<Spread>,
    pub itl_ms: Option<Spread>,
    pub e2el_ms: Option<Spread>,
    /// Frames in the fullest second since the first call.
    pub max_output_tokens_per_s: f64,
    pub max_concurrent_requests: usize,
    pub notes: Vec<String>,
}

/// One call as its client sees it.
struct Seen {
    sent: Ns,
    frames: Vec<Ns>,
    output: u64,
}

impl Seen {
    fn of(sample: &Sample) -> Option<Self> {
        let counts = matches!(
            sample.outcome,
            Outcome::Finished | Outcome::Empty | Outcome::CutShort { .. } | Outcome::ErrorInBand { .. }
        );
        let sent = sample.sent_ns.filter(|_| counts)?;
        let tokens = sample.chunks.iter().map(|chunk| chunk.at_ns);
        let mut frames: Vec<Ns> = tokens.chain(sample.empty_frames.iter().copied()).collect();
        frames.sort_unstable();
        // Without usage it tokenizes the text; our own count stands for that.
        (!frames.is_empty()).then(|| Seen { sent, frames, output: output_tokens(sample).max(1) })
    }

    fn ttft(&self) -> f64 {
        ms(self.frames[0].saturating_sub(self.sent))
    }

    fn latency(&self) -> f64 {
        ms(self.end().saturating_sub(self.sent))
    }

    fn end(&self) -> Ns {
        self.frames[self.frames.len() - 1]
    }

    /// 0 for goodput where there is one token; not in the distribution then.
    fn tpot(&self) -> Option<f64> {
        (self.output > 1).then(|| (self.latency() - self.ttft()) / (self.output - 1) as f64)
    }
}

fn ms(ns: Ns) -> f64 {
    ns as f64 / 1e6
}

pub fn figures(results: &Results, slo: Option<&Slo>) -> Figures {
    let seen: Vec<Seen> = results.samples.iter().filter_map(Seen::of).collect();
    let completed: Vec<&Sample> =
        results.samples.iter().filter(|sample| Seen::of(sample).is_some()).collect();
    let input: u64 = completed.iter().map(|sample| u64::from(sample.tokens.prompt.unwrap_or(0))).sum();
    let output: u64 = seen.iter().map(|call| call.output).sum();
    // It starts its clock before the first call and stops it when the last one's connection is done with.
    let duration = super::duration_s(results.samples.iter(), super::last_byte_or_token);
    let notes = common_notes(results);
    Figures {
        duration,
        completed: seen.len(),
        failed: results.samples.iter().filter(|s| has_failed(s) && Seen::of(s).is_none()).count(),
        total_input_tokens: input,
        total_output_tokens: output,
        request_throughput: per(seen.len() as f64, duration),
        request_goodput: goodput(&seen, slo).map(|good| per(good as f64, duration)),
        output_throughput: per(output as f64, duration),
        total_token_throughput: per((input + output) as f64, duration),
        ttft_ms: Spread::linear(seen.iter().map(Seen::ttft).collect()),
        tpot_ms: Spread::linear(seen.iter().filter_map(Seen::tpot).collect()),
        itl_ms: Spread::linear(
            seen.iter()
                .flat_map(|call| call.frames.windows(2).map(|two| ms(two[1].saturating_sub(two[0]))))
                .collect(),
        ),
        e2el_ms: Spread::linear(seen.iter().map(Seen::latency).collect()),
        max_output_tokens_per_s: fullest_second(&seen),
        max_concurrent_requests: most_at_once(&seen),
        notes,
    }
}

/// Calls within every objective on TTFT, TPOT and end-to-end latency, each compared with the limit as it stands.
fn goodput(seen: &[Seen], slo: Option<&Slo>) -> Option<usize> {
    use crate::metrics::Metric;
    let limits: Vec<(Metric, f64)> = slo?
        .objectives
        .iter()
        .filter_map(|objective| match objective.subject {
            Subject::Call { metric: Metric::Ttft | Metric::TtftSent, .. } => {
                Some((Metric::Ttft, objective.limit))
            }
            Subject::Call { metric: Metric::Tpot, .. } => Some((Metric::Tpot, objective.limit)),
            Subject::Call { metric: Metric::E2e | Metric::E2eSent, .. } => {
                Some((Metric::E2e, objective.limit))
            }
            _ => None,
        })
        .collect();
    if limits.is_empty() {
        return None;
    }
    let is_good = |call: &&Seen| {
        limits.iter().all(|(metric, limit)| {
            let value = match metric {
                Metric::Ttft => call.ttft(),
                Metric::Tpot => call.tpot().unwrap_or(0.0),
                _ => call.latency(),
            };
            value <= *limit
        })
    };
    Some(seen.iter().filter(is_good).count())
}

fn fullest_second(seen: &[Seen]) -> f64 {
    let Some(start) = seen.iter().map(|call| call.sent).min() else { return 0.0 };
    let mut seconds = std::collections::BTreeMap::<u64, u64>::new();
    for at in seen.iter().flat_map(|call| &call.frames) {
        *seconds.entry(at.saturating_sub(start) / 1_000_000_000).or_default() += 1;
    }
    seconds.values().max().map_or(0.0, |&most| most as f64)
}

fn most_at_once(seen: &[Seen]) -> usize {
    let mut events: Vec<(Ns, i64)> =
        seen.iter().flat_map(|call| [(call.sent, 1), (call.end(), -1)]).collect();
    events.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in events {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or(0)
}
