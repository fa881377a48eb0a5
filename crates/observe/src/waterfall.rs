//! A request's life in the terminal: to the first token as a waterfall, after it by stage.

use std::fmt::Write;

use ledger::{Cause, Charge, Miss, PromptAccount, Record, Stage};

use crate::duration::human;
use crate::summary::summary;

/// How a waterfall is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Columns of the terminal.
    pub width: usize,
    /// ANSI colours.
    pub colour: bool,
}

const LABEL: usize = 14; // columns of a stage's name
const VALUE: usize = 10; // columns of a duration
const SHARE: usize = 7; // columns of a percentage

/// Draws `record`. Every nanosecond of it is in exactly one line of the two tables; the last line shows the sum.
pub fn waterfall(record: &Record, style: Style) -> String {
    let bar = style.width.saturating_sub(LABEL + VALUE + SHARE + 6).clamp(10, 80);
    let mut out = String::new();
    let first =
        record.tokens.iter().position(|unit| unit.tokens > 0).map_or(record.tokens.len(), |index| index + 1);
    let (before, after) = record.tokens.split_at(first);

    let _ = writeln!(out, "{}  {}  {}", record.id, record.model, summary(record));
    let _ = writeln!(out, "{}", prompt_line(record));

    let opening = merge(before.iter().flat_map(|unit| &unit.gap));
    let opening_ns: u64 = opening.iter().map(|charge| charge.ns).sum();
    let title = if record.ttft_ns.is_some() { "to the first token" } else { "the whole request" };
    let _ = writeln!(out, "\n{title:<width$}{:>VALUE$}", human(opening_ns), width = LABEL + 2);
    let mut offset = 0;
    for charge in &opening {
        draw(&mut out, style, charge, record.e2e_ns, Bar { offset, total: opening_ns, columns: bar });
        offset += charge.ns;
    }

    let mut rest = merge(after.iter().flat_map(|unit| &unit.gap));
    if record.tokens_dropped > 0 {
        rest = subtract(&record.stages, &opening);
    }
    rest.sort_by_key(|charge| charge.stage);
    let rest_ns: u64 = rest.iter().map(|charge| charge.ns).sum();
    if !rest.is_empty() {
        let tokens: usize = record.tokens.iter().map(|unit| unit.tokens).sum::<usize>().saturating_sub(1);
        let title = format!("after it, {tokens} tokens");
        let _ = writeln!(out, "\n{title:<width$}{:>VALUE$}", human(rest_ns), width = LABEL + 2);
        for charge in &rest {
            draw(&mut out, style, charge, record.e2e_ns, Bar { offset: 0, total: rest_ns, columns: bar });
        }
    }
    let sum: u64 = record.stages.iter().map(|charge| charge.ns).sum();
    let relation = if sum == record.e2e_ns { "=" } else { "≠" };
    let _ = writeln!(out, "\nsum of stages {sum} ns {relation} end to end {} ns", record.e2e_ns);
    let hidden = merge(record.hidden.iter());
    if !hidden.is_empty() {
        let list: Vec<_> =
            hidden.iter().map(|charge| format!("{} {}", charge.stage, human(charge.ns))).collect();
        let _ = writeln!(out, "overlapped with delivery, delaying nobody: {}", list.join(", "));
    }
    out
}

fn prompt_line(record: &Record) -> String {
    let origins = ledger::Origin::ALL.iter().filter_map(|origin| {
        let of_origin = record.prompt.by_origin.iter().filter(|entry| entry.origin == *origin);
        let tokens: usize = of_origin.map(|entry| entry.tokens).sum();
        (tokens > 0).then(|| format!("{} {tokens}", origin.name()))
    });
    let origins = origins.collect::<Vec<_>>().join(", ");
    let PromptAccount { tokens, cached_tokens, miss, .. } = &record.prompt;
    let why = miss.map_or(String::new(), |miss| match miss {
        Miss::NeverSeen { from } => format!("; from token {from} on it was new"),
        Miss::Diverged { from } => format!("; at token {from} it differs from what was computed before"),
        Miss::Evicted { from, by, ago_ns } => {
            format!("; what follows token {from} was given up {} before, for {by}", human(ago_ns))
        }
    });
    format!("prompt {tokens} tokens ({origins}), {cached_tokens} cached{why}")
}

/// Where a bar stands: `offset` of `total` nanoseconds over `columns`.
struct Bar {
    offset: u64,
    total: u64,
    columns: usize,
}

fn draw(out: &mut String, style: Style, charge: &Charge, e2e_ns: u64, bar: Bar) {
    let share = 100.0 * charge.ns as f64 / e2e_ns.max(1) as f64;
    let scale = bar.columns as f64 / bar.total.max(1) as f64;
    let start = ((bar.offset as f64 * scale) as usize).min(bar.columns.saturating_sub(1));
    let length = ((charge.ns as f64 * scale).round() as usize).min(bar.columns - start);
    let block = if length == 0 { "▏".to_owned() } else { "█".repeat(length) };
    let (on, off) = if style.colour { (colour(charge.stage), "\x1b[0m") } else { ("", "") };
    let cause = charge.cause.as_ref().map(|cause| format!("  {}", because(cause))).unwrap_or_default();
    let _ = writeln!(
        out,
        "  {:<LABEL$}{:>VALUE$}{share:>6.1}%  {}{on}{block}{off}{cause}",
        charge.stage.name(),
        human(charge.ns),
        " ".repeat(start),
    );
}

/// A cause in a few words.
pub fn because(cause: &Cause) -> String {
    match cause {
        Cause::NoFreeBlocks { needed, free, holders } => {
            format!("needs {needed} KV blocks, {free} free, held by {}", names(holders))
        }
        Cause::BatchFull { running, max } => format!("batch full ({running} of {max})"),
        Cause::StepTime { target_ns, prefill_of } => {
            format!(
                "steps are kept to {} for those who decode; prefill of {}",
                human(*target_ns),
                names(prefill_of)
            )
        }
        Cause::TokenBudget { budget, prefill_of } => {
            format!("step's {budget} tokens went to {}", names(prefill_of))
        }
        Cause::HigherPriority { behind } => format!("behind {behind} of higher priority"),
        Cause::Behind { ahead, next } => format!("{ahead} ahead, {next} next"),
        Cause::SamePrefix { by } => format!("{by} computes the same prefix"),
        Cause::ClientSlow => "the client does not read".to_owned(),
        Cause::StepRunning => "a step was running".to_owned(),
        Cause::ModelLoading => "the model is loading".to_owned(),
        Cause::Draining => "the server is shutting down".to_owned(),
    }
}

fn names(requests: &[ledger::RequestId]) -> String {
    match requests {
        [] => "nobody".to_owned(),
        [one] => one.to_string(),
        [one, rest @ ..] => format!("{one} and {} more", rest.len()),
    }
}

/// Adds up equal stages and causes, keeping the order of their first appearance.
fn merge<'a>(charges: impl Iterator<Item = &'a Charge>) -> Vec<Charge> {
    let mut merged: Vec<Charge> = Vec::new();
    for charge in charges {
        match merged.iter_mut().find(|other| other.stage == charge.stage && other.cause == charge.cause) {
            Some(other) => other.ns += charge.ns,
            None => merged.push(charge.clone()),
        }
    }
    merged
}

/// What `whole` holds beyond `part`.
fn subtract(whole: &[Charge], part: &[Charge]) -> Vec<Charge> {
    let rest = whole.iter().map(|charge| {
        let taken = part.iter().find(|other| other.stage == charge.stage && other.cause == charge.cause);
        Charge { ns: charge.ns - taken.map_or(0, |other| other.ns), ..charge.clone() }
    });
    rest.filter(|charge| charge.ns > 0).collect()
}

/// Blue for the edge, yellow for waiting, green for computing, magenta for the way out, red for what nobody claims.
fn colour(stage: Stage) -> &'static str {
    match stage {
        Stage::Handoff
        | Stage::Queue
        | Stage::Throttle
        | Stage::PrefillWait
        | Stage::DecodeWait
        | Stage::Preempted => "\x1b[33m",
        Stage::Prefill | Stage::Decode | Stage::Sample | Stage::EncodeVision | Stage::Communicate => {
            "\x1b[32m"
        }
        Stage::Return | Stage::Detokenize | Stage::Write => "\x1b[35m",
        Stage::Opaque | Stage::Unattributed => "\x1b[31m",
        _ => "\x1b[34m",
    }
}

#[cfg(test)]
mod tests {
    use ledger::{Account, Outcome, PromptAccount, RequestId, Timeline};

    use super::*;

    fn record() -> Record {
        let mut account = Account::open(0);
        let mut timeline = Timeline::starting(Stage::Accept, 0);
        timeline.enter(Stage::Prefill, 1_000_000);
        timeline.enter(Stage::Write, 9_000_000);
        account.deliver(&timeline, 1, None, 10_000_000);
        let mut timeline = Timeline::starting(Stage::Decode, 9_500_000);
        timeline.wait(Stage::DecodeWait, Cause::ClientSlow, 18_000_000);
        account.deliver(&timeline, 1, None, 20_000_000);
        Record {
            schema: Record::SCHEMA,
            id: RequestId(7),
            model: "m".into(),
            outcome: Outcome::Finished,
            status: 200,
            refusal: None,
            began_unix_ns: 0,
            e2e_ns: 20_000_000,
            ttft_ns: account.ttft_ns(),
            stages: account.stages(),
            hidden: account.hidden(),
            prompt: PromptAccount::default(),
            tokens: account.units().0.to_vec(),
            tokens_dropped: 0,
            completion_tokens: 2,
            choices: Vec::new(),
            ignored: Vec::new(),
            open: false,
            overhead_ns: 0,
        }
    }

    #[test]
    fn shows_every_stage_once_and_the_identity() {
        let drawn = waterfall(&record(), Style { width: 80, colour: false });
        for line in [
            "\n  prefill ",
            "\n  decode ",
            "\n  decode_wait ",
            "the client does not read",
            "= end to end 20000000 ns",
        ] {
            assert_eq!(drawn.matches(line).count(), 1, "{line} in\n{drawn}");
        }
        assert!(drawn.contains("delaying nobody: decode 500 µs"), "{drawn}");
    }
}
