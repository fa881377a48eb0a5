//! The report as its JSON file, versioned; `docs/load-report.md` describes it.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::report::Report;
use crate::results::Results;

/// Writes the report; nothing of it is held twice in memory.
pub fn write(report: &Report, to: &mut impl Write) -> Result<()> {
    serde_json::to_writer(&mut *to, report).context("the report cannot be written as JSON")?;
    to.write_all(b"\n")?;
    Ok(())
}

/// Writes the report to a file, whole or not at all: a reader never sees half of one.
pub fn save(report: &Report, path: &Path) -> Result<()> {
    let beside = path.with_extension("json.part");
    let saved = || -> Result<()> {
        let mut file = BufWriter::new(File::create(&beside)?);
        write(report, &mut file)?;
        file.flush()?;
        Ok(std::fs::rename(&beside, path)?)
    };
    saved().with_context(|| format!("cannot write the report to {}", path.display()))
}

/// Reads a report's file. Errors name the file, and of a file of another version say so.
pub fn load(path: &Path) -> Result<Report> {
    let name = path.display();
    let mut text = String::new();
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    BufReader::new(file).read_to_string(&mut text).with_context(|| format!("cannot read {name}"))?;
    read(&text).with_context(|| format!("{name} cannot be used"))
}

/// Reads a report.
pub fn read(text: &str) -> Result<Report> {
    // The version is read first: a file of another version would else fail with whatever field comes first.
    #[derive(Deserialize)]
    struct Versions {
        schema: Option<u32>,
        results: Option<Vec<RunVersion>>,
    }
    #[derive(Deserialize)]
    struct RunVersion {
        schema: Option<u32>,
    }
    let versions: Versions = serde_json::from_str(text).context("it is not a report in JSON")?;
    match versions.schema {
        None => bail!("it has no `schema` field, so it is no report of `firstlight bench`"),
        Some(schema) => supported("the report's", schema, Report::SCHEMA)?,
    }
    for run in versions.results.iter().flatten() {
        supported("a run's", run.schema.unwrap_or(0), Results::SCHEMA)?;
    }
    let report: Report = serde_json::from_str(text).context("it is damaged")?;
    ensure!(!report.results.is_empty(), "`results` is empty: it holds no run");
    Ok(report)
}

fn supported(whose: &str, found: u32, ours: u32) -> Result<()> {
    ensure!(
        found == ours,
        "{whose} schema is version {found}, and this firstlight reads version {ours}; use the version that wrote it"
    );
    Ok(())
}
