//! The same run in the definitions of other tools, so that its figures can be held against theirs.
//!
//! Read from their sources: vLLM's `vllm/benchmarks/serve.py` and `lib/endpoint_request_func.py` (commits 009e6d4a and
//! 02cfb534), AIPerf 0.13.0 (`aiperf/metrics/types`), GuideLLM 0.8.1 (`guidellm/schemas/base/request_stats.py`,
//! `statistics.py`, `guidellm/benchmark/schemas/metrics.py`), MLPerf's LoadGen (`loadgen/results.cc` at 05a9cec3,
//! `loadgen/logging.cc`). `docs/load-definitions.md` lays the differences side by side.
//!
//! **Invariant:** what a tool measures and we do not see is said in the notes, never made up. All of a run's calls are in, as
//! these tools have it, and none of their windows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::metrics::Boundary;
use crate::metrics::call::{moment, span_ms};
use crate::results::Results;
use crate::sample::{Ns, Outcome, Sample};
use crate::slo::Slo;

pub mod aiperf;
pub mod guidellm;
pub mod mlperf;
pub mod vllm;

/// A tool whose definitions are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    Vllm,
    Aiperf,
    Guidellm,
    Mlperf,
}

impl Dialect {
    pub const ALL: &[Dialect] = &[Dialect::Vllm, Dialect::Aiperf, Dialect::Guidellm, Dialect::Mlperf];

    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Vllm => "vllm",
            Dialect::Aiperf => "aiperf",
            Dialect::Guidellm => "guidellm",
            Dialect::Mlperf => "mlperf",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Dialect::ALL.iter().find(|dialect| dialect.name() == name).copied();
        found.ok_or_else(|| {
            format!("--dialect {name:?} is not known; accepted are vllm, aiperf, guidellm, mlperf")
        })
    }
}

/// A run, as a tool would print it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "dialect", rename_all = "snake_case")]
pub enum Report {
    Vllm(Box<vllm::Figures>),
    Aiperf(Box<aiperf::Figures>),
    Guidellm(Box<guidellm::Figures>),
    Mlperf(Box<mlperf::Figures>),
}

/// Says a run in a dialect. Objectives give goodput, where the tool has it.
pub fn translate(results: &Results, dialect: Dialect, slo: Option<&Slo>) -> Report {
    match dialect {
        Dialect::Vllm => Report::Vllm(Box::new(vllm::figures(results, slo))),
        Dialect::Aiperf => Report::Aiperf(Box::new(aiperf::figures(results, slo))),
        Dialect::Guidellm => Report::Guidellm(Box::new(guidellm::figures(results))),
        Dialect::Mlperf => Report::Mlperf(Box::new(mlperf::figures(results))),
    }
}

/// Distribution as these tools print it; None of nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub count: usize,
    pub mean: f64,
    /// Of the population, as `numpy.std` has it.
    pub std: f64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

impl Spread {
    /// With percentiles by linear interpolation, as `numpy.percentile` does by default.
    pub fn linear(values: Vec<f64>) -> Option<Self> {
        Spread::with(values, crate::stats::percentile)
    }

    /// With the percentiles that `percentile` takes from ascending values.
    pub fn with(mut values: Vec<f64>, percentile: impl Fn(&[f64], f64) -> f64) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let mean = crate::stats::mean(&values);
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        Some(Spread {
            count: values.len(),
            mean,
            std: variance.sqrt(),
            min: values[0],
            p50: percentile(&values, 50.0),
            p90: percentile(&values, 90.0),
            p95: percentile(&values, 95.0),
            p99: percentile(&values, 99.0),
            max: values[values.len() - 1],
        })
    }
}

/// A call that a client which only waits for content takes for a success: it got some, over a connection that ended
/// well. Streams that were cut and errors in band are in it, since these tools look at neither.
fn has_content(sample: &Sample) -> bool {
    match sample.outcome {
        Outcome::Finished | Outcome::CutShort { .. } | Outcome::ErrorInBand { .. } => {
            !sample.chunks.is_empty()
        }
        _ => false,
    }
}

fn has_failed(sample: &Sample) -> bool {
    sample.outcome != Outcome::InFlight && !has_content(sample)
}

/// From sending to the first token, milliseconds.
fn ttft_ms(sample: &Sample) -> Option<f64> {
    span_ms(sample, Boundary::Sent, Boundary::FirstToken)
}

/// The calls' common span, in seconds: from the first that was sent to the last moment of any.
fn duration_s<'a>(samples: impl Iterator<Item = &'a Sample>, last: impl Fn(&Sample) -> Option<Ns>) -> f64 {
    let (mut from, mut to) = (Ns::MAX, 0);
    for sample in samples {
        if let (Some(sent), Some(end)) = (sample.sent_ns, last(sample)) {
            from = from.min(sent);
            to = to.max(end);
        }
    }
    to.saturating_sub(from) as f64 / 1e9
}

fn last_byte_or_token(sample: &Sample) -> Option<Ns> {
    sample.last_byte_ns.or_else(|| moment(sample, Boundary::LastToken))
}

/// Amount over seconds; 0 over none.
fn per(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}

/// Notes that hold for every tool.
fn common_notes(results: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    if results.samples_dropped > 0 {
        notes.push(format!("{} calls were not kept and are not in these figures", results.samples_dropped));
    }
    let in_flight = results.samples.iter().filter(|sample| sample.outcome == Outcome::InFlight).count();
    if in_flight > 0 {
        notes.push(format!(
            "{in_flight} calls were cut at the end of the run; the tool would have waited for them"
        ));
    }
    let cut = results
        .samples
        .iter()
        .filter(|s| !s.chunks.is_empty() && s.outcome.is_failure() && has_content(s))
        .count();
    if cut > 0 {
        notes.push(format!("{cut} calls failed after their first token; the tool counts them as successes"));
    }
    notes
}

#[cfg(test)]
mod tests;
