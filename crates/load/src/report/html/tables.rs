//! The page's tables: metrics, errors, the client's health, and the definition of everything.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::escape::{short, text};
use super::{ROWS_MAX, open_section, summary};
use crate::report::number::{count, interval, quantity};
use crate::report::phases::{self, Phase};
use crate::report::{MetricRow, Origin, Report, tally};
use crate::results::Results;

pub fn metrics(out: &mut String, report: &Report) {
    open_section(
        out,
        "metrics",
        "Metrics",
        "Failed calls count as infinite: a percentile that reaches them is ∞.",
    );
    const GROUPS: [(Origin, &str); 3] = [
        (Origin::Intended, "From the intended time"),
        (Origin::Sent, "From the time of sending"),
        (Origin::Neither, "Within the answer"),
    ];
    let rows: Vec<&MetricRow> = report.metrics.iter().take(ROWS_MAX).collect();
    let distributions = |origin| rows.iter().filter(move |row| row.from == origin && row.p50.is_some());
    if GROUPS.iter().any(|(origin, _)| distributions(*origin).next().is_some()) {
        out.push_str(
            "<div class=\"scroll\"><table><thead><tr><th class=\"l\">metric<th>n<th>failed<th>mean<th>p50<th>p90<th>p95<th>p99\
             <th>max<th>95 % interval</tr></thead>",
        );
        for (origin, title) in GROUPS {
            if distributions(origin).next().is_none() {
                continue;
            }
            let _ =
                write!(out, "<tbody><tr class=\"group\"><th class=\"l\" colspan=\"10\">{title}</th></tr>");
            distributions(origin).for_each(|row| distribution(out, row));
            out.push_str("</tbody>");
        }
        out.push_str("</table></div>");
    }
    let rates: Vec<&&MetricRow> = rows.iter().filter(|row| row.p50.is_none()).collect();
    if !rates.is_empty() {
        out.push_str("<div class=\"scroll\"><table class=\"rates\"><thead><tr><th class=\"l\">rate<th>value<th>n<th>95 % interval<th class=\"l\"></tr></thead><tbody>");
        for row in rates {
            let _ = write!(
                out,
                "<tr><th class=\"l\">{}<td>{}<td>{}<td>{}<td class=\"l note\">{}</tr>",
                short(&row.name, 60),
                text(&quantity(row.mean, &row.unit)),
                count(row.n),
                ci(row),
                note(row)
            );
        }
        out.push_str("</tbody></table></div>");
    }
    out.push_str("</section>");
}

fn distribution(out: &mut String, row: &MetricRow) {
    let minor = if row.main { "" } else { " class=\"minor\"" };
    let failed = if row.failed > 0 {
        format!("<span class=\"bad\">{}</span>", count(row.failed))
    } else {
        "0".to_owned()
    };
    let _ = write!(
        out,
        "<tr{minor}><th class=\"l\" title=\"{}\">{}<td>{}<td>{failed}",
        text(&row.definition),
        short(&row.name, 60),
        count(row.n)
    );
    for value in [row.mean, row.p50, row.p90, row.p95, row.p99, row.max] {
        let infinite = if value.is_some_and(f64::is_infinite) { " class=\"bad\"" } else { "" };
        let _ = write!(out, "<td{infinite}>{}", text(&quantity(value, &row.unit)));
    }
    let _ = write!(out, "<td>{}</tr>", ci(row));
}

fn ci(row: &MetricRow) -> String {
    row.ci95.as_ref().map_or_else(String::new, |ci| {
        let of =
            if row.p50.is_some() { format!("<small>{}</small> ", short(&ci.of, 12)) } else { String::new() };
        format!("{of}{}", text(&interval(ci.low, ci.high, &row.unit)))
    })
}

fn note(row: &MetricRow) -> String {
    row.note.as_deref().map_or_else(String::new, text)
}

pub fn errors_and_health(out: &mut String, results: &Results) {
    open_section(out, "trust", "Errors, counts, and the client itself", "");
    out.push_str("<div class=\"two\"><div><h3>Errors by class <small>whole run</small></h3>");
    let errors = tally::errors(results);
    if errors.is_empty() {
        out.push_str("<p class=\"empty\">No call failed.</p>");
    } else {
        out.push_str("<table class=\"errors\"><tbody>");
        for class in &errors {
            let _ = write!(
                out,
                "<tr class=\"group\"><td>{}<th class=\"l\">{}</tr>",
                count(class.n),
                text(&class.class)
            );
            for (detail, n) in &class.details {
                let _ = write!(out, "<tr><td>{}<td class=\"l mono\">{}</tr>", count(*n), text(detail));
            }
            if class.others > 0 && !class.details.is_empty() {
                let _ = write!(
                    out,
                    "<tr><td>{}<td class=\"l\">other, or nothing was said</tr>",
                    count(class.others)
                );
            }
        }
        out.push_str("</tbody></table>");
    }
    let usage = tally::usage(results);
    let class = if usage.differing > 0 { " class=\"warn\"" } else { "" };
    let _ = write!(out, "<h3>Token counts</h3><p{class}>{}.</p></div>", text(&usage.sentence()));
    out.push_str("<div><h3>The client</h3><table><tbody>");
    for (name, value) in summary::health(results) {
        let _ = write!(out, "<tr><th class=\"l\">{name}<td>{value}</tr>");
    }
    out.push_str("</tbody></table></div></div></section>");
}

pub fn definitions(out: &mut String, report: &Report) {
    open_section(
        out,
        "definitions",
        "Definitions",
        "A metric is the time between two named boundaries. All times are read from one monotonic clock at the client.",
    );
    out.push_str("<dl class=\"definitions\">");
    for row in report.metrics.iter().take(ROWS_MAX) {
        let from = match row.from {
            Origin::Intended => ", from the intended time",
            Origin::Sent => ", from the time of sending",
            Origin::Neither => "",
        };
        let unit = if row.unit == "ms" { String::new() } else { format!(", {}", short(&row.unit, 20)) };
        let note = row.note.as_deref().map_or_else(String::new, |note| format!(" <em>{}</em>", text(note)));
        let _ = write!(
            out,
            "<div><dt>{}<small>{from}{unit}</small></dt><dd>{}{note}</dd></div>",
            short(&row.name, 60),
            text(&row.definition),
        );
    }
    out.push_str("</dl><h3>Stages in this report</h3><dl class=\"definitions\">");
    for phase in phases_seen(report) {
        let _ = write!(
            out,
            "<div class=\"{}\"><dt><i></i>{}</dt><dd>{}</dd></div>",
            phase.slug(),
            phase.name(),
            text(phase.meaning())
        );
    }
    out.push_str("</dl>");
    let left_out: BTreeSet<String> = report
        .focused()
        .iter()
        .flat_map(|results| &results.samples)
        .filter_map(|sample| sample.server.left_out.as_deref().map(text))
        .take(1_000)
        .collect();
    for words in left_out.iter().take(4) {
        let _ = write!(out, "<p class=\"caveat\">What the server's account leaves out: {words}.</p>");
    }
    let _ = write!(
        out,
        "<footer>Everything in this page is in it: it loads nothing and sends nothing. Report schema {}.</footer></section>",
        report.schema
    );
}

/// The phases that any chart of the focused run may show.
fn phases_seen(report: &Report) -> BTreeSet<Phase> {
    let mut seen = BTreeSet::new();
    let Some(results) = report.focused() else { return seen };
    for sample in &results.samples {
        seen.extend(phases::spans(sample, results.window.run_ns).iter().map(|span| span.phase));
        if let Some(parts) = phases::breakdown(sample) {
            seen.extend(parts.to_first_token.iter().chain(&parts.after_it).map(|(phase, _)| *phase));
        }
    }
    seen
}
