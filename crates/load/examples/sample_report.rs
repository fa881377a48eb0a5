//! Writes reports of made-up runs, so that they can be looked at without a server:
//! `cargo run -p load --example sample_report -- [folder]`.

#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../tests/report/made_up.rs"]
mod made_up;

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::Result;
use load::report::{Report, csv, html, json, table};
use made_up::Made;

fn main() -> Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "target/sample-reports".to_owned()));
    fs::create_dir_all(&folder)?;
    let sweep = made_up::sweep(Made::default(), &[1.0, 2.0, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0]);
    let single = made_up::single(Made { account: false, seconds: 60.0, calls_per_s: 3.0, ..Made::default() });
    let mut void = made_up::single(Made { calls_per_s: 9.0, ..Made::default() });
    void.results[0].health.void = vec!["the client sent late by 12.3 ms at p99; 5 ms is the most".to_owned()];
    void.results[0].health.lag_ns[1] = 12_300_000;
    for (name, report) in [("sweep", &sweep), ("opaque", &single), ("void", &void)] {
        write(&folder, name, report)?;
    }
    Ok(())
}

fn write(folder: &std::path::Path, name: &str, report: &Report) -> Result<()> {
    fs::write(folder.join(format!("{name}.html")), html::page(report))?;
    json::save(report, &folder.join(format!("{name}.json")))?;
    csv::write(report, File::create(folder.join(format!("{name}.csv")))?)?;
    println!("{}", table::table(report, false));
    println!("{}\n", folder.join(format!("{name}.html")).display());
    Ok(())
}
