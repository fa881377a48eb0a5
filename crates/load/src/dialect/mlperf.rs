//! MLPerf Inference, server scenario with token latencies, as its LoadGen reports it.
//!
//! Latency counts from the *scheduled* time, as ours does. A percentile is the order statistic at `n p` rounded down
//! (from 0). TPOT is (completion - first token) / (tokens - 1), completion being when the sample is handed back whole.

use serde::{Deserialize, Serialize};

use super::{Spread, common_notes, has_failed, last_byte_or_token, per};
use crate::metrics::Boundary;
use crate::metrics::call::{output_tokens, span_ms};
use crate::results::Results;
use crate::sample::{Outcome, Sample};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub sample_count: usize,
    /// (samples - 1) / the last scheduled time.
    pub scheduled_samples_per_second: f64,
    /// (samples - 1) / the time at which all were done.
    pub completed_samples_per_second: f64,
    pub completed_tokens_per_second: f64,
    pub latency_ms: Option<Spread>,
    pub first_token_latency_ms: Option<Spread>,
    pub time_per_output_token_ms: Option<Spread>,
    pub notes: Vec<String>,
}

/// The order statistic that LoadGen takes.
fn order_statistic(sorted: &[f64], percent: f64) -> f64 {
    let index = (sorted.len() as f64 * percent / 100.0) as usize;
    sorted[index.min(sorted.len() - 1)]
}

pub fn figures(results: &Results) -> Figures {
    let finished = |sample: &&Sample| matches!(sample.outcome, Outcome::Finished | Outcome::Empty);
    let samples: Vec<&Sample> = results.samples.iter().filter(finished).collect();
    let completed =
        |sample: &Sample| Some(last_byte_or_token(sample)?.checked_sub(sample.intended_ns)? as f64 / 1e6);
    let spread = |read: &dyn Fn(&Sample) -> Option<f64>| {
        Spread::with(samples.iter().filter_map(|sample| read(sample)).collect(), order_statistic)
    };
    let first = |sample: &Sample| span_ms(sample, Boundary::Intended, Boundary::FirstToken);
    // Its clock starts with the first scheduled sample.
    let start = samples.iter().map(|sample| sample.intended_ns).min().unwrap_or(0);
    let since = |at: Option<u64>| at.map_or(0.0, |at| at.saturating_sub(start) as f64 / 1e9);
    let scheduled = since(samples.iter().map(|sample| sample.intended_ns).max());
    let done = since(samples.iter().filter_map(|sample| last_byte_or_token(sample)).max());
    let tokens: u64 = samples.iter().map(|sample| output_tokens(sample)).sum();
    let gaps = samples.len().saturating_sub(1) as f64;
    let mut notes = common_notes(results);
    let failed = results.samples.iter().filter(|sample| has_failed(sample)).count();
    if failed > 0 {
        notes.push(format!(
            "{failed} calls failed: LoadGen knows no failures, and such a run would not be valid"
        ));
    }
    if !results.target.stream {
        notes.push("answers were not streamed, so that there is no first token".to_owned());
    }
    notes.push("validity (minimum duration, query count, early stopping) is not judged here".to_owned());
    Figures {
        sample_count: samples.len(),
        scheduled_samples_per_second: per(gaps, scheduled),
        completed_samples_per_second: per(gaps, done),
        completed_tokens_per_second: per(tokens as f64, done),
        latency_ms: spread(&completed),
        first_token_latency_ms: if results.target.stream { spread(&first) } else { None },
        time_per_output_token_ms: spread(&|sample| {
            let tokens = output_tokens(sample);
            if tokens < 2 || !results.target.stream {
                return None;
            }
            Some((completed(sample)? - first(sample)?) / (tokens - 1) as f64)
        }),
        notes,
    }
}
