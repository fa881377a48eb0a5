//! The stage that binds: among the slow calls, the one with the largest excess over the same stage among the fast ones.
//!
//! Slow calls are those at or above the value of the objective (for a mean: above it), fast ones those up to the median.
//! Stages are compared as means over the two cohorts: percentiles are never subtracted.
//!
//! **Invariant:** the shares of a cohort sum to what its calls' users waited: what the server does not show is a place of
//! its own, [`Place::Unseen`], and can bind like any stage. A server that shows nothing is opaque.

use std::collections::BTreeMap;

use ledger::Stage;
use serde::{Deserialize, Serialize};

use crate::metrics::call::{Reading, read, span_ms, tokens_after_first};
use crate::metrics::run::in_window;
use crate::metrics::{Boundary, Metric, Rules};
use crate::results::Results;
use crate::sample::Sample;
use crate::stats::{Pool, Real, mean};

/// Calls that each cohort needs.
pub const COHORT_MIN: usize = 5;

/// Where a call's time went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Between the intended time and sending: the client's side.
    BeforeSending,
    Stage(Stage),
    /// From sending on, and in no stage that the server shows: network, client, or what its account leaves out.
    Unseen,
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Place::BeforeSending => "before_sending",
            Place::Stage(stage) => stage.name(),
            Place::Unseen => "unseen",
        }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum StageFinding {
    Stage {
        place: Place,
        /// Of the place: mean over the slow calls minus mean over the fast ones, milliseconds.
        excess_ms: Real,
        /// Its part of all excess, 0 to 1.
        share_of_excess: Real,
        /// All places with time in them, largest excess first.
        places: Vec<Share>,
        slow: Cohort,
        fast: Cohort,
        /// Milliseconds are per token behind the first, not per call.
        per_token: bool,
    },
    /// The slow calls are those that failed; their stages are not known.
    Failures { by_class: BTreeMap<String, usize> },
    /// Cannot be told, and why.
    Opaque { reason: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    pub place: Place,
    pub slow_ms: Real,
    pub fast_ms: Real,
}

/// What else the cohorts differ in: long prompts or answers may be all there is to it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cohort {
    pub calls: usize,
    pub mean: Real,
    pub prompt_tokens: Option<Real>,
    pub output_tokens: Real,
}

/// The part of a call that a metric is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    ToFirst {
        from_intended: bool,
    },
    /// Per token behind the first.
    After,
    Whole {
        from_intended: bool,
    },
}

fn part(metric: Metric) -> Option<Part> {
    Some(match metric {
        Metric::Ttft => Part::ToFirst { from_intended: true },
        Metric::TtftSent | Metric::PrefillSpeed => Part::ToFirst { from_intended: false },
        Metric::Itl | Metric::ItlChunk | Metric::Tbt | Metric::TbtMax | Metric::Tpot => Part::After,
        Metric::OutputSpeed | Metric::DecodeSpeed => Part::After,
        // An answer token behind reasoning has a part of the later account before it.
        Metric::Ttfat | Metric::E2e | Metric::StreamEnd => Part::Whole { from_intended: true },
        Metric::TtfatSent | Metric::E2eSent | Metric::StreamEndSent => Part::Whole { from_intended: false },
        Metric::Lag | Metric::Headers | Metric::HeadersSent | Metric::FirstByte | Metric::FirstByteSent => {
            return None;
        }
    })
}

/// The stage that binds in an objective about `metric`, whose statistic over the run is `value`.
pub fn find(results: &Results, metric: Metric, rules: Rules, value: Option<f64>) -> StageFinding {
    let opaque = |reason: &str| StageFinding::Opaque { reason: reason.to_owned() };
    let Some(part) = part(metric) else {
        return opaque("the metric ends before any stage of the server does");
    };
    let Some(value) = value else { return opaque("the objective has too few samples to be judged") };
    let slower_is_larger = !metric.definition().unit.larger_is_better();
    if value.is_infinite() || (!slower_is_larger && value == 0.0) {
        return failures(results);
    }
    // Signed so that larger is always slower.
    let signed = |value: f64| if slower_is_larger { value } else { -value };
    let calls: Vec<(f64, &Sample)> = in_window(results)
        .filter_map(|sample| match read(sample, metric, rules) {
            // A call with several gaps is as slow as their mean.
            Reading::Values(values) => Some((signed(mean(&values)), sample)),
            _ => None,
        })
        .collect();
    if calls.iter().all(|(_, sample)| !shows(sample, part)) {
        return opaque("the server shows no stages of its own");
    }
    if calls.len() < 2 * COHORT_MIN {
        return opaque(&format!("{} calls are too few to compare slow ones with fast ones", calls.len()));
    }
    let pool = Pool::single(calls.iter().map(|(value, _)| *value));
    let median = crate::stats::percentile(pool.values(), 50.0);
    // At most the value that leaves a cohort: a p99.9 of 1,000 calls has one call above it.
    let edge = signed(value).min(pool.values()[calls.len() - COHORT_MIN]);
    if edge <= median && pool.values()[0] == pool.values()[calls.len() - 1] {
        return opaque("all calls were equally slow");
    }
    let pick = |wanted: &dyn Fn(f64) -> bool| -> Vec<&Sample> {
        let picked = calls.iter().filter(|(value, sample)| wanted(*value) && shows(sample, part));
        picked.map(|(_, sample)| *sample).collect()
    };
    let edge = edge.max(median);
    let slow = pick(&|value| value >= edge);
    let fast = pick(&|value| value <= median && value < edge);
    if slow.len() < COHORT_MIN || fast.len() < COHORT_MIN {
        return opaque(&format!(
            "stages are visible in {} slow and {} fast calls; {COHORT_MIN} of each are needed",
            slow.len(),
            fast.len()
        ));
    }
    compare(&slow, &fast, part, metric, rules)
}

fn failures(results: &Results) -> StageFinding {
    let mut by_class = BTreeMap::new();
    for sample in in_window(results).filter(|sample| sample.outcome.is_failure()) {
        *by_class.entry(sample.outcome.class().to_owned()).or_default() += 1;
    }
    StageFinding::Failures { by_class }
}

/// Whether the server tells anything of its own about the part.
pub(crate) fn shows(sample: &Sample, part: Part) -> bool {
    let told =
        |account: &[(Stage, u64)]| account.iter().any(|(stage, ns)| *stage != Stage::Opaque && *ns > 0);
    match part {
        Part::ToFirst { .. } => told(&sample.server.to_first_token),
        Part::After => told(&sample.server.after_it) && tokens_after_first(sample) > 0,
        Part::Whole { .. } => told(&sample.server.to_first_token) || told(&sample.server.after_it),
    }
}

/// A call's time by place, in milliseconds (a token's share of it for the part after the first).
pub(crate) fn places(sample: &Sample, part: Part) -> BTreeMap<Place, f64> {
    let mut places: BTreeMap<Place, f64> = BTreeMap::new();
    let mut add = |account: &[(Stage, u64)]| {
        for (stage, ns) in account {
            *places.entry(Place::Stage(*stage)).or_default() += *ns as f64 / 1e6;
        }
    };
    let (first, last) = (Boundary::FirstToken, Boundary::LastToken);
    let (seen_by_client, from_intended) = match part {
        Part::ToFirst { from_intended } => {
            add(&sample.server.to_first_token);
            (span_ms(sample, Boundary::Sent, first), from_intended)
        }
        Part::After => {
            add(&sample.server.after_it);
            (span_ms(sample, first, last), false)
        }
        Part::Whole { from_intended } => {
            add(&sample.server.to_first_token);
            add(&sample.server.after_it);
            (span_ms(sample, Boundary::Sent, last), from_intended)
        }
    };
    let shown: f64 = places.values().sum();
    // The server may go on after the client's last boundary (closing frames), so that what is unseen can be below zero.
    places.insert(Place::Unseen, (seen_by_client.unwrap_or(shown) - shown).max(0.0));
    if from_intended {
        places
            .insert(Place::BeforeSending, span_ms(sample, Boundary::Intended, Boundary::Sent).unwrap_or(0.0));
    }
    if part == Part::After {
        let tokens = tokens_after_first(sample).max(1) as f64;
        places.values_mut().for_each(|ms| *ms /= tokens);
    }
    places
}

fn compare(slow: &[&Sample], fast: &[&Sample], part: Part, metric: Metric, rules: Rules) -> StageFinding {
    let means = |samples: &[&Sample]| {
        let mut means: BTreeMap<Place, f64> = BTreeMap::new();
        for sample in samples {
            for (place, ms) in places(sample, part) {
                *means.entry(place).or_default() += ms / samples.len() as f64;
            }
        }
        means
    };
    let (slow_means, fast_means) = (means(slow), means(fast));
    let mut shares: Vec<Share> = slow_means
        .keys()
        .chain(fast_means.keys().filter(|place| !slow_means.contains_key(place)))
        .map(|place| {
            let of = |means: &BTreeMap<Place, f64>| Real(means.get(place).copied().unwrap_or(0.0));
            Share { place: *place, slow_ms: of(&slow_means), fast_ms: of(&fast_means) }
        })
        .filter(|share| share.slow_ms.0 > 0.0 || share.fast_ms.0 > 0.0)
        .collect();
    let excess = |share: &Share| share.slow_ms.0 - share.fast_ms.0;
    shares.sort_by(|a, b| excess(b).total_cmp(&excess(a)));
    let all: f64 = shares.iter().map(&excess).filter(|ms| *ms > 0.0).sum();
    match shares.first() {
        Some(first) if excess(first) > 0.0 => StageFinding::Stage {
            place: first.place,
            excess_ms: Real(excess(first)),
            share_of_excess: Real(excess(first) / all),
            slow: cohort(slow, metric, rules),
            fast: cohort(fast, metric, rules),
            per_token: part == Part::After,
            places: shares,
        },
        _ => StageFinding::Opaque {
            reason: "no stage is longer in the slow calls than in the fast ones".to_owned(),
        },
    }
}

fn cohort(samples: &[&Sample], metric: Metric, rules: Rules) -> Cohort {
    let unit = metric.definition().unit;
    let values: Vec<f64> = samples.iter().filter_map(|s| read(s, metric, rules).mean(unit)).collect();
    let prompts: Vec<f64> = samples.iter().filter_map(|s| s.tokens.prompt).map(f64::from).collect();
    let outputs: Vec<f64> = samples.iter().map(|s| crate::metrics::call::output_tokens(s) as f64).collect();
    Cohort {
        calls: samples.len(),
        mean: Real(mean(&values)),
        prompt_tokens: (!prompts.is_empty()).then(|| Real(mean(&prompts))),
        output_tokens: Real(mean(&outputs)),
    }
}
