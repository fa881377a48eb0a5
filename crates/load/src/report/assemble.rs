//! From runs and what was computed of them to a [`Report`]: the one place where the two meet.

use crate::capacity::Capacity;
use crate::metrics::{Metric, Summary, Table};
use crate::report::{Answer, Interval, LevelRow, MetricRow, Objective, Origin, Report, SloView};
use crate::results::Results;
use crate::schedule::Pacing;
use crate::search;
use crate::slo::{Judgement, Met, Slo, StageFinding, Subject};
use crate::stats::Estimate;

/// What a report is made of.
pub struct Parts<'a> {
    pub title: String,
    /// One run, or several at growing load.
    pub results: Vec<Results>,
    /// The run that is told in detail.
    pub focus: usize,
    pub slo: Option<&'a Slo>,
    pub search: Option<&'a search::Answer>,
    pub capacity: Option<&'a Capacity>,
    pub verdict: Vec<Answer>,
}

/// Measures the focused run and puts everything together.
pub fn report(parts: Parts<'_>) -> Report {
    let Parts { title, results, focus, slo, search, capacity, verdict } = parts;
    let metrics = results.get(focus).map(|run| rows(&Table::full(run))).unwrap_or_default();
    let judgement = slo.and_then(|slo| Some(slo.judge(results.get(focus)?, true)));
    let levels =
        if results.len() > 1 { results.iter().map(|run| level(run, slo)).collect() } else { Vec::new() };
    let slo = judgement.map(|judgement| slo_view(&judgement, search, capacity));
    Report { schema: Report::SCHEMA, title, focus, metrics, slo, levels, verdict, results }
}

fn rows(table: &Table) -> Vec<MetricRow> {
    let rate = |name: &str, definition: &str, unit: &str, estimate: &Estimate| MetricRow {
        name: name.to_owned(),
        definition: definition.to_owned(),
        unit: unit.to_owned(),
        from: Origin::Neither,
        n: samples(estimate),
        mean: estimate.value(),
        ci95: interval("mean", estimate),
        note: withheld(estimate),
        ..MetricRow::default()
    };
    let run = &table.run;
    let mut rows = vec![
        rate(
            "output throughput",
            "Output tokens delivered in the window, a second.",
            "tok/s",
            &run.output_tokens_per_s,
        ),
        rate(
            "input throughput",
            "Prompt tokens of calls whose first token came in the window, a second.",
            "tok/s",
            &run.prompt_tokens_per_s,
        ),
        rate("total throughput", "The two together.", "tok/s", &run.total_tokens_per_s),
        rate("QPS", "Calls that finished in the window, a second.", "calls/s", &run.finished_per_s),
        rate("offered", "Calls a second that the schedule wanted.", "calls/s", &run.offered_per_s),
    ];
    // Where nothing but answers was said, the first answer token is the first token.
    let same = |a: Metric, b: Metric| table.metric(a).judged == table.metric(b).judged;
    let repeats = |metric: Metric| match metric {
        Metric::Ttfat => same(metric, Metric::Ttft),
        Metric::TtfatSent => same(metric, Metric::TtftSent),
        _ => false,
    };
    let shown = |summary: &&Summary| (summary.calls > 0 || summary.failed > 0) && !repeats(summary.metric);
    rows.extend(table.metrics.iter().filter(shown).map(row));
    rows
}

fn row(summary: &Summary) -> MetricRow {
    let definition = summary.metric.definition();
    let judged = &summary.judged;
    let at = |percent: f64| judged.percentile(percent).and_then(Estimate::value);
    let p95 = judged.percentile(95.0);
    let mut notes: Vec<String> = Vec::new();
    if let Some(reason) = judged.percentile(99.0).and_then(withheld) {
        notes.push(reason);
    }
    if summary.absent > 0 {
        notes.push(format!("{} calls lack one of its boundaries", summary.absent));
    }
    MetricRow {
        name: name(summary.metric),
        definition: definition.meaning.to_owned(),
        unit: definition.unit.symbol().to_owned(),
        from: match definition.from {
            crate::metrics::Boundary::Intended => Origin::Intended,
            crate::metrics::Boundary::Sent => Origin::Sent,
            _ => Origin::Neither,
        },
        n: (summary.values + summary.failed) as u64,
        infinite: summary.failed as u64,
        mean: judged.mean.value(),
        p50: at(50.0),
        p90: at(90.0),
        p95: at(95.0),
        p99: at(99.0),
        max: judged.max.value(),
        ci95: p95.and_then(|estimate| interval("p95", estimate)).or_else(|| interval("mean", &judged.mean)),
        note: (!notes.is_empty()).then(|| notes.join("; ")),
    }
}

/// A metric's name as tables print it.
fn name(metric: Metric) -> String {
    let short = ["ttft", "ttfat", "itl", "tbt", "tpot", "e2e"];
    let (first, rest) = metric.name().split_once('_').unwrap_or((metric.name(), ""));
    let first = if short.contains(&first) { first.to_uppercase() } else { first.to_owned() };
    format!("{first} {}", rest.replace('_', " ")).trim_end().to_owned()
}

fn level(run: &Results, slo: Option<&Slo>) -> LevelRow {
    let table = Table::quick(run);
    let p95 = |metric: Metric| table.metric(metric).judged.percentile(95.0).and_then(Estimate::value);
    let (load, load_unit) = match &run.pacing {
        Pacing::Closed { users, .. } => (*users as f64, "users"),
        Pacing::Open { mean_per_s, .. } => (mean_per_s.unwrap_or_default(), "requests/s"),
    };
    LevelRow {
        load,
        load_unit: load_unit.to_owned(),
        throughput: table.run.output_tokens_per_s.value().unwrap_or_default(),
        ttft_p95: p95(Metric::Ttft),
        itl_p95: p95(Metric::Itl),
        errors: table.run.error_rate.value().unwrap_or_default(),
        n: table.run.outcomes.values().sum::<usize>() as u64,
        passes: slo.and_then(|slo| met(slo.judge(run, false).met)),
        void: run.health.void.clone(),
    }
}

fn slo_view(judgement: &Judgement, search: Option<&search::Answer>, capacity: Option<&Capacity>) -> SloView {
    let objectives = judgement.objectives.iter().map(|judged| Objective {
        metric: match judged.objective.subject {
            Subject::Call { metric, statistic } => format!("{}_{statistic}", metric.name()),
            _ => judged.objective.text.split(['<', '>']).next().unwrap_or_default().to_owned(),
        },
        text: judged.objective.text.clone(),
        limit: judged.objective.limit,
        unit: judged.objective.subject.unit().to_owned(),
        measured: judged.value.value(),
        passes: met(judged.met),
    });
    // A search knows where it breaks; a single run only what is nearest to breaking.
    let stage = search.and_then(|answer| answer.stage.as_ref()).or(judgement.stage.as_ref());
    let binds = search.and_then(|answer| answer.binding.clone());
    let mut evidence: Vec<String> = stage.map(sentence).into_iter().collect();
    evidence.extend(search.and_then(|answer| answer.caveat.clone()));
    let mut cost = Vec::new();
    for quantity in capacity.iter().flat_map(|capacity| &capacity.quantities) {
        cost.push((quantity.name.clone(), format!("{:.4} {}", quantity.value.0, quantity.unit)));
    }
    SloView {
        objectives: objectives.collect(),
        capacity: search.and_then(|answer| answer.load).map(|load| load.0),
        capacity_unit: match search.map(|answer| answer.unit) {
            Some(search::LoadUnit::Users) => "users".to_owned(),
            Some(search::LoadUnit::Qps) => "requests/s".to_owned(),
            None => String::new(),
        },
        capacity_ci95: search.and_then(|answer| {
            let (low, high) = (answer.low?, answer.high?);
            Some(Interval { of: "capacity".to_owned(), low: low.0, high: high.0 })
        }),
        binds: binds.or_else(|| Some(judgement.binding()?.objective.text.clone())),
        binding_stage: stage.and_then(place),
        evidence,
        cost,
    }
}

/// The place that a finding names.
fn place(finding: &StageFinding) -> Option<String> {
    match finding {
        StageFinding::Stage { place, .. } => Some(place.name().to_owned()),
        StageFinding::Failures { .. } | StageFinding::Opaque { .. } => None,
    }
}

/// A finding in words.
fn sentence(finding: &StageFinding) -> String {
    match finding {
        StageFinding::Stage { place, excess_ms, share_of_excess, slow, fast, per_token, .. } => format!(
            "{} took {:.1} ms more {} in the {} slow calls than in the {} fast ones, {:.0}% of the difference (means over the cohorts)",
            place.name(),
            excess_ms.0,
            if *per_token { "per token" } else { "per call" },
            slow.calls,
            fast.calls,
            share_of_excess.0 * 100.0
        ),
        StageFinding::Failures { by_class } => {
            let classes: Vec<String> =
                by_class.iter().map(|(class, count)| format!("{count} {class}")).collect();
            format!(
                "the slow calls are those that failed ({}); their stages are not known",
                classes.join(", ")
            )
        }
        StageFinding::Opaque { reason } => format!("no stage can be named: {reason}"),
    }
}

fn met(met: Met) -> Option<bool> {
    match met {
        Met::Yes => Some(true),
        Met::No => Some(false),
        Met::Unknown => None,
    }
}

fn samples(estimate: &Estimate) -> u64 {
    match estimate {
        Estimate::Given { samples, .. } | Estimate::Withheld { samples, .. } => *samples as u64,
    }
}

fn withheld(estimate: &Estimate) -> Option<String> {
    match estimate {
        Estimate::Withheld { withheld, .. } => Some(withheld.clone()),
        Estimate::Given { .. } => None,
    }
}

fn interval(of: &str, estimate: &Estimate) -> Option<Interval> {
    let interval = estimate.interval()?;
    Some(Interval { of: of.to_owned(), low: interval.low.0, high: interval.high.0 })
}
