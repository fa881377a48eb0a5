use load::report::Report;
use load::report::table::{WIDTH, table};

use crate::hostile;
use crate::made_up::{self, Made};

fn plain(report: &Report) -> String {
    table(report, false)
}

#[test]
fn no_line_is_wider_than_the_terminal_and_none_drives_it() {
    let sweep = made_up::sweep(Made::default(), &[2.0, 5.0, 9.0]);
    for report in [&sweep, &hostile::report()] {
        for line in plain(report).lines() {
            assert!(line.chars().count() <= WIDTH, "{} columns: {line:?}", line.chars().count());
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
    let coloured = table(&hostile::report(), true);
    let ours = ["\u{1b}[1;31m", "\u{1b}[32m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[0m"];
    let rest = ours.iter().fold(coloured, |text, code| text.replace(code, ""));
    assert!(!rest.contains('\u{1b}'), "the only colours are ours");
}

#[test]
fn a_void_run_is_red_at_the_top_with_its_reason() {
    let mut report = made_up::single(Made { seconds: 20.0, ..Made::default() });
    report.results[0].health.void = vec!["the client sent late".to_owned()];
    let text = table(&report, true);
    assert!(text.starts_with("\u{1b}[1;31mVOID: this run does not count"), "{text}");
    assert!(text.lines().nth(1).unwrap().contains("the client sent late"));
    report.results[0].health.void.clear();
    assert!(!plain(&report).contains("VOID"));
}

#[test]
fn failed_calls_show_as_infinite_with_their_count_and_their_classes() {
    let report = made_up::single(Made { calls_per_s: 9.0, seconds: 60.0, ..Made::default() });
    let text = plain(&report);
    let row = report.metrics.iter().find(|row| row.name == "TTFT").unwrap();
    let line = text.lines().find(|line| line.starts_with("TTFT ")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells[1..3], [row.n.to_string(), row.failed.to_string()], "{line}");
    assert!(row.failed > 0 && line.contains('∞'), "{line}");
    assert!(text.contains("refused\n") && text.contains("× 503 the queue is full"), "{text}");
    assert!(text.contains("DISAGREES"), "usage that disagrees is said: {text}");
}

#[test]
fn columns_are_aligned() {
    let report = made_up::sweep(Made { seconds: 60.0, ..Made::default() }, &[1.0, 3.5, 12.0]);
    let text = plain(&report);
    let from = text.lines().position(|line| line.trim_start().starts_with("requests/s")).unwrap();
    let ends: Vec<usize> = text
        .lines()
        .skip(from)
        .take(4)
        .map(|line| {
            let cell = if line.contains('%') {
                line.find('%').map(|at| line[..at].chars().count() + 1)
            } else {
                None
            };
            cell.unwrap_or_else(|| line.find("errors").unwrap() + "errors".len())
        })
        .collect();
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}\n{text}");
}
