//! Where time goes: the median cohort beside the slowest one, stage by stage. A cohort's stages are means over its calls;
//! percentiles of stages are never added or subtracted, because they belong to different calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::escape::percent;
use super::open_section;
use crate::report::number::{count, counted, duration};
use crate::report::phases::{Account, Breakdown, Phase, breakdown};
use crate::report::tally;
use crate::results::Results;
use crate::sample::{Outcome, Sample};

/// Fewer calls than this make no cohorts.
const CALLS_MIN: usize = 40;
/// A cohort has at least this many calls.
const COHORT_MIN: usize = 5;

/// Calls of like latency, and their mean time by phase.
#[derive(Debug, PartialEq)]
pub struct Cohort {
    pub name: &'static str,
    pub n: usize,
    /// Nanoseconds, means over the `n` calls.
    pub mean_ns: BTreeMap<Phase, f64>,
}

impl Cohort {
    /// The phases' sum, which is the mean latency.
    pub fn total_ns(&self) -> f64 {
        self.mean_ns.values().sum()
    }
}

/// The median cohort (the middle tenth by latency) and the slowest hundredth, of at least [`COHORT_MIN`] calls each. None
/// if there are fewer than [`CALLS_MIN`] calls.
fn cohorts(mut calls: Vec<(u64, BTreeMap<Phase, u64>)>) -> Option<[Cohort; 2]> {
    if calls.len() < CALLS_MIN {
        return None;
    }
    calls.sort_by_key(|(latency, _)| *latency);
    let n = calls.len();
    let middle = (n / 10).max(COHORT_MIN);
    let slowest = (n / 100).max(COHORT_MIN);
    let from = (n - middle) / 2;
    let mean = |name, calls: &[(u64, BTreeMap<Phase, u64>)]| {
        let mut mean_ns = BTreeMap::new();
        for (phase, ns) in calls.iter().flat_map(|(_, phases)| phases) {
            *mean_ns.entry(*phase).or_insert(0.0) += *ns as f64 / calls.len() as f64;
        }
        Cohort { name, n: calls.len(), mean_ns }
    };
    Some([mean("Median cohort", &calls[from..from + middle]), mean("p99 cohort", &calls[n - slowest..])])
}

pub fn section(out: &mut String, results: &Results) {
    let lead = "The <b>median cohort</b> is the middle tenth of the calls by latency, the <b>p99 cohort</b> the slowest \
                hundredth (at least 5 calls). Bars are means over a cohort's calls, so they add up to its mean latency. \
                Finished calls that count only. Stages below 0.3 % of both cohorts stand together as the small ones.";
    open_section(out, "waterfall", "Where the time goes", lead);
    let finished =
        |sample: &&Sample| tally::counts(sample, results.window) && sample.outcome == Outcome::Finished;
    let parts: Vec<Breakdown> = results.samples.iter().filter(finished).filter_map(breakdown).collect();
    account(out, &parts);
    let to_first = |parts: &Breakdown| phases(&parts.to_first_token);
    let whole = |parts: &Breakdown| {
        let mut all = phases(&parts.to_first_token);
        for (phase, ns) in phases(&parts.after_it) {
            *all.entry(phase).or_insert(0) += ns;
        }
        all
    };
    pair(out, "To the first token", &parts, to_first);
    pair(out, "To the last byte", &parts, whole);
    out.push_str("</section>");
}

fn phases(parts: &[(Phase, u64)]) -> BTreeMap<Phase, u64> {
    let mut sums = BTreeMap::new();
    for (phase, ns) in parts {
        *sums.entry(*phase).or_insert(0) += ns;
    }
    sums
}

/// Says whose account this is.
fn account(out: &mut String, parts: &[Breakdown]) {
    let n = |account| parts.iter().filter(|parts| parts.account == account).count() as u64;
    let (shown, contradicts) = (n(Account::Shown), n(Account::Contradicts));
    if shown == 0 {
        out.push_str(
            "<p class=\"caveat\">This server does not say what happens inside it, so only what a client can see is \
             shown. Whether a wait is queueing or prefill cannot be told from outside.</p>",
        );
    } else if shown < parts.len() as u64 {
        let all = count(parts.len() as u64);
        let _ = write!(
            out,
            "<p class=\"caveat\">{} of {all} calls came with the server's account.</p>",
            count(shown)
        );
    }
    if contradicts > 0 {
        let calls = counted(contradicts, "call", "calls");
        let _ = write!(
            out,
            "<p class=\"caveat\">Of {calls} the server claims more time than passed at the client; there its account is not used.</p>"
        );
    }
}

fn pair(out: &mut String, title: &str, parts: &[Breakdown], of: impl Fn(&Breakdown) -> BTreeMap<Phase, u64>) {
    let calls = parts.iter().map(&of).map(|phases| (phases.values().sum(), phases)).collect();
    let _ = write!(out, "<h3>{title}</h3>");
    let Some(cohorts) = cohorts(calls) else {
        let _ = write!(
            out,
            "<p class=\"empty\">{} finished and count; cohorts are drawn from {CALLS_MIN} on.</p>",
            counted(parts.len() as u64, "call", "calls")
        );
        return;
    };
    out.push_str("<div class=\"two\">");
    let small = small(&cohorts);
    for cohort in &cohorts {
        bars(out, cohort, &small);
    }
    out.push_str("</div>");
    growth(out, &cohorts);
}

/// Phases with less than this share of both cohorts' time are shown together.
const SMALL: f64 = 0.003;

fn small(cohorts: &[Cohort; 2]) -> BTreeSet<Phase> {
    let share = |cohort: &Cohort, phase: &Phase| {
        cohort.mean_ns.get(phase).copied().unwrap_or(0.0) / cohort.total_ns().max(1.0)
    };
    let phases = cohorts.iter().flat_map(|cohort| cohort.mean_ns.keys().copied());
    let small: BTreeSet<Phase> =
        phases.filter(|phase| cohorts.iter().all(|cohort| share(cohort, phase) < SMALL)).collect();
    if small.len() > 1 { small } else { BTreeSet::new() }
}

fn bars(out: &mut String, cohort: &Cohort, small: &BTreeSet<Phase>) {
    let total = cohort.total_ns().max(1.0);
    let _ = write!(
        out,
        "<figure class=\"fall\"><figcaption>{} <small>{}, mean</small><b>{}</b></figcaption><table><colgroup><col class=\"name\"><col><col class=\"ms\"><col class=\"share\"></colgroup><thead class=\"sr\"><tr>\
         <th class=\"l\">stage<th>place<th>mean<th>share</tr></thead><tbody>",
        cohort.name,
        counted(cohort.n as u64, "call", "calls"),
        duration(total / 1e6)
    );
    let mut at = 0.0;
    let mut row = |slug: &str, title: &str, name: &str, ns: f64| {
        let (left, width) = (at / total * 100.0, ns / total * 100.0);
        let _ = write!(
            out,
            "<tr class=\"{slug}\"><th class=\"l\" title=\"{title}\">{name}<td class=\"way\"><i style=\"left:{left:.2}%;width:{width:.2}%\"></i><td>{}<td>{}</tr>",
            duration(ns / 1e6),
            percent(ns / total)
        );
        at += ns;
    };
    for (phase, ns) in cohort.mean_ns.iter().filter(|(phase, _)| !small.contains(phase)) {
        row(&phase.slug(), &super::escape::text(phase.meaning()), phase.name(), *ns);
    }
    let rest: Vec<(&Phase, &f64)> =
        cohort.mean_ns.iter().filter(|(phase, _)| small.contains(phase)).collect();
    if !rest.is_empty() {
        let each = |(phase, ns): &(&Phase, &f64)| format!("{} {}", phase.name(), duration(**ns / 1e6));
        let title: Vec<String> = rest.iter().map(each).collect();
        let sum = rest.iter().map(|(_, ns)| **ns).sum();
        row("p-rest", &title.join(", "), &format!("{} small ones", rest.len()), sum);
    }
    out.push_str("</tbody></table></figure>");
}

/// Which phase grew most from the median cohort to the slow one. Means may be subtracted.
fn growth(out: &mut String, [median, slow]: &[Cohort; 2]) {
    let more = slow.total_ns() - median.total_ns();
    let grown = |phase: &Phase| slow.mean_ns[phase] - median.mean_ns.get(phase).copied().unwrap_or(0.0);
    let most = slow.mean_ns.keys().max_by(|a, b| grown(a).total_cmp(&grown(b)));
    let Some(phase) = most.filter(|phase| more > 0.0 && grown(phase) > 0.0) else { return };
    let _ = write!(
        out,
        "<p class=\"finding {}\"><i></i>The slow cohort takes {} longer in the mean. <b>{}</b> grew most, by {}: {} of the difference.</p>",
        phase.slug(),
        duration(more / 1e6),
        phase.name(),
        duration(grown(phase) / 1e6),
        percent((grown(phase) / more).min(1.0))
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cohorts_phases_add_up_to_its_mean_latency() {
        let calls: Vec<(u64, BTreeMap<Phase, u64>)> = (1..=1_000u64)
            .map(|rank| (rank * 10, BTreeMap::from([(Phase::Waiting, rank * 9), (Phase::FirstByte, rank)])))
            .collect();
        let [median, slow] = cohorts(calls).unwrap();
        assert_eq!((median.n, slow.n), (100, 10));
        assert!(
            (median.total_ns() - 5_005.0).abs() < 1e-6,
            "mean of ranks 451 to 550: {}",
            median.total_ns()
        );
        assert!((slow.total_ns() - 9_955.0).abs() < 1e-6, "mean of ranks 991 to 1000: {}", slow.total_ns());
        assert!((slow.mean_ns[&Phase::FirstByte] - 995.5).abs() < 1e-6);
    }

    #[test]
    fn few_calls_make_no_cohorts() {
        let call = (1, BTreeMap::from([(Phase::Waiting, 1)]));
        assert_eq!(cohorts(vec![call.clone(); CALLS_MIN - 1]), None);
        assert!(cohorts(vec![call; CALLS_MIN]).is_some());
    }
}
