//! From runs, and what was computed of them, to a [`Report`]. This is the one place where the report's plain rows meet the
//! types that measure.

use crate::capacity::Capacity;
use crate::metrics::{self, Boundary, Metric, Summary, Table, Unit};
use crate::report::number::{counted, duration, percent, quantity, value_text};
use crate::report::{Answer, Interval, LevelRow, MetricRow, Objective, Origin, Report, SloView};
use crate::results::Results;
use crate::schedule::Pacing;
use crate::search::{self, LoadUnit};
use crate::slo::{Judged, Judgement, Met, Place, Slo, StageFinding, Subject};
use crate::stats::{Estimate, Real, Statistic};
use crate::verdict::Verdict;

/// What a report is made of.
pub struct Parts<'a> {
    pub title: String,
    /// One run, or those of a sweep by growing load.
    pub results: Vec<Results>,
    /// Which run the metrics, the judgement and the detailed charts are of.
    pub focus: usize,
    pub slo: Option<&'a Slo>,
    pub search: Option<&'a search::Answer>,
    pub capacity: Option<&'a Capacity>,
    pub verdict: Vec<Answer>,
}

/// Measures the focused run and puts everything together.
pub fn report(parts: Parts<'_>) -> Report {
    let Parts { title, results, focus, slo, search, capacity, verdict } = parts;
    let focus = focus.min(results.len().saturating_sub(1));
    let metrics = results.get(focus).map(rows).unwrap_or_default();
    let levels = match results.len() {
        0 | 1 => Vec::new(),
        _ => results.iter().enumerate().map(|(index, run)| level(run, index, slo)).collect(),
    };
    let slo = slo.zip(results.get(focus)).map(|(slo, run)| view(&slo.judge(run, true), search, capacity));
    Report { schema: Report::SCHEMA, title, focus, metrics, slo, levels, verdict, results }
}

/// The closing questions as a report has them.
pub fn answers(verdicts: &[Verdict]) -> Vec<Answer> {
    let evidence = |evidence: &crate::verdict::Evidence| {
        let value = evidence.value.0;
        let value = match evidence.unit.as_str() {
            "share" => percent(value),
            "ratio" => quantity(Some(value), ""),
            word @ ("yes" | "no") => word.to_owned(),
            unit => quantity(Some(value), unit),
        };
        format!("{}: {value}", evidence.what)
    };
    let answer = |verdict: &Verdict| Answer {
        question: verdict.question.text().to_owned(),
        // Every view marks an abstention in its own way.
        answer: verdict.text.trim_start_matches("cannot be told: ").to_owned(),
        evidence: verdict
            .evidence
            .iter()
            .map(evidence)
            .chain(verdict.missing.iter().map(|missing| format!("missing: {missing}")))
            .collect(),
        abstains: verdict.answer.is_none(),
    };
    verdicts.iter().map(answer).collect()
}

/// Metrics that the terminal's table has; files and page have all.
const MAIN: [Metric; 10] = [
    Metric::Ttft,
    Metric::Ttfat,
    Metric::E2e,
    Metric::TtftSent,
    Metric::E2eSent,
    Metric::Itl,
    Metric::TbtMax,
    Metric::Tpot,
    Metric::OutputSpeed,
    Metric::PrefillSpeed,
];

/// A run's metrics as rows, then its rates. What no call has is left out.
pub fn rows(results: &Results) -> Vec<MetricRow> {
    let table = Table::full(results);
    let seen = table.metrics.iter().filter(|summary| summary.calls + summary.failed > 0);
    let mut rows: Vec<MetricRow> =
        seen.map(row).filter(|row| row.p50.is_some() || row.mean.is_some()).collect();
    let run = &table.run;
    let rates = [
        (
            "output throughput",
            "Output tokens delivered in the window, over its length.",
            "tok/s",
            &run.output_tokens_per_s,
        ),
        (
            "total throughput",
            "Output tokens, and prompt tokens of calls whose first token came in the window, over its length.",
            "tok/s",
            &run.total_tokens_per_s,
        ),
        (
            "calls finished",
            "Calls that finished in the window, over its length.",
            "calls/s",
            &run.finished_per_s,
        ),
        (
            "calls offered",
            "Calls that the schedule wanted in the window, over its length.",
            "calls/s",
            &run.offered_per_s,
        ),
    ];
    rows.extend(rates.map(|(name, definition, unit, estimate)| rate(name, definition, unit, estimate)));
    let mut errors =
        rate("errors", "Failed calls over calls of the window that ended.", "%", &run.error_rate);
    errors.mean = errors.mean.map(|share| share * 100.0);
    errors.ci95 = run.error_rate_between.map(|[low, high]| Interval {
        of: "share".to_owned(),
        low: low.0 * 100.0,
        high: high.0 * 100.0,
    });
    rows.push(errors);
    rows
}

fn row(summary: &Summary) -> MetricRow {
    let definition = summary.metric.definition();
    let judged = &summary.judged;
    let at = |percent| judged.percentile(percent).and_then(Estimate::value);
    let withheld = judged.percentiles.iter().find_map(|(at, estimate)| match estimate {
        Estimate::Withheld { withheld, .. } if [50.0, 90.0, 95.0, 99.0].contains(at) => {
            Some(format!("p{at} is not given: {withheld}."))
        }
        _ => None,
    });
    let ci95 = [("p95", 95.0), ("p50", 50.0)].into_iter().find_map(|(of, percent)| {
        let interval = judged.percentile(percent)?.interval()?;
        Some(Interval { of: of.to_owned(), low: interval.low.0, high: interval.high.0 })
    });
    let absent = (summary.absent > 0).then(|| {
        format!("{} without it, for lack of a boundary.", counted(summary.absent as u64, "call", "calls"))
    });
    let notes: Vec<String> = withheld.into_iter().chain(absent).collect();
    MetricRow {
        name: name(summary.metric),
        definition: format!(
            "{} ({} to {}.)",
            definition.meaning,
            boundary(definition.from),
            boundary(definition.to)
        ),
        unit: unit(summary.unit).to_owned(),
        from: match definition.from {
            Boundary::Intended => Origin::Intended,
            Boundary::Sent => Origin::Sent,
            _ => Origin::Neither,
        },
        main: MAIN.contains(&summary.metric),
        n: (summary.values + summary.failed) as u64,
        failed: summary.failed as u64,
        mean: judged.mean.value(),
        p50: at(50.0),
        p90: at(90.0),
        p95: at(95.0),
        p99: at(99.0),
        max: judged.max.value(),
        ci95,
        note: (!notes.is_empty()).then(|| notes.join(" ")),
    }
}

/// A metric's name as tables print it: `ttft_sent` as `TTFT sent`.
fn name(metric: Metric) -> String {
    let short = ["ttft", "ttfat", "itl", "tbt", "tpot", "e2e"];
    let words = metric.name().split('_');
    let words: Vec<String> =
        words.map(|word| if short.contains(&word) { word.to_uppercase() } else { word.to_owned() }).collect();
    words.join(" ")
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Ms => "ms",
        Unit::TokensPerS => "tok/s",
    }
}

fn boundary(boundary: Boundary) -> &'static str {
    match boundary {
        Boundary::Intended => "Intended",
        Boundary::Sent => "Sent",
        Boundary::Headers => "head read",
        Boundary::FirstByte => "first byte of the body",
        Boundary::FirstToken => "first token",
        Boundary::FirstAnswerToken => "first answer token",
        Boundary::ChunkBefore => "Chunk before",
        Boundary::Chunk => "chunk",
        Boundary::LastToken => "last token",
        Boundary::LastByte => "last byte",
        Boundary::ServerBegin => "The server's own begin",
        Boundary::ServerEnd => "end",
    }
}

fn rate(name: &str, definition: &str, unit: &str, estimate: &Estimate) -> MetricRow {
    let (n, note) = match estimate {
        Estimate::Given { samples, .. } => (*samples, None),
        Estimate::Withheld { samples, withheld } => (*samples, Some(withheld.clone())),
    };
    let ci95 = estimate.interval().map(|interval| Interval {
        of: "mean".to_owned(),
        low: interval.low.0,
        high: interval.high.0,
    });
    MetricRow {
        name: name.to_owned(),
        definition: definition.to_owned(),
        unit: unit.to_owned(),
        from: Origin::Neither,
        main: true,
        n: n as u64,
        mean: estimate.value(),
        ci95,
        note,
        ..MetricRow::default()
    }
}

fn level(run: &Results, index: usize, slo: Option<&Slo>) -> LevelRow {
    let rules = metrics::rules(run);
    let p95 = |metric| metrics::pool(run, metric, rules).estimate(Statistic::Percentile(95.0)).value();
    let figures = metrics::run::figures(run);
    let (load, load_unit) = match &run.pacing {
        Pacing::Closed { users, .. } => (*users as f64, "users"),
        Pacing::Open { mean_per_s: Some(mean), .. } => (*mean, "requests/s"),
        Pacing::Open { mean_per_s: None, .. } => (index as f64 + 1.0, "run"),
    };
    LevelRow {
        load,
        load_unit: load_unit.to_owned(),
        throughput: figures.output_tokens_per_s.value(),
        ttft_p95: p95(Metric::Ttft),
        itl_p95: p95(Metric::Itl),
        errors: figures.error_rate.value(),
        n: figures.outcomes.iter().filter(|(class, _)| *class != "in_flight").map(|(_, n)| *n as u64).sum(),
        passes: slo.and_then(|slo| met(slo.judge(run, false).met)),
        void: run.health.void.clone(),
    }
}

fn met(met: Met) -> Option<bool> {
    match met {
        Met::Yes => Some(true),
        Met::No => Some(false),
        Met::Unknown => None,
    }
}

fn view(judgement: &Judgement, search: Option<&search::Answer>, capacity: Option<&Capacity>) -> SloView {
    let finding = search.and_then(|search| search.stage.as_ref()).or(judgement.stage.as_ref());
    let mut evidence: Vec<String> = finding.map(explain).into_iter().collect();
    evidence.extend(search.and_then(|search| search.caveat.clone()));
    evidence.extend(capacity.iter().flat_map(|capacity| capacity.missing.iter().cloned()));
    let capacity_unit = match search.map(|search| search.unit) {
        Some(LoadUnit::Users) => "users",
        Some(LoadUnit::Qps) => "requests/s",
        None => "",
    };
    let load = search.and_then(|search| search.load);
    let ci95 = search.filter(|search| search.low.is_some() || search.high.is_some()).map(|search| Interval {
        of: "capacity".to_owned(),
        low: search.low.map_or(0.0, |low| low.0),
        high: search.high.map_or(f64::INFINITY, |high| high.0),
    });
    let binding = judgement.binding().map(|judged| judged.objective.text.clone());
    SloView {
        objectives: judgement.objectives.iter().map(objective).collect(),
        capacity: load.map(|load| load.0),
        capacity_unit: capacity_unit.to_owned(),
        capacity_ci95: load.and(ci95),
        binds: search.and_then(|search| search.binding.clone()).or(binding),
        binding_stage: finding.and_then(stage_name),
        evidence,
        cost: capacity.iter().flat_map(|capacity| &capacity.quantities).map(cost).collect(),
    }
}

fn objective(judged: &Judged) -> Objective {
    let objective = &judged.objective;
    let (unit, times) = match objective.subject.unit() {
        "share" => ("%", 100.0),
        unit => (unit, 1.0),
    };
    let metric = match objective.subject {
        Subject::Call { metric, statistic: Statistic::Percentile(percent) } => format!("{metric}_p{percent}"),
        _ => objective.text.clone(),
    };
    Objective {
        metric,
        text: objective.text.clone(),
        limit: objective.limit * times,
        unit: unit.to_owned(),
        measured: judged.value.value().map(|value| value * times),
        passes: met(judged.met),
    }
}

fn stage_name(finding: &StageFinding) -> Option<String> {
    match finding {
        StageFinding::Stage { place: Place::Unseen, .. } => None,
        StageFinding::Stage { place, .. } => Some(place.name().to_owned()),
        StageFinding::Failures { .. } | StageFinding::Opaque { .. } => None,
    }
}

/// A finding in a sentence.
fn explain(finding: &StageFinding) -> String {
    match finding {
        StageFinding::Stage { place, excess_ms, share_of_excess, slow, fast, per_token, .. } => {
            let place = match place {
                Place::BeforeSending => "the time before sending",
                Place::Unseen => "what the server does not show",
                Place::Stage(stage) => stage.name(),
            };
            let each = if *per_token { " per token" } else { "" };
            format!(
                "The {} spend {}{each} more in {place} than the {}, in the mean: {} of all their excess.",
                counted(slow.calls as u64, "slow call", "slow calls"),
                duration(excess_ms.0),
                counted(fast.calls as u64, "fast one", "fast ones"),
                percent(share_of_excess.0)
            )
        }
        StageFinding::Failures { by_class } => {
            let classes: Vec<String> = by_class.iter().map(|(class, n)| format!("{n} {class}")).collect();
            format!(
                "The slow calls are those that failed ({}); their stages are not known.",
                classes.join(", ")
            )
        }
        StageFinding::Opaque { reason } => format!("No stage can be named: {reason}."),
    }
}

fn cost(figure: &crate::capacity::Quantity) -> (String, String) {
    let value = quantity(Some(figure.value.0), &figure.unit);
    let end = |end: Option<Real>, open: &str| end.map_or(open.to_owned(), |end| value_text(end.0));
    let interval = match (figure.low, figure.high) {
        (None, None) => String::new(),
        (low, high) => format!(" ({} – {})", end(low, "0"), end(high, "∞")),
    };
    (figure.name.clone(), format!("{value}{interval}"))
}
