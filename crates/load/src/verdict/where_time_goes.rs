//! Model or system, prefill or decode: from stages where the server shows them, else from runs in which nothing can wait.
//!
//! **Invariant:** an answer from stages needs them visible in most calls and most of the users' time; an answer without
//! stages needs a run with one call at a time.

use std::collections::BTreeMap;

use ledger::Stage;

use super::{
    Answer, CLEAR_SHARE, Evidence, Question, Run, UNSEEN_MAX, VISIBLE_CALLS, Verdict, abstain, answered,
    evidence,
};
use crate::metrics::call::{read, span_ms};
use crate::metrics::run::in_window;
use crate::metrics::{Boundary, Metric, PrefillBasis, Reading, Rules};
use crate::results::Results;
use crate::sample::Outcome;
use crate::slo::stage::{Part, Place, places, shows};
use crate::stats::mean;

/// Stages in which the model itself is computed for the call.
const MODEL: &[Stage] = &[Stage::EncodeVision, Stage::Prefill, Stage::Decode, Stage::Sample];
const PREFILL: &[Stage] = &[Stage::EncodeVision, Stage::Prefill, Stage::PrefillWait];
const DECODE: &[Stage] = &[Stage::Decode, Stage::DecodeWait, Stage::Sample];

/// Mean milliseconds a call by place, of calls that finished and whose stages are visible.
struct Shown {
    places: BTreeMap<Place, f64>,
    calls: usize,
}

impl Shown {
    fn of(results: &Results) -> Result<Self, String> {
        let whole = Part::Whole { from_intended: true };
        let finished: Vec<_> = in_window(results).filter(|s| s.outcome == Outcome::Finished).collect();
        let shown: Vec<_> = finished.iter().filter(|sample| shows(sample, whole)).collect();
        if shown.is_empty() {
            return Err("the server shows no stages of its own".to_owned());
        }
        if (shown.len() as f64) < VISIBLE_CALLS * finished.len() as f64 {
            return Err(format!("stages are visible in {} of {} calls alone", shown.len(), finished.len()));
        }
        let mut means = BTreeMap::new();
        for sample in &shown {
            for (place, ms) in places(sample, whole) {
                *means.entry(place).or_default() += ms / shown.len() as f64;
            }
        }
        let shown = Shown { places: means, calls: shown.len() };
        let unseen = shown.unseen_share();
        if unseen > UNSEEN_MAX {
            return Err(format!(
                "{:.0}% of the users' time is in no stage that the server shows",
                100.0 * unseen
            ));
        }
        Ok(shown)
    }

    fn all(&self) -> f64 {
        self.places.values().sum()
    }

    fn of_stages(&self, stages: &[Stage]) -> f64 {
        self.places
            .iter()
            .filter(|(place, _)| matches!(place, Place::Stage(stage) if stages.contains(stage)))
            .map(|(_, ms)| ms)
            .sum()
    }

    /// What no stage claims: outside of the server, or not told by it.
    fn unseen_share(&self) -> f64 {
        let unknown = [Place::Unseen, Place::Stage(Stage::Opaque), Place::Stage(Stage::Unattributed)];
        let unseen: f64 = unknown.iter().filter_map(|place| self.places.get(place)).sum();
        if self.all() > 0.0 { unseen / self.all() } else { 1.0 }
    }

    fn model_share(&self) -> f64 {
        self.of_stages(MODEL) / self.all()
    }

    /// The server's stages that are no model's, over all time.
    fn system_share(&self) -> f64 {
        1.0 - self.model_share() - self.unseen_share()
    }

    fn largest(&self, count: usize) -> Vec<Evidence> {
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_by(|a, b| b.1.total_cmp(a.1));
        let named = places.into_iter().take(count).filter(|(_, ms)| **ms > 0.0);
        named
            .map(|(place, ms)| {
                evidence(format!("{}, mean over {} calls", place.name(), self.calls), *ms, "ms")
            })
            .collect()
    }
}

/// Of the most loaded run.
pub fn model_or_system(runs: &[Run<'_>]) -> Verdict {
    let question = Question::ModelOrSystem;
    let last = runs.last().expect("there is a run");
    let at = last.load_text();
    let shown = Shown::of(last.results);
    let mut found = Vec::new();
    if let Ok(shown) = &shown {
        found.push(evidence(
            format!("share of time in the model's stages at {at}"),
            shown.model_share(),
            "share",
        ));
        found.push(evidence(
            format!("share of time in the server's other stages at {at}"),
            shown.system_share(),
            "share",
        ));
        found.extend(shown.largest(4));
        // Waiting is waiting, however long the steps are.
        if shown.system_share() >= CLEAR_SHARE {
            let text = format!("at {at} most of a call's time is spent waiting in the system");
            return answered(question, Answer::System, text, found);
        }
    }
    let beside = runs.iter().find(|run| run.alone).filter(|alone| !last.alone && alone.load < last.load);
    if let Some((base, loaded)) = beside.and_then(|alone| mean_e2e(alone.results).zip(mean_e2e(last.results)))
    {
        let share = base / loaded;
        found.insert(0, evidence("mean end-to-end time alone", base, "ms"));
        found.insert(1, evidence(format!("mean end-to-end time at {at}"), loaded, "ms"));
        found.insert(2, evidence("what a call alone takes, of what it takes under load", share, "share"));
        let (answer, text) = if share >= CLEAR_SHARE {
            (
                Answer::Model,
                format!("a call takes nearly as long alone as at {at}: it is what the model costs here"),
            )
        } else if share <= 1.0 - CLEAR_SHARE {
            (
                Answer::System,
                format!("a call alone takes a small part of what it takes at {at}: the rest is load"),
            )
        } else {
            (Answer::Both, format!("the model's own cost and the load at {at} have comparable parts"))
        };
        return answered(question, answer, text, found);
    }
    match shown {
        Ok(shown) if last.alone => {
            let (answer, text) = match shown.model_share() {
                share if share >= CLEAR_SHARE => {
                    (Answer::Model, "with one call at a time, most of it is the model's own work")
                }
                _ => (
                    Answer::Both,
                    "with one call at a time, neither the model's work nor the rest has a clear majority",
                ),
            };
            answered(question, answer, text.to_owned(), found)
        }
        Ok(_) => abstain(
            question,
            "steps are shared with other calls, so that their length is not the model's alone",
            found,
            vec!["a run with one user, for what a call costs alone".to_owned()],
        ),
        Err(reason) => abstain(
            question,
            &reason,
            found,
            vec!["the server's stages, or a run with one user beside a loaded one".to_owned()],
        ),
    }
}

/// Of the most loaded run whose stages are visible; else of one with a call at a time.
pub fn prefill_or_decode(runs: &[Run<'_>]) -> Verdict {
    let question = Question::PrefillOrDecode;
    let mut reason = String::new();
    for run in runs.iter().rev() {
        match Shown::of(run.results) {
            Ok(shown) => {
                let (prefill, decode) = (shown.of_stages(PREFILL), shown.of_stages(DECODE));
                if prefill > 0.0 && decode > 0.0 {
                    let found = vec![
                        evidence(
                            format!("prefill and its waits, a call, at {}", run.load_text()),
                            prefill,
                            "ms",
                        ),
                        evidence(
                            format!("decode and its waits, a call, at {}", run.load_text()),
                            decode,
                            "ms",
                        ),
                    ];
                    return by_share(question, prefill, decode, found);
                }
                reason = "the server shows only one of the two".to_owned();
            }
            Err(why) if reason.is_empty() => reason = why,
            Err(_) => {}
        }
    }
    let streams = runs.iter().find(|run| run.alone && run.results.target.stream);
    let Some(alone) = streams else {
        return abstain(
            question,
            &format!("{reason}, and with several calls at a time the time to first token holds waiting too"),
            vec![],
            vec!["the server's stages, or a streamed run with one user".to_owned()],
        );
    };
    let finished: Vec<_> = in_window(alone.results).filter(|s| s.outcome == Outcome::Finished).collect();
    let parts: Vec<(f64, f64)> = finished
        .iter()
        .filter_map(|sample| {
            let first = span_ms(sample, Boundary::Sent, Boundary::FirstToken)?;
            Some((first, span_ms(sample, Boundary::FirstToken, Boundary::LastToken)?))
        })
        .collect();
    if parts.is_empty() {
        return abstain(question, "no call finished", vec![], vec!["calls that finish".to_owned()]);
    }
    let (first, rest): (Vec<f64>, Vec<f64>) = parts.into_iter().unzip();
    let (prefill, decode) = (mean(&first), mean(&rest));
    let found = vec![
        evidence(
            "time to first token with one call at a time (network and tokenization in it)",
            prefill,
            "ms",
        ),
        evidence("from first to last token with one call at a time", decode, "ms"),
    ];
    by_share(question, prefill, decode, found)
}

fn by_share(question: Question, prefill: f64, decode: f64, found: Vec<Evidence>) -> Verdict {
    let share = prefill / (prefill + decode);
    let (answer, text) = if share >= CLEAR_SHARE {
        (Answer::Prefill, format!("{:.0}% of the two is prefill", 100.0 * share))
    } else if share <= 1.0 - CLEAR_SHARE {
        (Answer::Decode, format!("{:.0}% of the two is decode", 100.0 * (1.0 - share)))
    } else {
        (
            Answer::Both,
            format!("prefill and decode have comparable parts, {:.0}% and the rest", 100.0 * share),
        )
    };
    answered(question, answer, text, found)
}

/// Of calls that finished, milliseconds.
fn mean_e2e(results: &Results) -> Option<f64> {
    let rules = Rules { stream: results.target.stream, prefill: PrefillBasis::Ttft };
    let values: Vec<f64> = in_window(results)
        .filter_map(|sample| match read(sample, Metric::E2e, rules) {
            Reading::Values(values) => values.first().copied(),
            _ => None,
        })
        .collect();
    (values.len() >= crate::stats::RATE_SAMPLES_MIN).then(|| mean(&values))
}
