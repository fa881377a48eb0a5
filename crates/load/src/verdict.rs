//! The four questions that a report closes with: model or system? prefill or decode? one user's experience or the system's
//! capacity? does the benchmark look good, or can the service go live?
//!
//! Each is answered from numbers that are named, by thresholds that are stated here, or not at all: an abstention says what
//! is missing.
//!
//! **Invariant:** void runs are no evidence; a wait is never taken for a model's work; no answer rests on an objective that
//! could not be judged.

use serde::{Deserialize, Serialize};

use crate::metrics::run::{figures, in_window};
use crate::results::Results;
use crate::sample::Outcome;
use crate::schedule::Pacing;
use crate::slo::{Judgement, Met, Slo};
use crate::stats::Real;

mod live;
mod where_time_goes;

/// Share of a whole above which one side is named; below the rest, the other; between them, both.
pub const CLEAR_SHARE: f64 = 0.6;
/// Share of finished calls whose stages must be visible.
pub const VISIBLE_CALLS: f64 = 0.8;
/// Share of the users' time that may be unseen where stages are to answer.
pub const UNSEEN_MAX: f64 = 0.4;

/// A question, and what the runs say to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub question: Question,
    /// None: an abstention.
    pub answer: Option<Answer>,
    /// The answer or the abstention in a sentence.
    pub text: String,
    pub evidence: Vec<Evidence>,
    /// What would have to be measured for an answer, or for a surer one.
    pub missing: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    ModelOrSystem,
    PrefillOrDecode,
    OneUserOrCapacity,
    BenchmarkOrLive,
}

impl Question {
    pub fn text(self) -> &'static str {
        match self {
            Question::ModelOrSystem => "Is it the model or the system?",
            Question::PrefillOrDecode => "Is it prefill or decode?",
            Question::OneUserOrCapacity => "Is it one user's experience or the system's capacity?",
            Question::BenchmarkOrLive => "Does the benchmark look good, or can the service go live?",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Model,
    System,
    Prefill,
    Decode,
    /// Neither side of the question has a clear majority.
    Both,
    /// Too slow for a single user already.
    OneUser,
    /// Good for one user, and not for as many as were tried.
    Capacity,
    /// Good for as many as were tried.
    NoLimitSeen,
    /// Can go live, at the load named.
    Live,
    /// Meets the objectives in a run that does not show what live traffic would.
    BenchmarkOnly,
    /// Does not meet the objectives.
    NotLive,
}

/// A number that an answer rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    pub what: String,
    pub value: Real,
    pub unit: String,
}

fn evidence(what: impl Into<String>, value: f64, unit: &str) -> Evidence {
    Evidence { what: what.into(), value: Real(value), unit: unit.to_owned() }
}

/// A run of a sweep, with what is asked of it again and again.
struct Run<'a> {
    results: &'a Results,
    load: f64,
    /// Never more than one call at a time.
    alone: bool,
    judgement: Option<Judgement>,
}

impl Run<'_> {
    fn met(&self) -> Option<Met> {
        self.judgement.as_ref().map(|judgement| judgement.met)
    }

    fn load_text(&self) -> String {
        match self.results.pacing {
            Pacing::Closed { users: 1, .. } => "1 user".to_owned(),
            Pacing::Closed { users, .. } => format!("{users} users"),
            Pacing::Open { .. } => format!("{:.3} calls/s", self.load),
        }
    }
}

/// Answers the four questions from one run or from a sweep of one workload over loads.
pub fn closing(results: &[Results], slo: Option<&Slo>) -> [Verdict; 4] {
    let mut runs: Vec<Run<'_>> = results
        .iter()
        .filter(|results| {
            results.health.void.is_empty() && in_window(results).any(|s| s.outcome != Outcome::InFlight)
        })
        .map(|results| Run {
            results,
            load: load(results),
            alone: figures(results).concurrency_max <= 1,
            judgement: slo.map(|slo| slo.judge(results, false)),
        })
        .collect();
    runs.sort_by(|a, b| a.load.total_cmp(&b.load));
    let questions = [
        Question::ModelOrSystem,
        Question::PrefillOrDecode,
        Question::OneUserOrCapacity,
        Question::BenchmarkOrLive,
    ];
    if let Some(reason) = unusable(results, &runs) {
        return questions.map(|question| abstain(question, &reason, vec![], vec![reason.clone()]));
    }
    questions.map(|question| match question {
        Question::ModelOrSystem => where_time_goes::model_or_system(&runs),
        Question::PrefillOrDecode => where_time_goes::prefill_or_decode(&runs),
        Question::OneUserOrCapacity => one_user_or_capacity(&runs),
        Question::BenchmarkOrLive => live::benchmark_or_live(&runs, slo),
    })
}

fn unusable(results: &[Results], runs: &[Run<'_>]) -> Option<String> {
    if results.is_empty() {
        return Some("there is no run".to_owned());
    }
    if runs.is_empty() {
        return Some("every run is void or has no call that ended".to_owned());
    }
    let first = runs[0].results;
    let alike = |run: &Run<'_>| {
        let same_loop =
            matches!(run.results.pacing, Pacing::Open { .. }) == matches!(first.pacing, Pacing::Open { .. });
        run.results.workload == first.workload && run.results.target.model == first.target.model && same_loop
    };
    (!runs.iter().all(alike))
        .then(|| "the runs are not a sweep of one workload on one model in one kind of loop".to_owned())
}

/// Users, or calls a second.
fn load(results: &Results) -> f64 {
    match results.pacing {
        Pacing::Closed { users, .. } => users as f64,
        Pacing::Open { mean_per_s: Some(mean), .. } => mean,
        Pacing::Open { .. } => {
            let run = figures(results);
            if run.window_s.0 > 0.0 { in_window(results).count() as f64 / run.window_s.0 } else { 0.0 }
        }
    }
}

fn abstain(question: Question, text: &str, evidence: Vec<Evidence>, missing: Vec<String>) -> Verdict {
    Verdict { question, answer: None, text: format!("cannot be told: {text}"), evidence, missing }
}

fn answered(question: Question, answer: Answer, text: String, evidence: Vec<Evidence>) -> Verdict {
    Verdict { question, answer: Some(answer), text, evidence, missing: Vec::new() }
}

/// Each objective of a run as evidence.
fn objectives(run: &Run<'_>) -> Vec<Evidence> {
    let judged = run.judgement.iter().flat_map(|judgement| &judgement.objectives);
    judged
        .filter_map(|one| {
            let value = one.value.value()?;
            let what = format!("{} at {}", one.objective.text, run.load_text());
            Some(evidence(what, value, one.objective.subject.unit()))
        })
        .collect()
}

/// With objectives, a run of one user and a run of more: too slow alone, or only together?
fn one_user_or_capacity(runs: &[Run<'_>]) -> Verdict {
    let question = Question::OneUserOrCapacity;
    let mut missing = Vec::new();
    if runs[0].judgement.is_none() {
        missing.push("objectives (--slo): without them nothing says what is slow".to_owned());
    }
    let alone = runs.iter().find(|run| run.alone);
    if alone.is_none() {
        missing.push("a run with one user, for what a call costs alone".to_owned());
    }
    let Some(alone) = alone.filter(|_| missing.is_empty()) else {
        return abstain(question, "one load does not tell a slow server from a full one", vec![], missing);
    };
    let found = objectives(alone);
    match alone.met() {
        Some(Met::No) => {
            return answered(
                question,
                Answer::OneUser,
                format!(
                    "{} already breaks the objectives, so that no amount of machines would mend it",
                    alone.load_text()
                ),
                found,
            );
        }
        Some(Met::Yes) => {}
        _ => {
            let missing = vec!["more calls with one user: too few for the objectives".to_owned()];
            return abstain(
                question,
                "the run with one user is too short for the objectives",
                found,
                missing,
            );
        }
    }
    let crowded: Vec<&Run<'_>> = runs.iter().filter(|run| !run.alone).collect();
    if let Some(broken) = crowded.iter().find(|run| run.met() == Some(Met::No)) {
        let text = format!("one user is served well, {} are not", broken.load_text());
        return answered(question, Answer::Capacity, text, [found, objectives(broken)].concat());
    }
    match crowded.last() {
        Some(last) if crowded.iter().all(|run| run.met() == Some(Met::Yes)) => answered(
            question,
            Answer::NoLimitSeen,
            format!("neither is at its limit up to {}", last.load_text()),
            [found, objectives(last)].concat(),
        ),
        Some(_) => abstain(
            question,
            "runs with more users are too short for the objectives",
            found,
            vec!["more calls at each load".to_owned()],
        ),
        None => abstain(
            question,
            "one user is served well, and more were not tried",
            found,
            vec!["runs with more users".to_owned()],
        ),
    }
}

#[cfg(test)]
mod tests;
