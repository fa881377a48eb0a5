//! Does the benchmark look good, or can the service go live?
//!
//! **Invariant:** "can go live" takes every check below; one that fails makes it "benchmark only", and one that cannot be made
//! an abstention.

use std::collections::HashSet;

use super::{Answer, Evidence, Question, Run, Verdict, abstain, answered, evidence, objectives};
use crate::metrics::run::{Span, figures, in_window};
use crate::results::Results;
use crate::sample::{Outcome, Sample};
use crate::schedule::Pacing;
use crate::slo::{Met, Slo, Subject};
use crate::stats::{mean, wilson};

/// Calls that ended in the window.
pub const CALLS_MIN: usize = 1000;
/// Length of the window.
pub const WINDOW_S_MIN: f64 = 60.0;
/// Errors must be below this with 95% confidence where no objective says otherwise.
pub const ERRORS_MAX: f64 = 0.01;
/// Of the binding objective's limit, left over.
pub const HEADROOM_MIN: f64 = 0.1;
/// Mean end-to-end time in the window's last third over that in its first.
pub const DRIFT_MAX: f64 = 1.5;
/// Share of prompt tokens that came from the server's cache.
pub const CACHED_MAX: f64 = 0.5;
/// Share of bodies that are distinct.
pub const DISTINCT_MIN: f64 = 0.9;

enum Check {
    Holds(Evidence),
    Fails(Evidence, String),
    Unknown(String),
}

pub fn benchmark_or_live(runs: &[Run<'_>], slo: Option<&Slo>) -> Verdict {
    let question = Question::BenchmarkOrLive;
    let Some(slo) = slo else {
        let missing = vec!["objectives (--slo)".to_owned()];
        return abstain(question, "without objectives nothing says what is good", vec![], missing);
    };
    let Some(best) = runs.iter().rev().find(|run| run.met() == Some(Met::Yes)) else {
        let lowest = &runs[0];
        if lowest.met() == Some(Met::No) {
            let text = format!("the objectives are broken at {} already", lowest.load_text());
            return answered(question, Answer::NotLive, text, objectives(lowest));
        }
        let missing = vec!["more calls: too few for the objectives".to_owned()];
        return abstain(question, "no run is long enough for the objectives", objectives(lowest), missing);
    };
    let mut found = objectives(best);
    let (mut faults, mut missing) = (Vec::new(), Vec::new());
    for check in checks(best, slo) {
        match check {
            Check::Holds(evidence) => found.push(evidence),
            Check::Fails(evidence, fault) => {
                found.push(evidence);
                faults.push(fault);
            }
            Check::Unknown(what) => missing.push(what),
        }
    }
    let at = best.load_text();
    let mut verdict = if !faults.is_empty() {
        let text = format!("the objectives are met at {at}, but {}", faults.join("; "));
        answered(question, Answer::BenchmarkOnly, text, found)
    } else if !missing.is_empty() {
        return abstain(
            question,
            "the objectives are met, but not everything could be checked",
            found,
            missing,
        );
    } else {
        let text = format!("can go live at {at}, for traffic like this workload's");
        answered(question, Answer::Live, text, found)
    };
    verdict.missing = missing;
    verdict
}

fn checks(run: &Run<'_>, slo: &Slo) -> Vec<Check> {
    let results = run.results;
    let whole = figures(results);
    let ended: Vec<&Sample> = in_window(results).filter(|s| s.outcome != Outcome::InFlight).collect();
    let failures = ended.iter().filter(|sample| sample.outcome.is_failure()).count();
    let at_least = |what: &str, value: f64, limit: f64, unit: &str, fault: String| {
        let evidence = evidence(what, value, unit);
        if value >= limit { Check::Holds(evidence) } else { Check::Fails(evidence, fault) }
    };
    let at_most = |what: &str, value: f64, limit: f64, unit: &str, fault: String| {
        let evidence = evidence(what, value, unit);
        if value <= limit { Check::Holds(evidence) } else { Check::Fails(evidence, fault) }
    };
    let count = ended.len() as f64;
    let seconds = whole.window_s.0;
    let mut checks = vec![
        at_least(
            "calls that ended",
            count,
            CALLS_MIN as f64,
            "calls",
            format!("{count} calls are few ({CALLS_MIN} are asked)"),
        ),
        at_least(
            "window",
            seconds,
            WINDOW_S_MIN,
            "s",
            format!("{seconds:.0} s are short ({WINDOW_S_MIN} s are asked)"),
        ),
        open_loop(results),
        drift(results),
        distinct(&ended),
    ];
    if !slo.objectives.iter().any(|objective| objective.subject == Subject::Errors) {
        let worst = wilson(failures, ended.len(), 1.96).1;
        let fault = format!("errors may be as many as {:.1}%", 100.0 * worst);
        checks.push(at_most("errors at most, with 95% confidence", worst, ERRORS_MAX, "share", fault));
    }
    if let Some(margin) = run.judgement.as_ref().and_then(|judgement| judgement.binding()?.margin) {
        let fault = format!("only {:.0}% of a limit is left", 100.0 * margin.0);
        checks.push(at_least("smallest margin, of its limit", margin.0, HEADROOM_MIN, "share", fault));
    }
    checks.extend(cached(&ended, at_most));
    checks
}

/// Users of a closed loop wait for the server, and live traffic does not.
fn open_loop(results: &Results) -> Check {
    match results.pacing {
        Pacing::Open { .. } => Check::Holds(evidence("arrivals that do not wait for answers", 1.0, "yes")),
        Pacing::Closed { .. } => Check::Fails(
            evidence("arrivals that do not wait for answers", 0.0, "no"),
            "its users waited for the server (closed loop), which live traffic does not".to_owned(),
        ),
    }
}

/// Times that grow over the window are those of a server that does not keep up.
fn drift(results: &Results) -> Check {
    let span = Span::of(results);
    let third = (span.to_ns - span.from_ns) / 3;
    let mean_between = |from: u64, to: u64| {
        let values: Vec<f64> = in_window(results)
            .filter(|sample| (from..to).contains(&sample.intended_ns) && !sample.outcome.is_failure())
            .filter_map(|sample| {
                let end = sample.chunks.last().map(|chunk| chunk.at_ns).or(sample.last_byte_ns)?;
                Some(end.checked_sub(sample.intended_ns)? as f64 / 1e6)
            })
            .collect();
        (values.len() >= crate::stats::RATE_SAMPLES_MIN).then(|| mean(&values))
    };
    let first = mean_between(span.from_ns, span.from_ns + third);
    let last = mean_between(span.to_ns - third, span.to_ns);
    let (Some(first), Some(last)) = (first, last) else {
        return Check::Unknown("enough calls in the first and the last third of the window".to_owned());
    };
    let ratio = last / first;
    let evidence = evidence("mean time in the last third of the window over the first", ratio, "ratio");
    if ratio <= DRIFT_MAX {
        return Check::Holds(evidence);
    }
    Check::Fails(evidence, format!("times grew {ratio:.1}-fold over the window: the server does not keep up"))
}

fn distinct(ended: &[&Sample]) -> Check {
    let bodies: HashSet<&str> = ended.iter().map(|sample| sample.body.as_str()).collect();
    let share = bodies.len() as f64 / ended.len().max(1) as f64;
    let evidence = evidence("distinct bodies, of all", share, "share");
    if share >= DISTINCT_MIN {
        return Check::Holds(evidence);
    }
    Check::Fails(evidence, format!("only {:.0}% of the prompts are distinct", 100.0 * share))
}

/// A server that does not tell of its cache is not held to this: the prompts are distinct, by the check above.
fn cached(ended: &[&Sample], at_most: impl Fn(&str, f64, f64, &str, String) -> Check) -> Option<Check> {
    let known = ended.iter().filter_map(|sample| Some((sample.tokens.prompt?, sample.tokens.cached?)));
    let (prompt, cached) = known
        .fold((0_u64, 0_u64), |sum, (prompt, cached)| (sum.0 + u64::from(prompt), sum.1 + u64::from(cached)));
    (prompt > 0).then(|| {
        let share = cached as f64 / prompt as f64;
        let fault = format!(
            "{:.0}% of the prompts came from the cache, which live traffic may not repeat",
            100.0 * share
        );
        at_most("prompt tokens from the cache", share, CACHED_MAX, "share", fault)
    })
}
