//! AIPerf (NVIDIA's successor of GenAI-Perf).
//!
//! Only responses with content count. A call's ITL is one number, its decode time over its tokens less one; pooled gaps
//! are its "inter chunk latency". Latency ends at the last content. Where calls failed, it adds percentiles with failures
//! as infinite, by the nearest rank (`adj_`).

use serde::{Deserialize, Serialize};

use super::{Spread, common_notes, has_content, has_failed, per, ttft_ms};
use crate::metrics::call::{output_tokens, span_ms};
use crate::metrics::{Boundary, PrefillBasis, Rules};
use crate::results::Results;
use crate::sample::Sample;
use crate::slo::Slo;
use crate::stats::Real;

/// Its metrics' tags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub benchmark_duration_s: f64,
    pub request_count: usize,
    pub error_request_count: usize,
    /// Percent.
    pub request_error_rate: f64,
    pub time_to_first_token_ms: Option<Spread>,
    /// From the first content to the second, in spite of its name.
    pub time_to_second_token_ms: Option<Spread>,
    pub time_to_first_output_token_ms: Option<Spread>,
    pub request_latency_ms: Option<Spread>,
    pub inter_token_latency_ms: Option<Spread>,
    pub inter_chunk_latency_ms: Option<Spread>,
    /// 1 over a call's ITL.
    pub output_token_throughput_per_user: Option<Spread>,
    pub prefill_throughput_per_user: Option<Spread>,
    pub output_sequence_length: Option<Spread>,
    pub request_throughput: f64,
    pub output_token_throughput: f64,
    pub total_token_throughput: f64,
    pub goodput: Option<f64>,
    /// p50, p90, p95, p99 with failures as infinite, by nearest rank; None where nothing failed.
    pub adj_time_to_first_token_ms: Option<[Real; 4]>,
    pub adj_request_latency_ms: Option<[Real; 4]>,
    pub notes: Vec<String>,
}

fn latency_ms(sample: &Sample) -> Option<f64> {
    span_ms(sample, Boundary::Sent, Boundary::LastToken)
}

fn itl_ms(sample: &Sample) -> Option<f64> {
    let tokens = output_tokens(sample);
    (tokens >= 2).then_some(())?;
    Some((latency_ms(sample)? - ttft_ms(sample)?) / (tokens - 1) as f64)
}

pub fn figures(results: &Results, slo: Option<&Slo>) -> Figures {
    let good: Vec<&Sample> = results.samples.iter().filter(|sample| has_content(sample)).collect();
    let errors = results.samples.iter().filter(|sample| has_failed(sample)).count();
    // From the first call to the last content of a call that succeeded.
    let duration = super::duration_s(good.iter().copied(), |sample| {
        crate::metrics::call::moment(sample, Boundary::LastToken)
    });
    let each = |read: &dyn Fn(&Sample) -> Option<f64>| {
        good.iter().filter_map(|sample| read(sample)).collect::<Vec<_>>()
    };
    let output: u64 = good.iter().map(|sample| output_tokens(sample)).sum();
    let input: u64 = good.iter().map(|sample| u64::from(sample.tokens.prompt.unwrap_or(0))).sum();
    let rules = Rules { stream: results.target.stream, prefill: PrefillBasis::Ttft };
    let gaps: Vec<f64> = good
        .iter()
        .flat_map(|sample| sample.chunks.windows(2).map(|two| (two[1].at_ns - two[0].at_ns) as f64 / 1e6))
        .collect();
    let streamed = |values: Vec<f64>| if rules.stream { Spread::linear(values) } else { None };
    let mut notes = common_notes(results);
    notes.push(
        "output lengths are the server's usage; the tool tokenizes the text itself unless told otherwise"
            .to_owned(),
    );
    notes.push(
        "ITL takes one token for the first chunk, as the tool does without --per-chunk-usage".to_owned(),
    );
    Figures {
        benchmark_duration_s: duration,
        request_count: good.len(),
        error_request_count: errors,
        request_error_rate: 100.0 * per(errors as f64, (errors + good.len()) as f64),
        time_to_first_token_ms: streamed(each(&ttft_ms)),
        time_to_second_token_ms: streamed(each(&|sample| {
            let [first, second, ..] = sample.chunks.as_slice() else { return None };
            Some((second.at_ns - first.at_ns) as f64 / 1e6)
        })),
        time_to_first_output_token_ms: streamed(each(&|sample| first_output_ms(sample))),
        request_latency_ms: Spread::linear(each(&latency_ms)),
        inter_token_latency_ms: streamed(each(&itl_ms)),
        inter_chunk_latency_ms: streamed(gaps),
        output_token_throughput_per_user: streamed(each(&|s| {
            itl_ms(s).filter(|ms| *ms > 0.0).map(|ms| 1000.0 / ms)
        })),
        prefill_throughput_per_user: streamed(each(&|sample| {
            let ttft = ttft_ms(sample).filter(|ms| *ms > 0.0)?;
            Some(f64::from(sample.tokens.prompt?) / ttft * 1000.0)
        })),
        output_sequence_length: Spread::linear(each(&|sample| Some(output_tokens(sample) as f64))),
        request_throughput: per(good.len() as f64, duration),
        output_token_throughput: per(output as f64, duration),
        total_token_throughput: per((input + output) as f64, duration),
        goodput: slo.map(|slo| per(good.iter().filter(|s| slo.is_good(s, rules)).count() as f64, duration)),
        adj_time_to_first_token_ms: adjusted(each(&ttft_ms), errors),
        adj_request_latency_ms: adjusted(each(&latency_ms), errors),
        notes,
    }
}

/// The first content that is not reasoning: an answer or a call of a tool.
fn first_output_ms(sample: &Sample) -> Option<f64> {
    use crate::sample::Channel;
    let chunk = sample.chunks.iter().find(|chunk| chunk.channel != Channel::Reasoning)?;
    Some(chunk.at_ns.checked_sub(sample.sent_ns?)? as f64 / 1e6)
}

fn adjusted(mut values: Vec<f64>, failures: usize) -> Option<[Real; 4]> {
    if failures == 0 {
        return None;
    }
    values.extend(std::iter::repeat_n(f64::INFINITY, failures));
    values.sort_by(f64::total_cmp);
    let nearest = |percent: f64| {
        let position = (values.len() - 1) as f64 * percent / 100.0;
        Real(values[position.round_ties_even() as usize])
    };
    Some([50.0, 90.0, 95.0, 99.0].map(nearest))
}
