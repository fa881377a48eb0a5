//! What a search has tried, and what it answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Level, LoadUnit, Plan, Stopped, Tally, Verdict, bound, bracket, interval, pass_shares, verdict};
use crate::metrics::run::figures;
use crate::results::Results;
use crate::slo::{Judgement, Slo, StageFinding};
use crate::stats::{Interval, Real, bootstrap::over_runs, mean};

/// The largest load that meets the objectives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub unit: LoadUnit,
    /// None where no load that was tried meets them.
    pub load: Option<Real>,
    /// 95% interval of the load at which half of all trials pass; an end that no trials bound is None.
    pub low: Option<Real>,
    pub high: Option<Real>,
    pub stopped: Stopped,
    /// In words, where the answer is not simply found.
    pub caveat: Option<String>,
    /// Ascending by load.
    pub levels: Vec<LevelReport>,
    /// The objective that binds at the smallest level above the answer (without one, at the answer), as it was written.
    pub binding: Option<String>,
    /// The stage that binds it, in the trial there that was the farthest from its objective.
    pub stage: Option<StageFinding>,
    /// Output tokens a second at the answer, mean over its trials, with an interval over runs.
    pub output_tokens_per_s: Option<Real>,
    pub output_tokens_interval: Option<Interval>,
    pub total_tokens_per_s: Option<Real>,
    pub finished_per_s: Option<Real>,
}

/// One level's trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelReport {
    pub load: Real,
    pub tally: Tally,
    /// Share of passes, pooled with neighbours where it would have risen with the load.
    pub pass_share: Option<Real>,
    /// Smallest margin of any objective, mean over the trials (see [`crate::slo::Judged`]).
    pub margin: Option<Real>,
    /// Each objective's value, mean over the trials that could judge it.
    pub values: Vec<(String, Option<Real>)>,
    pub output_tokens_per_s: Option<Real>,
    pub finished_per_s: Option<Real>,
    /// Why trials were void or could not be judged.
    pub reasons: Vec<String>,
}

struct Trial {
    judgement: Judgement,
    verdict: Verdict,
    output_tokens_per_s: Option<f64>,
    total_tokens_per_s: Option<f64>,
    finished_per_s: Option<f64>,
}

/// The trials so far.
pub struct Book {
    plan: Plan,
    tried: BTreeMap<Level, Tally>,
    trials: BTreeMap<Level, Vec<Trial>>,
}

impl Book {
    pub fn new(plan: Plan) -> Self {
        Book { plan, tried: BTreeMap::new(), trials: BTreeMap::new() }
    }

    pub fn tried(&self) -> &BTreeMap<Level, Tally> {
        &self.tried
    }

    /// Enters a run; returns what became of it.
    pub fn record(&mut self, level: Level, results: &Results, slo: &Slo) -> Verdict {
        let (verdict, judgement) = verdict(results, slo);
        let run = figures(results);
        self.tried.entry(level).or_default().add(&verdict);
        self.trials.entry(level).or_default().push(Trial {
            judgement,
            verdict: verdict.clone(),
            output_tokens_per_s: run.output_tokens_per_s.value(),
            total_tokens_per_s: run.total_tokens_per_s.value(),
            finished_per_s: run.finished_per_s.value(),
        });
        verdict
    }

    /// The answer, as of now.
    pub fn close(&self, stopped: Stopped) -> Answer {
        let (low, high) = bracket(&self.plan, &self.tried);
        let (ci_low, ci_high) = interval(&self.tried);
        let at = self.counting(low);
        let output: Vec<f64> = at.iter().filter_map(|trial| trial.output_tokens_per_s).collect();
        let above = self.counting(high);
        let breaking = if above.is_empty() { &at } else { &above };
        let worst = breaking
            .iter()
            .filter_map(|trial| Some((trial, trial.judgement.binding()?)))
            .min_by(|a, b| margin_of(a.0).total_cmp(&margin_of(b.0)));
        Answer {
            unit: self.plan.unit,
            load: bound(&self.plan, low),
            low: bound(&self.plan, ci_low),
            high: bound(&self.plan, ci_high),
            stopped,
            caveat: self.caveat(stopped, low, high),
            levels: self.levels(),
            binding: worst.map(|(_, judged)| judged.objective.text.clone()),
            stage: worst.and_then(|(trial, _)| trial.judgement.stage.clone()),
            output_tokens_per_s: mean_of(output.iter().copied()),
            output_tokens_interval: over_runs(&output, low.unwrap_or(0)),
            total_tokens_per_s: mean_of(at.iter().filter_map(|trial| trial.total_tokens_per_s)),
            finished_per_s: mean_of(at.iter().filter_map(|trial| trial.finished_per_s)),
        }
    }

    /// Trials of a level that were not void.
    fn counting(&self, level: Option<Level>) -> Vec<&Trial> {
        let trials = level.and_then(|level| self.trials.get(&level)).map_or(&[][..], Vec::as_slice);
        trials.iter().filter(|trial| !matches!(trial.verdict, Verdict::Void(_))).collect()
    }

    fn levels(&self) -> Vec<LevelReport> {
        let shares: BTreeMap<Level, f64> = pass_shares(&self.tried).into_iter().collect();
        self.trials
            .iter()
            .map(|(level, trials)| {
                let counting = self.counting(Some(*level));
                let objectives = trials.first().map_or(&[][..], |trial| &trial.judgement.objectives);
                let values = objectives.iter().enumerate().map(|(index, judged)| {
                    let values =
                        counting.iter().filter_map(|trial| trial.judgement.objectives[index].value.value());
                    (judged.objective.text.clone(), mean_of(values))
                });
                LevelReport {
                    load: Real(self.plan.unit.load(*level)),
                    tally: self.tried[level],
                    pass_share: shares.get(level).map(|share| Real(*share)),
                    margin: mean_of(
                        counting.iter().map(|trial| margin_of(trial)).filter(|margin| !margin.is_nan()),
                    ),
                    values: values.collect(),
                    output_tokens_per_s: mean_of(
                        counting.iter().filter_map(|trial| trial.output_tokens_per_s),
                    ),
                    finished_per_s: mean_of(counting.iter().filter_map(|trial| trial.finished_per_s)),
                    reasons: trials
                        .iter()
                        .filter_map(|trial| match &trial.verdict {
                            Verdict::Void(reason) | Verdict::TooFew(reason) => Some(reason.clone()),
                            Verdict::Pass | Verdict::Fail => None,
                        })
                        .collect(),
                }
            })
            .collect()
    }

    fn caveat(&self, stopped: Stopped, low: Option<Level>, high: Option<Level>) -> Option<String> {
        let unit = match self.plan.unit {
            LoadUnit::Users => "users",
            LoadUnit::Qps => "calls a second",
        };
        let load = |level: Option<Level>| level.map_or(0.0, |level| self.plan.unit.load(level));
        Some(match stopped {
            Stopped::Found => return None,
            Stopped::AtMax => format!("the largest load allowed, {} {unit}, still meets the objectives", load(low)),
            Stopped::BelowMin => format!("even {} {unit} break an objective", load(high)),
            Stopped::ClientLimit => format!(
                "the client could not carry {} {unit}, so that the server's limit lies somewhere above {}",
                load(high),
                load(low)
            ),
            Stopped::TooFewSamples => {
                "trials have too few samples for these objectives: make them longer, or judge lower percentiles".to_owned()
            }
            Stopped::TrialsSpent => format!("{} trials were not enough to close the bracket", self.plan.trials_max),
            Stopped::TimeSpent => format!("{} s were not enough to close the bracket", self.plan.seconds_max),
        })
    }
}

/// The smallest margin of a trial; NaN where nothing could be judged.
fn margin_of(trial: &Trial) -> f64 {
    trial.judgement.binding().and_then(|judged| judged.margin).map_or(f64::NAN, |margin| margin.0)
}

fn mean_of(values: impl Iterator<Item = f64>) -> Option<Real> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| Real(mean(&values)))
}
