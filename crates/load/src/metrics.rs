//! What a run's users felt, metric by metric.
//!
//! Each metric is a row of [`definition`]; [`call`] reads one of one call, [`run`] gives the figures of the run as a whole.
//! Only calls whose intended time lies in the run's window count.
//!
//! **Invariant:** failures are infinite in what objectives are judged by ([`Summary::judged`]), in-flight calls are in
//! neither, and how many there are of each is said beside every figure.

use serde::{Deserialize, Serialize};

use crate::results::Results;
use crate::sample::Outcome;
use crate::stats::{Estimate, Pool, Statistic};

pub mod call;
pub mod definition;
pub mod run;

pub use call::{Reading, Rules};
pub use definition::{Boundary, Definition, Metric, Unit};
pub use run::RunFigures;

/// The percentiles that summaries give.
pub const PERCENTILES: [f64; 6] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9];

/// What prefill speeds of a run are divided by: the same for all calls, or they could not be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefillBasis {
    /// The server told its prefill time for every finished call.
    Server,
    /// TTFT from sending: network and queue are in it, so it is a lower bound.
    Ttft,
}

/// A run, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub run: RunFigures,
    pub metrics: Vec<Summary>,
    pub prefill_basis: PrefillBasis,
    /// What a reader must know before quoting: void runs, dropped samples, counts that disagree.
    pub notes: Vec<String>,
}

/// One metric over a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub metric: Metric,
    pub unit: Unit,
    /// Calls that have the metric.
    pub calls: usize,
    /// Values of those calls: more than calls where each gap is one.
    pub values: usize,
    /// Calls that failed: infinite in `judged`, absent in `seen`.
    pub failed: usize,
    pub in_flight: usize,
    /// Calls that lack a boundary of the metric.
    pub absent: usize,
    /// With failures as infinite (speeds: as 0). These are the figures to quote.
    pub judged: Distribution,
    /// Of the calls that succeeded alone, as most tools have it. Absent where nothing failed, being the same.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seen: Option<Distribution>,
}

/// A distribution's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    pub mean: Estimate,
    pub min: Estimate,
    pub max: Estimate,
    /// Percent and figure, ascending.
    pub percentiles: Vec<(f64, Estimate)>,
}

impl Distribution {
    fn of(pool: &Pool, intervals: bool) -> Self {
        let statistics: Vec<Statistic> = [Statistic::Mean, Statistic::Min, Statistic::Max]
            .into_iter()
            .chain(PERCENTILES.map(Statistic::Percentile))
            .collect();
        let mut estimates = match intervals {
            true => pool.estimates(&statistics),
            false => statistics.iter().map(|&statistic| pool.estimate(statistic)).collect(),
        }
        .into_iter();
        let mut next = || estimates.next().expect("there is an estimate for each statistic");
        let (mean, min, max) = (next(), next(), next());
        Distribution { mean, min, max, percentiles: PERCENTILES.map(|percent| (percent, next())).to_vec() }
    }

    /// The figure at one of [`PERCENTILES`].
    pub fn percentile(&self, percent: f64) -> Option<&Estimate> {
        self.percentiles.iter().find(|(at, _)| *at == percent).map(|(_, estimate)| estimate)
    }
}

impl Table {
    /// Without intervals: what a live view or a search needs.
    pub fn quick(results: &Results) -> Self {
        Table::build(results, false)
    }

    /// With intervals: what a report needs.
    pub fn full(results: &Results) -> Self {
        Table::build(results, true)
    }

    fn build(results: &Results, intervals: bool) -> Self {
        let rules = rules(results);
        let itl = summarize(results, Metric::Itl, rules, intervals);
        let token_by_token = run::in_window(results).flat_map(|s| &s.chunks).all(|chunk| chunk.tokens <= 1);
        let summary = |&metric: &Metric| match metric {
            // One token a chunk makes the three of them one, and gaps are most of what there is to sort.
            Metric::Itl | Metric::ItlChunk | Metric::Tbt if token_by_token => {
                Summary { metric, ..itl.clone() }
            }
            Metric::Itl => itl.clone(),
            _ => summarize(results, metric, rules, intervals),
        };
        Table {
            run: run::figures(results),
            metrics: Metric::ALL.iter().map(summary).collect(),
            prefill_basis: rules.prefill,
            notes: notes(results),
        }
    }

    pub fn metric(&self, metric: Metric) -> &Summary {
        self.metrics.iter().find(|summary| summary.metric == metric).expect("a table has every metric")
    }
}

/// How the metrics of this run are to be read.
pub fn rules(results: &Results) -> Rules {
    let mut finished = run::in_window(results).filter(|s| s.outcome == Outcome::Finished).peekable();
    let told = finished.peek().is_some() && finished.all(|s| call::server_prefill_ns(s).is_some());
    let prefill = if told { PrefillBasis::Server } else { PrefillBasis::Ttft };
    Rules { stream: results.target.stream, prefill }
}

/// The values of a metric, call by call, with failures in; for calls that have any. Empty where no call has the metric and
/// failures do not tell what it would have been.
pub fn pool(results: &Results, metric: Metric, rules: Rules) -> Pool {
    let unit = metric.definition().unit;
    let readings: Vec<Reading> =
        run::in_window(results).map(|sample| call::read(sample, metric, rules)).collect();
    let seen = readings.iter().any(|reading| matches!(reading, Reading::Values(_)));
    if !seen && !is_of_the_client(metric) {
        return Pool::default();
    }
    Pool::new(readings.into_iter().filter_map(|reading| reading.judged(unit)))
}

/// Whether the client alone measures it, so that a failed call is infinite in it even if no other call has it. Speeds that a
/// server has to tell are not known to be 0.
fn is_of_the_client(metric: Metric) -> bool {
    !matches!(metric, Metric::PrefillSpeed | Metric::DecodeSpeed)
}

fn summarize(results: &Results, metric: Metric, rules: Rules, intervals: bool) -> Summary {
    let unit = metric.definition().unit;
    let (mut failed, mut in_flight, mut absent) = (0, 0, 0);
    let mut seen = Vec::new();
    for sample in run::in_window(results) {
        match call::read(sample, metric, rules) {
            Reading::Values(values) => seen.push(values),
            Reading::Failed => failed += 1,
            Reading::InFlight => in_flight += 1,
            Reading::Absent => absent += 1,
        }
    }
    let calls = seen.len();
    let values = seen.iter().map(Vec::len).sum();
    let seen = Pool::new(seen);
    let with_failures = (failed > 0).then(|| pool(results, metric, rules));
    let judged = with_failures.as_ref().unwrap_or(&seen);
    Summary {
        metric,
        unit,
        calls,
        values,
        failed,
        in_flight,
        absent,
        judged: Distribution::of(judged, intervals),
        seen: (failed > 0).then(|| Distribution::of(&seen, false)),
    }
}

fn notes(results: &Results) -> Vec<String> {
    let mut notes: Vec<String> =
        results.health.void.iter().map(|reason| format!("the run is void: {reason}")).collect();
    if results.samples_dropped > 0 {
        notes.push(format!(
            "{} calls were not kept; metrics and rates are of the first {}, histograms of all",
            results.samples_dropped,
            results.samples.len()
        ));
    }
    if results.held > 0 {
        notes.push(format!(
            "{} calls could not be sent when they were intended, as many as allowed being under way; they count from then",
            results.held
        ));
    }
    if !results.target.stream {
        notes.push("answers were not streamed, so that no time between tokens is known".to_owned());
    }
    let counts = run::figures(results).counts;
    if counts.differ > 0 {
        notes.push(format!(
            "in {} of {} calls the server's usage and the count by chunks differ, by {} tokens in all",
            counts.differ, counts.compared, counts.difference
        ));
    }
    if counts.sources.contains_key("chunks") {
        notes.push(
            "some calls have no token counts from the server: each chunk stands for one token".to_owned(),
        );
    }
    let in_flight = run::in_window(results).filter(|s| s.outcome == Outcome::InFlight).count();
    if in_flight > 0 {
        notes
            .push(format!("{in_flight} calls of the window were under way at the end and are in no latency"));
    }
    notes
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
