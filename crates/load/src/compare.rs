//! Two runs of one schedule, call by call: what differs, by how much, and how sure that is.
//!
//! Calls are paired by id where both servers were sent the same body. Differences are `b - a`; their intervals resample
//! pairs, so that what is hard for both servers cancels. A pair of which either call failed has no difference; how many
//! there are is said first, since a server that fails its slow calls looks fast.
//!
//! **Invariant:** only runs of one schedule are compared, and only calls of one body; the rest is counted and explained.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metrics::call::{self, output_tokens};
use crate::metrics::run::in_window;
use crate::metrics::{self, Metric, PrefillBasis, Reading, Rules, Unit};
use crate::results::Results;
use crate::sample::{Outcome, Sample};
use crate::schedule::CallId;
use crate::slo::stage::{Part, Place, places, shows};
use crate::stats::bootstrap::over_pairs;
use crate::stats::interval::{Calls, Interval, Over};
use crate::stats::{Pool, Real, Statistic, mean, percentile};

/// Calls listed as those that differ most.
pub const MOST: usize = 10;

/// The metrics compared: those from the intended time, and what has one value a call.
pub const METRICS: &[Metric] = &[
    Metric::Ttft,
    Metric::Ttfat,
    Metric::Itl,
    Metric::TbtMax,
    Metric::Tpot,
    Metric::E2e,
    Metric::StreamEnd,
    Metric::OutputSpeed,
    Metric::PrefillSpeed,
    Metric::DecodeSpeed,
    Metric::TtftSent,
    Metric::E2eSent,
];

/// Two runs, compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub a: Side,
    pub b: Side,
    pub pairing: Pairing,
    pub metrics: Vec<MetricDifference>,
    pub stages: Vec<StageDifference>,
    /// Largest difference in end-to-end time first.
    pub most: Vec<CallDifference>,
    /// What must be known before quoting.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    pub url: String,
    pub kind: String,
    pub model: String,
    pub void: Vec<String>,
}

/// What became of the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pairing {
    /// Both succeeded: these are compared.
    pub pairs: usize,
    /// In one run alone, or outside the other's window.
    pub only_a: usize,
    pub only_b: usize,
    /// The servers were sent different bodies.
    pub bodies_differ: usize,
    pub failed_a: usize,
    pub failed_b: usize,
    pub failed_both: usize,
    /// Either was under way at the end.
    pub in_flight: usize,
    /// Pairs whose answers have different numbers of tokens: not the same work.
    pub lengths_differ: usize,
}

/// Paired values of something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    pub pairs: usize,
    pub mean_a: Real,
    pub mean_b: Real,
    /// Of `b - a`.
    pub mean: Real,
    pub mean_interval: Option<Interval>,
    pub median: Real,
    pub median_interval: Option<Interval>,
    /// Mean of b over mean of a; None where that is 0.
    pub ratio: Option<Real>,
    pub ratio_interval: Option<Interval>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricDifference {
    pub metric: Metric,
    pub unit: Unit,
    /// None where no pair has it.
    pub difference: Option<Difference>,
    pub better: Better,
}

/// Which is better, told only where the interval of the mean difference leaves out zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    A,
    B,
    /// The interval holds zero, or there are too few pairs for one.
    Unsure,
}

/// A stage's milliseconds (behind the first token: per token).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageDifference {
    /// To the first token, or behind it.
    pub part: PartName,
    pub place: Place,
    #[serde(flatten)]
    pub shown: Shown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartName {
    ToFirstToken,
    PerTokenAfter,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "shown", rename_all = "snake_case")]
pub enum Shown {
    Both {
        difference: Difference,
    },
    /// The other's server does not tell of this stage, so that nothing can be subtracted.
    OnlyA {
        mean_ms: Real,
    },
    OnlyB {
        mean_ms: Real,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallDifference {
    pub call: CallId,
    pub e2e_a_ms: Real,
    pub e2e_b_ms: Real,
    pub ttft_a_ms: Option<Real>,
    pub ttft_b_ms: Option<Real>,
    pub prompt_tokens: Option<u32>,
    pub output_tokens_a: u64,
    pub output_tokens_b: u64,
    /// The place that differs most, where both servers show it.
    pub place: Option<Place>,
    pub place_ms: Option<Real>,
}

/// Compares two runs.
///
/// # Errors
/// The runs are not of one schedule, or no call of one is also in the other; says which and what to do.
pub fn compare(a: &Results, b: &Results) -> Result<Comparison, String> {
    refuse_other_schedules(a, b)?;
    let (pairs, pairing) = pair(a, b);
    if pairs.is_empty() {
        return Err(format!("no call can be compared: {}", explain(&pairing).join("; ")));
    }
    let rules = common_rules(a, b);
    let seed = a.seed;
    let metrics = METRICS.iter().map(|&metric| metric_difference(&pairs, metric, rules, seed)).collect();
    let mut notes = explain(&pairing);
    for (name, run) in [("a", a), ("b", b)] {
        notes.extend(run.health.void.iter().map(|reason| format!("run {name} is void: {reason}")));
    }
    let stages = stage_differences(&pairs, seed);
    if stages.is_empty() {
        notes.push("at least one server shows no stages, so that none can be compared".to_owned());
    }
    Ok(Comparison { a: side(a), b: side(b), pairing, metrics, stages, most: most(&pairs), notes })
}

fn side(run: &Results) -> Side {
    Side {
        url: run.target.url.clone(),
        kind: run.target.kind.clone(),
        model: run.target.model.clone(),
        void: run.health.void.clone(),
    }
}

fn refuse_other_schedules(a: &Results, b: &Results) -> Result<(), String> {
    let mut reasons = Vec::new();
    let mut differ = |what: &str, a: String, b: String| {
        if a != b {
            reasons.push(format!("{what}: {a} and {b}"));
        }
    };
    differ("file schema", a.schema.to_string(), b.schema.to_string());
    differ("workload", a.workload.clone(), b.workload.clone());
    differ("seed", a.seed.to_string(), b.seed.to_string());
    differ("pacing", format!("{:?}", a.pacing), format!("{:?}", b.pacing));
    differ("endpoint", a.target.endpoint.clone(), b.target.endpoint.clone());
    differ("stream", a.target.stream.to_string(), b.target.stream.to_string());
    if reasons.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the runs are not of one schedule, so that their difference would be of the load and not of the servers ({}); \
         run the same workload with the same seed and pacing on both",
        reasons.join("; ")
    ))
}

type Pair<'a> = (&'a Sample, &'a Sample);

fn pair<'a>(a: &'a Results, b: &'a Results) -> (Vec<Pair<'a>>, Pairing) {
    let mut of_b: BTreeMap<CallId, &Sample> = in_window(b).map(|sample| (sample.call, sample)).collect();
    let mut pairing = Pairing::default();
    let mut pairs = Vec::new();
    for left in in_window(a) {
        let Some(right) = of_b.remove(&left.call) else {
            pairing.only_a += 1;
            continue;
        };
        if left.body != right.body {
            pairing.bodies_differ += 1;
        } else if left.outcome == Outcome::InFlight || right.outcome == Outcome::InFlight {
            pairing.in_flight += 1;
        } else {
            match (left.outcome.is_failure(), right.outcome.is_failure()) {
                (true, true) => pairing.failed_both += 1,
                (true, false) => pairing.failed_a += 1,
                (false, true) => pairing.failed_b += 1,
                (false, false) => {
                    pairing.lengths_differ += usize::from(output_tokens(left) != output_tokens(right));
                    pairs.push((left, right));
                }
            }
        }
    }
    pairing.only_b = of_b.len();
    pairing.pairs = pairs.len();
    (pairs, pairing)
}

fn explain(pairing: &Pairing) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |count: usize, text: &str| {
        if count > 0 {
            notes.push(format!("{count} {text}"));
        }
    };
    note(pairing.only_a, "calls are in the window of a alone: the runs had different lengths or windows");
    note(pairing.only_b, "calls are in the window of b alone: the runs had different lengths or windows");
    note(
        pairing.bodies_differ,
        "calls were sent different bodies: later turns hold the server's own answers, and a body may name its model",
    );
    note(pairing.failed_a, "calls failed at a alone");
    note(pairing.failed_b, "calls failed at b alone");
    note(pairing.failed_both, "calls failed at both");
    note(pairing.in_flight, "calls were under way at the end of a run");
    note(
        pairing.lengths_differ,
        "pairs have answers of different lengths: end-to-end times are not of the same work",
    );
    notes
}

/// Prefill speeds are compared only on one basis.
fn common_rules(a: &Results, b: &Results) -> Rules {
    let (a_rules, b_rules) = (metrics::rules(a), metrics::rules(b));
    let prefill = if a_rules.prefill == b_rules.prefill { a_rules.prefill } else { PrefillBasis::Ttft };
    Rules { prefill, ..a_rules }
}

fn value(sample: &Sample, metric: Metric, rules: Rules) -> Option<f64> {
    match call::read(sample, metric, rules) {
        Reading::Values(values) => Some(mean(&values)),
        _ => None,
    }
}

fn metric_difference(pairs: &[Pair<'_>], metric: Metric, rules: Rules, seed: u64) -> MetricDifference {
    let values: Vec<(f64, f64)> = pairs
        .iter()
        .filter_map(|(a, b)| Some((value(a, metric, rules)?, value(b, metric, rules)?)))
        .collect();
    let difference = difference(&values, seed);
    let unit = metric.definition().unit;
    let better = match difference.as_ref().and_then(|difference| difference.mean_interval) {
        Some(interval) if interval.holds(0.0) => Better::Unsure,
        Some(interval) if (interval.low.0 > 0.0) == unit.larger_is_better() => Better::B,
        Some(_) => Better::A,
        None => Better::Unsure,
    };
    MetricDifference { metric, unit, difference, better }
}

fn difference(values: &[(f64, f64)], seed: u64) -> Option<Difference> {
    if values.is_empty() {
        return None;
    }
    let count = values.len();
    let sums = |picked: &mut dyn Iterator<Item = usize>| {
        picked.fold((0.0, 0.0), |(a, b), index| (a + values[index].0, b + values[index].1))
    };
    let (sum_a, sum_b) = sums(&mut (0..count));
    let differences = Pool::single(values.iter().map(|(a, b)| b - a));
    let over_all = |of: &dyn Fn(f64, f64) -> f64| {
        over_pairs(count, seed, |picked| {
            let (a, b) = sums(&mut picked.iter().copied());
            of(a, b)
        })
    };
    let has_ratio = sum_a > 0.0;
    Some(Difference {
        pairs: count,
        mean_a: Real(sum_a / count as f64),
        mean_b: Real(sum_b / count as f64),
        mean: Real((sum_b - sum_a) / count as f64),
        mean_interval: over_all(&|a, b| (b - a) / count as f64),
        median: Real(percentile(differences.values(), 50.0)),
        median_interval: Calls::of(&differences)
            .interval(Statistic::Percentile(50.0))
            .map(|interval| Interval { over: Over::Pairs, ..interval }),
        ratio: has_ratio.then_some(Real(sum_b / sum_a)),
        // A resample of zeros alone has no ratio; it would only be drawn where nearly all of a is zero.
        ratio_interval: if has_ratio { over_all(&|a, b| if a > 0.0 { b / a } else { 1.0 }) } else { None },
    })
}

fn stage_differences(pairs: &[Pair<'_>], seed: u64) -> Vec<StageDifference> {
    let parts = [
        (PartName::ToFirstToken, Part::ToFirst { from_intended: false }),
        (PartName::PerTokenAfter, Part::After),
    ];
    let mut found = Vec::new();
    for (name, part) in parts {
        let shown: Vec<(BTreeMap<Place, f64>, BTreeMap<Place, f64>)> = pairs
            .iter()
            .filter(|(a, b)| shows(a, part) && shows(b, part))
            .map(|(a, b)| (places(a, part), places(b, part)))
            .collect();
        let mut all: Vec<Place> = shown.iter().flat_map(|(a, b)| a.keys().chain(b.keys())).copied().collect();
        all.sort_unstable();
        all.dedup();
        for place in all {
            let of = |places: &BTreeMap<Place, f64>| places.get(&place).copied().unwrap_or(0.0);
            let values: Vec<(f64, f64)> = shown.iter().map(|(a, b)| (of(a), of(b))).collect();
            let a_shows = shown.iter().any(|(a, _)| a.contains_key(&place));
            let b_shows = shown.iter().any(|(_, b)| b.contains_key(&place));
            let mean_of =
                |pick: fn(&(f64, f64)) -> f64| Real(mean(&values.iter().map(pick).collect::<Vec<_>>()));
            let shown = match (a_shows, b_shows) {
                (true, false) => Shown::OnlyA { mean_ms: mean_of(|pair| pair.0) },
                (false, true) => Shown::OnlyB { mean_ms: mean_of(|pair| pair.1) },
                _ => match difference(&values, seed) {
                    Some(difference) => Shown::Both { difference },
                    None => continue,
                },
            };
            found.push(StageDifference { part: name, place, shown });
        }
    }
    found
}

fn most(pairs: &[Pair<'_>]) -> Vec<CallDifference> {
    let rules = Rules { stream: true, prefill: PrefillBasis::Ttft };
    let whole = Part::Whole { from_intended: false };
    let mut calls: Vec<CallDifference> = pairs
        .iter()
        .filter_map(|(a, b)| {
            let both_show = shows(a, whole) && shows(b, whole);
            let largest = both_show.then(|| {
                let (of_a, of_b) = (places(a, whole), places(b, whole));
                of_a.into_iter()
                    .filter_map(|(place, ms)| Some((place, of_b.get(&place)? - ms)))
                    .max_by(|x, y| x.1.abs().total_cmp(&y.1.abs()))
            });
            let (place, place_ms) = largest.flatten().unzip();
            Some(CallDifference {
                call: a.call,
                e2e_a_ms: Real(value(a, Metric::E2e, rules)?),
                e2e_b_ms: Real(value(b, Metric::E2e, rules)?),
                ttft_a_ms: value(a, Metric::Ttft, rules).map(Real),
                ttft_b_ms: value(b, Metric::Ttft, rules).map(Real),
                prompt_tokens: a.tokens.prompt.or(b.tokens.prompt),
                output_tokens_a: output_tokens(a),
                output_tokens_b: output_tokens(b),
                place,
                place_ms: place_ms.map(Real),
            })
        })
        .collect();
    let size = |call: &CallDifference| (call.e2e_b_ms.0 - call.e2e_a_ms.0).abs();
    calls.sort_by(|x, y| size(y).total_cmp(&size(x)).then(x.call.cmp(&y.call)));
    calls.truncate(MOST);
    calls
}

#[cfg(test)]
mod tests;
