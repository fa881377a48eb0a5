//! GuideLLM.
//!
//! Its ITL is one number a call, weighted by the call's tokens less one; its TPOT *includes the first token* and is
//! weighted by the call's tokens. Percentiles are the first value at which the cumulated weight reaches the share. Request
//! latency ends with the stream, not with the last token.

use serde::{Deserialize, Serialize};

use super::{common_notes, has_content, has_failed, last_byte_or_token, per, ttft_ms};
use crate::metrics::Boundary;
use crate::metrics::call::{moment, output_tokens, span_ms};
use crate::results::Results;
use crate::sample::{Channel, Outcome, Sample};

/// Its metrics, of successful requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub duration_s: f64,
    pub successful: usize,
    pub incomplete: usize,
    pub errored: usize,
    pub requests_per_second: f64,
    pub request_concurrency_mean: f64,
    pub request_latency_s: Option<Weighted>,
    pub time_to_first_token_ms: Option<Weighted>,
    pub time_to_first_output_token_ms: Option<Weighted>,
    pub time_per_output_token_ms: Option<Weighted>,
    pub inter_token_latency_ms: Option<Weighted>,
    pub prompt_tokens_per_second: f64,
    pub output_tokens_per_second: f64,
    pub tokens_per_second: f64,
    pub notes: Vec<String>,
}

/// A weighted distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weighted {
    pub count: usize,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
}

impl Weighted {
    /// Values with their weights; those of weight 0 are left out.
    pub fn of(mut values: Vec<(f64, f64)>) -> Option<Self> {
        values.retain(|(_, weight)| *weight > 0.0);
        if values.is_empty() {
            return None;
        }
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = values.iter().map(|(_, weight)| weight).sum();
        let percentile = |percent: f64| {
            let mut sum = 0.0;
            let reaches = values.iter().find(|(_, weight)| {
                sum += weight / total;
                // The slack is for sums of shares, which are not exact.
                sum + 1e-12 >= percent / 100.0
            });
            reaches.unwrap_or(&values[values.len() - 1]).0
        };
        Some(Weighted {
            count: values.len(),
            mean: values.iter().map(|(value, weight)| value * weight).sum::<f64>() / total,
            p50: percentile(50.0),
            p90: percentile(90.0),
            p95: percentile(95.0),
            p99: percentile(99.0),
        })
    }

    fn each(samples: &[&Sample], read: impl Fn(&Sample) -> Option<(f64, f64)>) -> Option<Self> {
        Weighted::of(samples.iter().filter_map(|sample| read(sample)).collect())
    }
}

pub fn figures(results: &Results) -> Figures {
    let good: Vec<&Sample> = results.samples.iter().filter(|sample| has_content(sample)).collect();
    let duration = super::duration_s(results.samples.iter(), last_byte_or_token);
    let output: u64 = good.iter().map(|sample| output_tokens(sample)).sum();
    let input: u64 = good.iter().map(|sample| u64::from(sample.tokens.prompt.unwrap_or(0))).sum();
    let busy: f64 = good.iter().filter_map(|sample| latency_s(sample)).sum();
    let stream = results.target.stream;
    let mut notes = common_notes(results);
    notes.push(
        "of successful requests over the whole run; the tool's own warm-up and cool-down are not applied"
            .to_owned(),
    );
    Figures {
        duration_s: duration,
        successful: good.len(),
        incomplete: results.samples.iter().filter(|sample| sample.outcome == Outcome::InFlight).count(),
        errored: results.samples.iter().filter(|sample| has_failed(sample)).count(),
        requests_per_second: per(good.len() as f64, duration),
        request_concurrency_mean: per(busy, duration),
        request_latency_s: Weighted::each(&good, |sample| Some((latency_s(sample)?, 1.0))),
        time_to_first_token_ms: Weighted::each(&good, |sample| {
            Some((ttft_ms(sample).filter(|_| stream)?, 1.0))
        }),
        time_to_first_output_token_ms: Weighted::each(&good, |sample| {
            let chunk =
                sample.chunks.iter().find(|chunk| chunk.channel != Channel::Reasoning).filter(|_| stream)?;
            Some((chunk.at_ns.checked_sub(sample.sent_ns?)? as f64 / 1e6, 1.0))
        }),
        time_per_output_token_ms: Weighted::each(&good, |sample| {
            let tokens = output_tokens(sample) as f64;
            Some((span_ms(sample, Boundary::Sent, Boundary::LastToken)? / tokens.max(1.0), tokens))
        }),
        inter_token_latency_ms: Weighted::each(&good, |sample| {
            let tokens = output_tokens(sample) as f64;
            let ms = span_ms(sample, Boundary::FirstToken, Boundary::LastToken)
                .filter(|_| stream && tokens > 1.0)?;
            Some((ms / (tokens - 1.0), tokens - 1.0))
        }),
        prompt_tokens_per_second: per(input as f64, duration),
        output_tokens_per_second: per(output as f64, duration),
        tokens_per_second: per((input + output) as f64, duration),
        notes,
    }
}

/// From sending to the end of the stream.
fn latency_s(sample: &Sample) -> Option<f64> {
    let end = last_byte_or_token(sample)?;
    Some(end.checked_sub(moment(sample, Boundary::Sent)?)? as f64 / 1e9)
}
