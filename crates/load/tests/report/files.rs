use load::report::{Report, csv, json};
use serde_json::{Value, json as value};

use crate::hostile;
use crate::made_up::{self, Made};

fn small() -> Report {
    made_up::sweep(Made { seconds: 20.0, ..Made::default() }, &[2.0, 12.0])
}

fn written(report: &Report) -> String {
    let mut bytes = Vec::new();
    json::write(report, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_report_comes_back_from_its_file_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    for report in [small(), hostile::report()] {
        json::save(&report, &path).unwrap();
        let back = json::load(&path).unwrap();
        assert!(back == report, "{}: what was read is not what was written", report.metrics.len());
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn infinity_is_a_word_in_the_file_and_what_is_absent_is_null() {
    let mut report = small();
    report.metrics[0].p99 = Some(f64::INFINITY);
    report.metrics[0].mean = None;
    let file: Value = serde_json::from_str(&written(&report)).unwrap();
    assert_eq!(file["metrics"][0]["p99"], value!("inf"));
    assert_eq!(file["metrics"][0]["mean"], Value::Null);
    let back = json::read(&written(&report)).unwrap();
    assert_eq!((back.metrics[0].p99, back.metrics[0].mean), (Some(f64::INFINITY), None));
}

#[track_caller]
fn check_refused(change: impl Fn(&mut Value), says: &[&str]) {
    let mut file: Value = serde_json::from_str(&written(&small())).unwrap();
    change(&mut file);
    let error = format!("{:#}", json::read(&file.to_string()).unwrap_err());
    for part in says {
        assert!(error.contains(part), "{part:?} is missing in {error:?}");
    }
}

#[test]
fn a_file_that_cannot_be_used_says_why_and_what_to_do() {
    let version = [
        "the report's schema is version 9, and this firstlight reads version 1",
        "use the version that wrote it",
    ];
    check_refused(|file| file["schema"] = value!(9), &version);
    check_refused(|file| file["results"][1]["schema"] = value!(3), &["a run's schema is version 3"]);
    check_refused(|file| *file = value!({"hello": 1}), &["no `schema` field", "firstlight bench"]);
    check_refused(|file| file["metrics"] = value!("many"), &["damaged"]);
    check_refused(|file| file["metrics"][0]["p99"] = value!("lots"), &["expected a number or \"inf\""]);
    check_refused(|file| file["results"] = value!([]), &["holds no run"]);
    let error = format!("{:#}", json::read("{\"schema\":1,").unwrap_err());
    assert!(error.contains("not a report in JSON"), "{error}");
    let missing = std::path::Path::new("/nowhere/run.json");
    assert!(format!("{:#}", json::load(missing).unwrap_err()).contains("/nowhere/run.json"));
}

#[test]
fn the_documented_fields_are_those_of_the_file() {
    let document = include_str!("../../../../docs/load-report.md");
    let file: Value = serde_json::from_str(&written(&small())).unwrap();
    let mut missing = Vec::new();
    names(&file, &mut |name| {
        if !document.contains(&format!("`{name}`")) {
            missing.push(name.to_owned());
        }
    });
    missing.sort();
    missing.dedup();
    missing.retain(|name| !["cut_short", "finished", "refused", "timed_out"].contains(&name.as_str())); // outcomes
    assert!(missing.is_empty(), "docs/load-report.md does not describe {missing:?}");
    for column in csv::COLUMNS {
        assert!(
            document.contains(&format!("`{column}`")),
            "docs/load-report.md does not describe the column {column}"
        );
    }
}

fn names(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            found(name);
            names(value, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

fn table(report: &Report) -> (Vec<String>, Vec<Vec<String>>) {
    let mut bytes = Vec::new();
    csv::write(report, &mut bytes).unwrap();
    let mut reader = ::csv::Reader::from_reader(bytes.as_slice());
    let columns = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let rows = reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect();
    (columns, rows)
}

#[test]
fn the_table_of_calls_has_a_line_for_each_call_with_what_was_seen() {
    let report = small();
    let (columns, rows) = table(&report);
    assert_eq!(rows.len(), report.results.iter().map(|run| run.samples.len()).sum::<usize>());
    let column = |name: &str| columns.iter().position(|column| column == name).unwrap();
    let mut samples = report.results.iter().flat_map(|run| &run.samples).zip(&rows);
    let (sample, row) = samples.clone().find(|(sample, _)| sample.chunks.len() > 1).unwrap();
    assert_eq!(row[column("first_token_ns")], sample.chunks[0].at_ns.to_string());
    assert_eq!(row[column("load")], "2");
    let (_, prefill) =
        sample.server.to_first_token.iter().find(|(stage, _)| stage.name() == "prefill").unwrap();
    assert_eq!(row[column("first.prefill_ns")], prefill.to_string());
    assert_eq!(row[column("first.preempted_ns")], "", "what was not seen is empty, not zero");
    let (_, refused) = samples.find(|(sample, _)| sample.outcome.class() == "refused").unwrap();
    assert_eq!((refused[column("outcome")].as_str(), refused[column("status")].as_str()), ("refused", "503"));
    assert_eq!(refused[column("first_token_ns")], "");
}

#[test]
fn no_field_of_the_table_is_a_formula() {
    let (_, rows) = table(&hostile::report());
    for field in rows.iter().flatten() {
        assert!(!field.starts_with(['=', '+', '@', '-', '\t', '\r']), "{field:?}");
        assert!(!field.chars().any(char::is_control), "{field:?}");
    }
}
