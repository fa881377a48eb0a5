//! The calls as a table, one line each; `docs/load-report.md` describes the columns.

use std::io::Write;

use anyhow::{Context, Result};
use ledger::Stage;

use crate::report::number::printable;
use crate::report::{Report, tally};
use crate::sample::{Channel, CountSource, Sample};

/// The columns before those of the server's stages.
pub const COLUMNS: [&str; 27] = [
    "run",
    "load",
    "call",
    "session",
    "body",
    "counts",
    "outcome",
    "detail",
    "status",
    "finish_reason",
    "retries",
    "intended_ns",
    "sent_ns",
    "headers_ns",
    "first_byte_ns",
    "first_token_ns",
    "first_answer_token_ns",
    "last_token_ns",
    "last_byte_ns",
    "chunks",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "counted_tokens",
    "count_source",
    "server",
];

/// The stages' columns: `first.queue_ns` until the first token, `after.queue_ns` from then on.
fn stage_columns() -> impl Iterator<Item = String> {
    let named =
        |when: &'static str| Stage::ALL.iter().map(move |stage| format!("{when}.{}_ns", stage.name()));
    named("first").chain(named("after"))
}

/// Writes a line for each call of each run. What was not seen is an empty field.
pub fn write(report: &Report, to: impl Write) -> Result<()> {
    let mut writer = ::csv::Writer::from_writer(to);
    let columns = COLUMNS.iter().map(|name| (*name).to_owned()).chain(stage_columns());
    writer.write_record(columns)?;
    for (run, results) in report.results.iter().enumerate() {
        let load = report.levels.get(run).map_or_else(String::new, |level| level.load.to_string());
        for sample in &results.samples {
            let counts = tally::counts(sample, results.window);
            let mut fields = vec![run.to_string(), load.clone()];
            fields.extend(call_fields(sample, counts));
            fields.extend(stage_fields(&sample.server.to_first_token));
            fields.extend(stage_fields(&sample.server.after_it));
            writer.write_record(fields)?;
        }
    }
    writer.flush().context("the table of calls cannot be written")
}

fn call_fields(sample: &Sample, counts: bool) -> Vec<String> {
    let answer = sample.chunks.iter().find(|chunk| chunk.channel == Channel::Answer);
    let tokens = &sample.tokens;
    let source = match tokens.source {
        CountSource::Server => "server",
        CountSource::Usage => "usage",
        CountSource::Chunks => "chunks",
    };
    vec![
        sample.call.0.to_string(),
        optional(sample.session),
        text(&sample.body),
        u8::from(counts).to_string(),
        sample.outcome.class().to_owned(),
        text(&tally::detail(sample).unwrap_or_default()),
        optional(sample.status),
        text(sample.finish_reason.as_deref().unwrap_or_default()),
        sample.retries.to_string(),
        sample.intended_ns.to_string(),
        optional(sample.sent_ns),
        optional(sample.headers_ns),
        optional(sample.first_byte_ns),
        optional(sample.chunks.first().map(|chunk| chunk.at_ns)),
        optional(answer.map(|chunk| chunk.at_ns)),
        optional(sample.chunks.last().map(|chunk| chunk.at_ns)),
        optional(sample.last_byte_ns),
        sample.chunks.len().to_string(),
        optional(tokens.prompt),
        optional(tokens.cached),
        optional(tokens.output),
        optional(tokens.reasoning),
        tokens.counted.to_string(),
        source.to_owned(),
        text(&sample.server.kind),
    ]
}

fn stage_fields(account: &[(Stage, u64)]) -> impl Iterator<Item = String> {
    Stage::ALL.iter().map(|stage| {
        let mut found = account.iter().filter(|(named, _)| named == stage).map(|(_, ns)| *ns).peekable();
        if found.peek().is_some() { found.sum::<u64>().to_string() } else { String::new() }
    })
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Text from outside. Spreadsheets take what begins with one of these characters for a formula, and run it; a quote before
/// it makes it text (OWASP, "CSV Injection").
fn text(value: &str) -> String {
    let value = printable(value, 300);
    let formula = value.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if formula { format!("'{value}") } else { value }
}
