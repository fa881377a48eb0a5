//! The page's upper part: what was measured, whether it counts, the figures one looks for first, and the answers.

use std::fmt::Write;

use super::open_section;
use crate::report::number::{count, duration, interval, percent, plain, quantity, value_text};
use crate::report::table::{endpoint, pacing, window};
use crate::report::{MetricRow, Origin, Report};
use crate::results::Results;

use super::escape::{short, text};

/// Entries of a list from outside that are shown.
const LIST_MAX: usize = 16;

pub fn header(out: &mut String, report: &Report, results: &Results) {
    let target = &results.target;
    let _ = write!(
        out,
        "<header><p class=\"brand\">Firstlight <span>load report</span></p><h1>{}</h1>",
        text(&report.title)
    );
    let void = &results.health.void;
    if void.is_empty() {
        out.push_str("<p class=\"state ok\"><b>Counts</b> The client kept up; nothing voids this run.</p>");
    } else {
        out.push_str("<div class=\"state void\" role=\"alert\"><b>Void</b> This run does not count.<ul>");
        for reason in void.iter().take(LIST_MAX) {
            let _ = write!(out, "<li>{}</li>", text(reason));
        }
        out.push_str("</ul></div>");
    }
    out.push_str("<dl class=\"facts\">");
    let began = jiff::Timestamp::from_second(i64::try_from(results.began_unix_s).unwrap_or(0))
        .map_or_else(|_| "–".to_owned(), |began| began.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
    let facts = [
        ("Target", format!("<span class=\"mono\">{}</span>", text(&target.url))),
        (
            "Model",
            format!(
                "{} <small>{}, {}</small>",
                text(&target.model),
                text(&target.kind),
                text(&endpoint(results))
            ),
        ),
        ("Workload", format!("{} <small>seed {}</small>", text(&results.workload), results.seed)),
        ("Pacing", text(&pacing(&results.pacing))),
        ("Window", text(&window(results))),
        ("Began", format!("{began} <small>{}</small>", text(&results.tool))),
        ("Calls", outcomes(results)),
    ];
    for (name, value) in facts {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl></header>");
}

fn outcomes(results: &Results) -> String {
    let classes = results.outcomes.iter().take(LIST_MAX);
    let mut parts: Vec<String> =
        classes.map(|(class, n)| format!("{} {}", count(*n), short(class, 40))).collect();
    if results.samples_dropped > 0 {
        parts.push(format!("<small>samples of {} not kept</small>", count(results.samples_dropped)));
    }
    parts.join(", ")
}

/// The figures one looks for first.
pub fn figures(out: &mut String, report: &Report, results: &Results) {
    out.push_str("<div class=\"figures\">");
    for name in ["TTFT", "ITL", "E2E"] {
        let named = |row: &&MetricRow| {
            row.name.eq_ignore_ascii_case(name) && row.p50.is_some() && row.from != Origin::Sent
        };
        if let Some(row) = report.metrics.iter().find(named) {
            let _ = write!(
                out,
                "<div class=\"figure\"><p>{name} <small>p95</small></p><b>{}</b><p class=\"sub\"><span>p50 {}</span> <span>p99 {}</span></p></div>",
                big(&quantity(row.p95, &row.unit)),
                text(&quantity(row.p50, &row.unit)),
                text(&quantity(row.p99, &row.unit))
            );
        }
    }
    for row in report.metrics.iter().filter(|row| row.p50.is_none() && row.mean.is_some()).take(2) {
        let n = if row.n > 0 { format!("from {} calls", count(row.n)) } else { String::new() };
        let _ = write!(
            out,
            "<div class=\"figure\"><p>{}</p><b>{}</b><p class=\"sub\">{n}</p></div>",
            short(&row.name, 40),
            big(&quantity(row.mean, &row.unit))
        );
    }
    let counted =
        results.samples.iter().filter(|sample| crate::report::tally::counts(sample, results.window));
    let (n, failed) = counted
        .fold((0u64, 0u64), |(n, failed), sample| (n + 1, failed + u64::from(sample.outcome.is_failure())));
    if n > 0 {
        let _ = write!(
            out,
            "<div class=\"figure{}\"><p>Errors</p><b>{}</b><p class=\"sub\">{} of {} calls</p></div>",
            if failed > 0 { " alarm" } else { "" },
            big(&percent(failed as f64 / n as f64)),
            count(failed),
            count(n)
        );
    }
    out.push_str("</div>");
}

/// A number with its unit set smaller.
fn big(quantity: &str) -> String {
    match quantity.split_once(' ') {
        Some((value, unit)) => format!("{}<small> {}</small>", text(value), short(unit, 20)),
        None => text(quantity),
    }
}

pub fn slo(out: &mut String, report: &Report) {
    let Some(slo) = &report.slo else { return };
    open_section(out, "slo", "Service-level objectives", "");
    out.push_str("<div class=\"slo\">");
    if let Some(capacity) = slo.capacity {
        let unit = short(&slo.capacity_unit, 20);
        let ci = slo.capacity_ci95.as_ref().map_or_else(String::new, |ci| {
            format!("95 % interval {}", text(&interval(ci.low, ci.high, &slo.capacity_unit)))
        });
        let _ = write!(
            out,
            "<div class=\"capacity\"><b>{}</b><p>{unit} @ SLO</p><p class=\"sub\">{ci}</p></div>",
            plain(capacity)
        );
    }
    out.push_str("<div class=\"rest\"><p class=\"sub\">As measured in the run that is shown in detail:</p><ul class=\"objectives\">");
    for objective in slo.objectives.iter().take(LIST_MAX) {
        let (class, word) = match objective.passes {
            Some(true) => ("good", "met"),
            Some(false) => ("bad", "not met"),
            None => ("unknown", "unknown"),
        };
        let _ = write!(
            out,
            "<li><span class=\"{class}\">{word}</span><code>{}</code><span class=\"num\">{}</span></li>",
            short(&objective.text, 80),
            text(&quantity(objective.measured, &objective.unit))
        );
    }
    out.push_str("</ul>");
    if let Some(binds) = &slo.binds {
        let stage = slo.binding_stage.as_ref().map_or_else(
            || "in a stage that cannot be seen".to_owned(),
            |stage| format!("in the stage <b>{}</b>", short(stage, 60)),
        );
        let _ = write!(out, "<p>First to break: <code>{}</code>, {stage}.</p>", short(binds, 80));
    }
    evidence(out, &slo.evidence);
    if !slo.cost.is_empty() {
        out.push_str("<dl class=\"cost\">");
        for (name, value) in slo.cost.iter().take(LIST_MAX) {
            let _ = write!(out, "<div><dt>{}</dt><dd>{}</dd></div>", short(name, 80), short(value, 80));
        }
        out.push_str("</dl>");
    }
    out.push_str("</div></div></section>");
}

pub fn verdict(out: &mut String, report: &Report) {
    if report.verdict.is_empty() {
        return;
    }
    open_section(out, "answers", "Four questions", "");
    out.push_str("<div class=\"answers\">");
    for answer in report.verdict.iter().take(LIST_MAX) {
        let abstains = if answer.abstains { " abstains" } else { "" };
        let mark = if answer.abstains { "<span class=\"unknown\">cannot tell</span> " } else { "" };
        let _ = write!(
            out,
            "<article class=\"answer{abstains}\"><h3>{}</h3><p>{mark}{}</p>",
            text(&answer.question),
            text(&answer.answer)
        );
        evidence(out, &answer.evidence);
        out.push_str("</article>");
    }
    out.push_str("</div></section>");
}

fn evidence(out: &mut String, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    out.push_str("<ul class=\"evidence\">");
    for line in lines.iter().take(LIST_MAX) {
        let _ = write!(out, "<li>{}</li>", text(line));
    }
    out.push_str("</ul>");
}

/// The client's own state, as pairs of a name and a value.
pub fn health(results: &Results) -> Vec<(&'static str, String)> {
    let health = &results.health;
    let ms = |ns: u64| duration(ns as f64 / 1e6);
    let [p50, p99, worst] = health.lag_ns.map(ms);
    vec![
        ("Sent late, median", p50),
        ("Sent late, p99", p99),
        ("Sent late, worst", worst),
        ("Longest stall of the client", ms(health.stall_ns)),
        ("Processor time used by the client", format!("{} cores", value_text(health.cpu_cores))),
        (
            "Whole machine busy",
            health.machine_busy.map_or_else(|| "not known".to_owned(), super::escape::percent),
        ),
        ("Connection errors", count(health.connection_errors)),
        ("Connections tried again", count(health.retries)),
    ]
}
