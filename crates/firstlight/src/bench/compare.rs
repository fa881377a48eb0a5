//! `firstlight compare`: two runs of one schedule, call by call.

use anyhow::Context;
use load::compare::{Better, Comparison, Shown, compare};
use load::report::json;
use load::results::Results;

use crate::flags::CompareFlags;

/// Reads two reports and prints how their runs differ.
pub fn run(flags: &CompareFlags) -> anyhow::Result<()> {
    let (a, b) = (focused(&flags.a)?, focused(&flags.b)?);
    let comparison = compare(&a, &b).map_err(anyhow::Error::msg)?;
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&comparison)?);
    } else {
        print!("{}", table(&comparison));
    }
    Ok(())
}

fn focused(path: &std::path::Path) -> anyhow::Result<Results> {
    let report = json::load(path)?;
    report.focused().cloned().with_context(|| format!("{} holds no run", path.display()))
}

fn table(comparison: &Comparison) -> String {
    let Comparison { a, b, pairing, metrics, stages, most, notes } = comparison;
    let mut lines = vec![
        format!("A  {} ({}) at {}", a.model, a.kind, a.url),
        format!("B  {} ({}) at {}", b.model, b.kind, b.url),
        format!(
            "{} pairs; only in A {}, only in B {}, other bodies {}, failed in A {}, in B {}, in both {}, in flight {}",
            pairing.pairs,
            pairing.only_a,
            pairing.only_b,
            pairing.bodies_differ,
            pairing.failed_a,
            pairing.failed_b,
            pairing.failed_both,
            pairing.in_flight
        ),
    ];
    lines.extend(a.void.iter().map(|why| format!("A is void: {why}")));
    lines.extend(b.void.iter().map(|why| format!("B is void: {why}")));
    lines.push(String::new());
    lines.push(format!(
        "{:<18}{:>12}{:>12}{:>12}{:>24}{:>8}  {}",
        "metric", "mean A", "mean B", "B - A", "95% interval", "B / A", "better"
    ));
    for metric in metrics {
        let Some(found) = &metric.difference else { continue };
        let interval = found.mean_interval.map_or("too few pairs".to_owned(), |interval| {
            format!("{:.2} to {:.2}", interval.low.0, interval.high.0)
        });
        lines.push(format!(
            "{:<18}{:>12.2}{:>12.2}{:>+12.2}{:>24}{:>8}  {}",
            format!("{} {}", metric.metric, metric.unit.symbol()),
            found.mean_a.0,
            found.mean_b.0,
            found.mean.0,
            interval,
            found.ratio.map_or(String::new(), |ratio| format!("{:.2}", ratio.0)),
            match metric.better {
                Better::A => "A",
                Better::B => "B",
                Better::Unsure => "not told apart",
            }
        ));
    }
    lines.push(String::new());
    for stage in stages {
        let part = serde_json::to_value(stage.part).unwrap_or_default();
        let part = part.as_str().unwrap_or_default().replace('_', " ");
        lines.push(match &stage.shown {
            Shown::Both { difference: found } => format!(
                "{part:<16}{:<16}{:>10.2} ms{:>10.2} ms{:>+10.2} ms",
                stage.place.name(),
                found.mean_a.0,
                found.mean_b.0,
                found.mean.0
            ),
            Shown::OnlyA { mean_ms } => {
                format!("{part:<16}{:<16}{:>10.2} ms   only A tells of it", stage.place.name(), mean_ms.0)
            }
            Shown::OnlyB { mean_ms } => {
                format!(
                    "{part:<16}{:<16}{:>13}{:>10.2} ms   only B tells of it",
                    stage.place.name(),
                    "",
                    mean_ms.0
                )
            }
        });
    }
    if !most.is_empty() {
        lines.push(String::new());
        lines.push("calls that differ most (end to end, ms)".to_owned());
    }
    for call in most {
        let place = call.place.zip(call.place_ms);
        lines.push(format!(
            "call {:<8}{:>10.1}{:>10.1}   {}",
            call.call.0,
            call.e2e_a_ms.0,
            call.e2e_b_ms.0,
            place.map_or(String::new(), |(place, ms)| format!("{} {:+.1} ms", place.name(), ms.0))
        ));
    }
    lines.extend(notes.iter().map(|note| format!("note: {note}")));
    lines.join("\n") + "\n"
}
