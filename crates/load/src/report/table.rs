//! The report in a terminal of 100 columns.

use std::fmt::Write;

use crate::report::number::{
    count, counted, duration, interval, percent, plain, printable, quantity, value_text,
};
use crate::report::{LevelRow, MetricRow, Origin, Report, SloView, tally};
use crate::results::Results;
use crate::schedule::Pacing;

/// Columns that lines are made for; text from outside is wrapped or cut to it.
pub const WIDTH: usize = 100;

/// The report as text, each line at most [`WIDTH`] columns wide; `colour` adds ANSI colours.
pub fn table(report: &Report, colour: bool) -> String {
    let paint = Paint { colour };
    let mut out = String::new();
    let Some(results) = report.focused() else {
        return "no run to report\n".to_owned();
    };
    void(&mut out, results, paint);
    header(&mut out, report, results, paint);
    levels(&mut out, &report.levels, paint);
    metrics(&mut out, &report.metrics, paint);
    errors(&mut out, results, paint);
    wrapped(&mut out, "Tokens    ", &tally::usage(results).sentence());
    wrapped(&mut out, "Client    ", &health_line(results));
    if let Some(slo) = &report.slo {
        objectives(&mut out, slo, paint);
    }
    verdict(&mut out, report, paint);
    out
}

#[derive(Clone, Copy)]
struct Paint {
    colour: bool,
}

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
    fn bad(self, text: &str) -> String {
        self.with("1;31", text)
    }
    fn good(self, text: &str) -> String {
        self.with("32", text)
    }
    fn head(self, text: &str) -> String {
        self.with("1", text)
    }
    fn dim(self, text: &str) -> String {
        self.with("2", text)
    }
}

fn void(out: &mut String, results: &Results, paint: Paint) {
    if results.health.void.is_empty() {
        return;
    }
    let _ = writeln!(out, "{}", paint.bad("VOID: this run does not count"));
    for reason in &results.health.void {
        for line in wrap(&printable(reason, 400), WIDTH - 2) {
            let _ = writeln!(out, "  {}", paint.bad(&line));
        }
    }
    out.push('\n');
}

fn header(out: &mut String, report: &Report, results: &Results, paint: Paint) {
    let _ = writeln!(out, "{}", paint.head(&printable(&report.title, WIDTH - 1)));
    let target = &results.target;
    let line = format!("{} at {} ({}, {})", target.model, target.url, target.kind, endpoint(results));
    wrapped(out, "Target    ", &line);
    wrapped(out, "Workload  ", &format!("{}, seed {}", results.workload, results.seed));
    wrapped(out, "Pacing    ", &format!("{}; window {}", pacing(&results.pacing), window(results)));
    let mut calls: Vec<String> =
        results.outcomes.iter().map(|(class, n)| format!("{} {class}", count(*n))).collect();
    if results.samples_dropped > 0 {
        calls.push(format!("samples of the last {} are not kept", count(results.samples_dropped)));
    }
    wrapped(out, "Calls     ", &calls.join(", "));
    if results.held > 0 {
        let held = counted(results.held, "call", "calls");
        wrapped(
            out,
            "Held      ",
            &format!("{held} waited for the limit on calls under way, measured from when intended"),
        );
    }
    if let Some(means) = &results.server_means {
        let stages = means.stages.iter().map(|(stage, ns)| format!("{stage} {}", duration(*ns as f64 / 1e6)));
        wrapped(out, "Server    ", &format!("{} ({})", stages.collect::<Vec<_>>().join(", "), means.label));
    }
    out.push('\n');
}

/// `chat, streamed`.
pub fn endpoint(results: &Results) -> String {
    let streamed = if results.target.stream { "streamed" } else { "not streamed" };
    format!("{}, {streamed}", results.target.endpoint)
}

/// How calls were paced, in words.
pub fn pacing(pacing: &Pacing) -> String {
    match pacing {
        Pacing::Open { description, mean_per_s: Some(mean) } => {
            format!("open loop, {description}, {} calls/s on average", value_text(*mean))
        }
        Pacing::Open { description, mean_per_s: None } => format!("open loop, {description}"),
        Pacing::Closed { users, think_ms } if *think_ms > 0.0 => {
            let users = counted(*users as u64, "user", "users");
            format!("closed loop, {users}, {} of thinking", quantity(Some(*think_ms), "ms"))
        }
        Pacing::Closed { users, .. } => {
            format!("closed loop, {} without thinking", counted(*users as u64, "user", "users"))
        }
    }
}

/// The part of the run that counts, in words.
pub fn window(results: &Results) -> String {
    let seconds = |ns: u64| value_text(ns as f64 / 1e9);
    let window = results.window;
    let (from, to) = (seconds(window.from_ns), seconds(window.to_ns));
    format!("{from} s to {to} s of {} s", seconds(window.run_ns))
}

fn levels(out: &mut String, levels: &[LevelRow], paint: Paint) {
    let Some(first) = levels.first() else { return };
    let load = printable(&first.load_unit, 12);
    let line = format!(
        "{load:>12}{:>10}{:>16}{:>12}{:>12}{:>10}   objectives",
        "calls", "tokens/s out", "TTFT p95", "ITL p95", "errors"
    );
    let _ = writeln!(out, "{}", paint.dim(&line));
    for level in levels {
        let verdict = match (level.void.is_empty(), level.passes) {
            (false, _) => paint.bad("void"),
            (true, Some(true)) => paint.good("met"),
            (true, Some(false)) => paint.bad("not met"),
            (true, None) => paint.dim("–"),
        };
        let _ = writeln!(
            out,
            "{:>12}{:>10}{:>16}{:>12}{:>12}{:>10}   {verdict}",
            plain(level.load),
            count(level.n),
            quantity(level.throughput, ""),
            quantity(level.ttft_p95, "ms"),
            quantity(level.itl_p95, "ms"),
            level.errors.map_or_else(|| "–".to_owned(), percent),
        );
    }
    out.push('\n');
}

fn metrics(out: &mut String, rows: &[MetricRow], paint: Paint) {
    const GROUPS: [(Origin, &str); 3] = [
        (Origin::Intended, "from intended"),
        (Origin::Sent, "from sent"),
        (Origin::Neither, "within the answer"),
    ];
    for (origin, title) in GROUPS {
        let group: Vec<&MetricRow> =
            rows.iter().filter(|row| row.main && row.from == origin && row.p50.is_some()).collect();
        if group.is_empty() {
            continue;
        }
        let head = format!(
            "{title:<19}{:>7}{:>7}{:>9}{:>9}{:>9}{:>9}{:>9}  95 % interval",
            "n", "failed", "p50", "p90", "p95", "p99", "max"
        );
        let _ = writeln!(out, "{}", paint.dim(&head));
        for row in group {
            distribution(out, row, paint);
        }
        out.push('\n');
    }
    let rates = rows.iter().filter(|row| row.main && row.p50.is_none());
    for row in rates.clone() {
        let interval = row.ci95.as_ref().map(|ci| format!("  (95 %: {})", interval(ci.low, ci.high, "")));
        let name = printable(&row.name, 32);
        let value = quantity(row.mean, &printable(&row.unit, 20));
        let line = format!("{name:<34}{value:<22}{:>10}{}", counted_n(row.n), interval.unwrap_or_default());
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if rates.count() > 0 {
        out.push('\n');
    }
}

fn counted_n(n: u64) -> String {
    if n == 0 { String::new() } else { format!("n {}", count(n)) }
}

/// A count of at most seven characters, so that columns stay columns.
fn short_count(n: u64) -> String {
    if n < 100_000 {
        count(n)
    } else if n < 1_000_000 {
        format!("{}k", n / 1_000)
    } else {
        format!("{}M", count(n / 1_000_000))
    }
}

fn distribution(out: &mut String, row: &MetricRow, paint: Paint) {
    let unit = printable(&row.unit, 12);
    // A unit that is not a time would not fit into the cells, so it stands by the name.
    let name = if unit == "ms" { row.name.clone() } else { format!("{} {unit}", row.name) };
    let cell_unit = if unit == "ms" { "ms" } else { "" };
    let cell = |value: Option<f64>| {
        let text = format!("{:>9}", quantity(value, cell_unit));
        if value.is_some_and(f64::is_infinite) { paint.bad(&text) } else { text }
    };
    let failed = if row.failed > 0 { short_count(row.failed) } else { String::new() };
    let ci = row.ci95.as_ref().map_or_else(String::new, |ci| {
        format!("  {} {}", printable(&ci.of, 4), interval(ci.low, ci.high, cell_unit))
    });
    let _ = write!(out, "{:<19}{:>7}{failed:>7}", printable(&name, 19), short_count(row.n));
    for value in [row.p50, row.p90, row.p95, row.p99, row.max] {
        out.push_str(&cell(value));
    }
    let _ = writeln!(out, "{}", paint.dim(&ci));
}

fn errors(out: &mut String, results: &Results, paint: Paint) {
    for class in tally::errors(results) {
        let _ = writeln!(out, "{}", paint.bad(&format!("{} {}", count(class.n), class.class)));
        for (detail, n) in &class.details {
            wrapped(out, &format!("{:>8}× ", count(*n)), detail);
        }
        if class.others > 0 && !class.details.is_empty() {
            let _ = writeln!(out, "{:>8}× other", count(class.others));
        }
    }
}

/// The client's own state in a line.
fn health_line(results: &Results) -> String {
    let health = &results.health;
    let [p50, p99, worst] = health.lag_ns.map(|ns| quantity(Some(ns as f64 / 1e6), "ms"));
    let mut line = format!("sent late by {p50} (median), {p99} (p99), {worst} (worst); ");
    let _ = write!(line, "stalled {} at most; ", quantity(Some(health.stall_ns as f64 / 1e6), "ms"));
    let _ = write!(line, "{} cores used", value_text(health.cpu_cores));
    if let Some(busy) = health.machine_busy {
        let _ = write!(line, ", machine {} busy", percent(busy));
    }
    if health.connection_errors + health.retries > 0 {
        let errors = counted(health.connection_errors, "connection error", "connection errors");
        let _ = write!(line, "; {errors}, {}", counted(health.retries, "retry", "retries"));
    }
    line
}

fn objectives(out: &mut String, slo: &SloView, paint: Paint) {
    out.push('\n');
    for objective in &slo.objectives {
        let mark = match objective.passes {
            Some(true) => paint.good("met    "),
            Some(false) => paint.bad("not met"),
            None => paint.dim("unknown"),
        };
        let measured = quantity(objective.measured, &printable(&objective.unit, 12));
        let _ = writeln!(out, "Objective {mark}  {:<40} {measured}", printable(&objective.text, 40));
    }
    let unit = printable(&slo.capacity_unit, 16);
    if let Some(capacity) = slo.capacity {
        let ci = slo
            .capacity_ci95
            .as_ref()
            .map_or_else(String::new, |ci| format!(" (95 % interval {})", interval(ci.low, ci.high, &unit)));
        let _ = writeln!(out, "{}{ci}", paint.head(&format!("{} {unit} @ SLO", plain(capacity))));
    }
    if let Some(binds) = &slo.binds {
        let stage = slo.binding_stage.as_ref().map_or("no stage that can be seen".to_owned(), |stage| {
            format!("the stage {}", printable(stage, 40))
        });
        wrapped(out, "Binds     ", &format!("{binds}, in {stage}"));
    }
    for line in &slo.evidence {
        wrapped(out, "          ", line);
    }
    for (name, value) in &slo.cost {
        let _ = writeln!(out, "          {:<40} {}", printable(name, 40), printable(value, 40));
    }
}

fn verdict(out: &mut String, report: &Report, paint: Paint) {
    for answer in &report.verdict {
        out.push('\n');
        let _ = writeln!(out, "{}", paint.head(&printable(&answer.question, WIDTH)));
        let prefix = if answer.abstains { "  cannot tell: " } else { "  " };
        wrapped(out, prefix, &answer.answer);
        for line in &answer.evidence {
            wrapped(out, "  · ", line);
        }
    }
}

/// Writes text from outside behind `prefix`, and its further lines under its beginning.
fn wrapped(out: &mut String, prefix: &str, text: &str) {
    let columns = prefix.chars().count();
    for (index, line) in wrap(&printable(text, 1_000), WIDTH - columns).iter().enumerate() {
        let lead = if index == 0 { prefix.to_owned() } else { " ".repeat(columns) };
        let _ = writeln!(out, "{}", format!("{lead}{line}").trim_end());
    }
}

/// Lines of at most `width` characters, broken at spaces where there are any.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let line = lines.last_mut().expect("there is always one line");
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            if used + gap + word.len() <= width {
                if gap > 0 {
                    line.push(' ');
                }
                line.extend(word);
                break;
            }
            if used > 0 {
                lines.push(String::new());
                continue;
            }
            line.extend(word.drain(..width.min(word.len())));
            lines.push(String::new());
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}
