//! Measures this engine beside llama.cpp, on the same files and the same machine, in alternating runs: first builds what
//! is missing, then fills one table. Machines are noisy and neighbours come and go, so a figure is a median with its range,
//! and what is to be quoted is the ratio.

mod arguments;
mod cells;
mod engines;
mod llama_cpp;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use arguments::Arguments;
use engines::{LlamaCpp, Ours};
use table::Row;

pub use arguments::USAGE;

pub fn run(arguments: &[&str]) -> Result<()> {
    let Some(arguments) = Arguments::parse(arguments)? else {
        println!("{USAGE}");
        return Ok(());
    };
    // Before anything is built: what the builds leave behind is not other work.
    let before = load();
    let theirs = LlamaCpp { binaries: llama_cpp::binaries()?, threads: arguments.threads };
    println!("{}", theirs.describe());
    if arguments.build_only {
        return Ok(());
    }
    let models =
        arguments.models.iter().map(|model| Ok((*model, find(model)?))).collect::<Result<Vec<_>>>()?;
    let ours = Ours::build(arguments.threads)?;
    let mut rows = Vec::new();
    for (model, path) in &models {
        for cell in &arguments.cells {
            let mut row = Row::new(model, cell.name, &theirs.variants(cell));
            // Alternating, so that a slow minute of the machine falls on both.
            for run in 1..=arguments.runs {
                row.ours.push(ours.measure(path, cell)?);
                for series in &mut row.theirs {
                    series.push(theirs.measure(path, cell, &series.name)?);
                }
                eprintln!("{model}, {}, run {run} of {}: {}", cell.name, arguments.runs, row.latest());
            }
            rows.push(row);
        }
    }
    println!("\n{}", table::print(&rows, arguments.runs, arguments.threads));
    if let Some(before) = before {
        println!("{}", quietness(before, processors()));
    }
    Ok(())
}

/// The mean number of tasks that wanted a processor in the last minute, as Linux tells it.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Whether the machine was free for the measurement. An engine whose threads wait for each other by spinning loses far more
/// than its share to a neighbour, so a busy machine changes ratios too.
fn quietness(load_before: f64, processors: usize) -> String {
    let said = format!("The machine's load at the start was {load_before:.2}, on {processors} processors");
    if load_before > processors as f64 / 4.0 {
        format!("{said}: BUSY with other work, so neither the speeds nor the ratios are to be quoted.")
    } else {
        format!("{said}: quiet.")
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Where a catalogued model lies.
fn find(model: &str) -> Result<PathBuf> {
    let path = llama_cpp::cache_folder()?.join("models").join(format!("{model}.gguf"));
    if !path.is_file() {
        bail!(
            "{model} is not there (looked for {}); fetch it with `cargo run --release -p firstlight -- model pull {model}`, \
             or choose others with --models",
            path.display()
        );
    }
    Ok(path)
}

/// The first number behind `key`.
fn number_after(text: &str, key: &str) -> Option<f64> {
    let rest = text.split_once(key)?.1.trim_start_matches([' ', ':']);
    let end = rest.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Runs a measurement and returns what it printed; its complaints are shown when it fails.
fn output_of(command: &mut std::process::Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("could not start {program}"))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{program} failed ({}):\n{}", output.status, complaints.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &complaints)
}

#[cfg(test)]
mod tests {
    use super::{number_after, quietness};

    #[test]
    fn figures_of_a_busy_machine_are_not_to_be_quoted() {
        assert!(quietness(4.05, 2).contains("BUSY"));
        assert!(quietness(0.2, 2).ends_with("quiet."));
    }

    #[test]
    fn a_number_is_read_from_behind_its_key() {
        let line = r#"{"speed_pp": 547.45, "t_tg": 3.5, "speed_tg": 3.65e1, "t": 1}"#;
        assert_eq!(number_after(line, "\"speed_tg\""), Some(36.5));
        assert_eq!(number_after("decode: 64 tokens, 21.2 tok/s; x", "tokens, "), Some(21.2));
        assert_eq!(number_after(line, "\"missing\""), None);
        assert_eq!(number_after("x: nan", "x"), None);
    }
}
