//! Service-level objectives: whether a run meets them, which one binds, and in which stage.
//!
//! **Invariant:** an objective that the run has too few samples for is neither met nor broken; failures are infinite.

use serde::{Deserialize, Serialize};

use crate::metrics::{self, Metric, Rules, RunFigures, Unit};
use crate::results::Results;
use crate::sample::{Outcome, Sample};
use crate::stats::{Estimate, Real, Statistic};

pub mod parse;
pub mod stage;

pub use stage::{Cohort, Place, Share, StageFinding};

/// Objectives, as `--slo` has them; all must be met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    pub objectives: Vec<Objective>,
}

/// One of them, such as `ttft_p95<500ms`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// As it was written.
    pub text: String,
    pub subject: Subject,
    pub bound: Bound,
    /// In the subject's unit: milliseconds, tokens a second, calls a second, or a share from 0 to 1.
    pub limit: f64,
}

/// What an objective is about.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    Call {
        metric: Metric,
        statistic: Statistic,
    },
    /// Failures over calls that ended.
    Errors,
    /// Calls that meet every objective about calls, over calls that ended.
    GoodputShare,
    /// The same, a second.
    GoodputRate,
    /// Calls finished a second.
    Qps,
    /// Output tokens a second.
    Throughput,
    ThroughputIn,
    ThroughputTotal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    #[serde(rename = "<")]
    Below,
    #[serde(rename = "<=")]
    AtMost,
    #[serde(rename = ">")]
    Above,
    #[serde(rename = ">=")]
    AtLeast,
}

impl Bound {
    pub fn is_met(self, value: f64, limit: f64) -> bool {
        match self {
            Bound::Below => value < limit,
            Bound::AtMost => value <= limit,
            Bound::Above => value > limit,
            Bound::AtLeast => value >= limit,
        }
    }

    /// How far the value is on the good side, as a share of the limit; negative where it is broken, and minus infinity for
    /// an infinite latency.
    fn margin(self, value: f64, limit: f64) -> f64 {
        let room = match self {
            Bound::Below | Bound::AtMost => limit - value,
            Bound::Above | Bound::AtLeast => value - limit,
        };
        // A limit of nothing (no errors at all) has no share; the difference itself tells as much.
        if limit == 0.0 || !room.is_finite() { room } else { room / limit.abs() }
    }
}

/// A run against its objectives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    pub met: Met,
    pub objectives: Vec<Judged>,
    /// Index of the objective with the smallest margin among those that could be judged.
    pub binding: Option<usize>,
    /// The stage that binds there; where the objective is about calls.
    pub stage: Option<StageFinding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Met {
    Yes,
    No,
    /// None is broken, but some could not be judged.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    pub objective: Objective,
    pub value: Estimate,
    pub met: Met,
    /// Share of the limit that is left; see [`Objective`].
    pub margin: Option<Real>,
}

impl Judgement {
    pub fn binding(&self) -> Option<&Judged> {
        self.objectives.get(self.binding?)
    }
}

impl Slo {
    /// Judges a run; with `interval`, the values of objectives about calls get intervals.
    pub fn judge(&self, results: &Results, interval: bool) -> Judgement {
        let rules = metrics::rules(results);
        let run = metrics::run::figures(results);
        let judged: Vec<Judged> = self
            .objectives
            .iter()
            .map(|objective| self.judge_one(objective, results, rules, &run, interval))
            .collect();
        let met = if judged.iter().any(|one| one.met == Met::No) {
            Met::No
        } else if judged.iter().any(|one| one.met == Met::Unknown) {
            Met::Unknown
        } else {
            Met::Yes
        };
        let binding = judged
            .iter()
            .enumerate()
            .filter_map(|(index, one)| Some((index, one.margin?.0)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(index, _)| index);
        let stage = binding.and_then(|index| match judged[index].objective.subject {
            Subject::Call { metric, .. } => {
                Some(stage::find(results, metric, rules, judged[index].value.value()))
            }
            _ => None,
        });
        Judgement { met, objectives: judged, binding, stage }
    }

    fn judge_one(
        &self,
        objective: &Objective,
        results: &Results,
        rules: Rules,
        run: &RunFigures,
        interval: bool,
    ) -> Judged {
        let value = match objective.subject {
            Subject::Call { metric, statistic } => {
                let pool = metrics::pool(results, metric, rules);
                match interval {
                    true => pool.estimates(&[statistic]).pop().expect("one estimate for one statistic"),
                    false => pool.estimate(statistic),
                }
            }
            Subject::Errors => run.error_rate.clone(),
            Subject::GoodputShare => {
                let (good, ended) = self.good_calls(results, rules);
                metrics::run::share(good, ended)
            }
            Subject::GoodputRate => {
                let (good, ended) = self.good_calls(results, rules);
                Estimate::rate(good as f64, run.window_s.0, ended)
            }
            Subject::Qps => run.finished_per_s.clone(),
            Subject::Throughput => run.output_tokens_per_s.clone(),
            Subject::ThroughputIn => run.prompt_tokens_per_s.clone(),
            Subject::ThroughputTotal => run.total_tokens_per_s.clone(),
        };
        let (met, margin) = match value.value() {
            Some(value) if objective.bound.is_met(value, objective.limit) => {
                (Met::Yes, Some(objective.bound.margin(value, objective.limit)))
            }
            Some(value) => (Met::No, Some(objective.bound.margin(value, objective.limit))),
            None => (Met::Unknown, None),
        };
        Judged { objective: objective.clone(), value, met, margin: margin.map(Real) }
    }

    /// Calls of the window that meet every objective about calls, and calls that ended.
    pub fn good_calls(&self, results: &Results, rules: Rules) -> (usize, usize) {
        let ended = metrics::run::in_window(results).filter(|sample| sample.outcome != Outcome::InFlight);
        ended.fold((0, 0), |(good, ended), sample| {
            (good + usize::from(self.is_good(sample, rules)), ended + 1)
        })
    }

    /// Whether one call meets every objective about calls: its own value, or the mean of its values where it has several,
    /// against the limit. A call that lacks a metric (one token has no gap) is not held against it.
    pub fn is_good(&self, sample: &Sample, rules: Rules) -> bool {
        !sample.outcome.is_failure()
            && self.objectives.iter().all(|objective| {
                let Subject::Call { metric, .. } = objective.subject else { return true };
                let unit = metric.definition().unit;
                let value = metrics::call::read(sample, metric, rules).mean(unit);
                value.is_none_or(|value| objective.bound.is_met(value, objective.limit))
            })
    }
}

impl Subject {
    /// The unit that limits and values are in, for tables.
    pub fn unit(self) -> &'static str {
        match self {
            Subject::Call { metric, .. } => metric.definition().unit.symbol(),
            Subject::Errors | Subject::GoodputShare => "share",
            Subject::GoodputRate | Subject::Qps => "/s",
            Subject::Throughput | Subject::ThroughputIn | Subject::ThroughputTotal => {
                Unit::TokensPerS.symbol()
            }
        }
    }
}

#[cfg(test)]
mod tests;
