//! What a run of all checks came to: one line each, and the count of tests last.

use std::time::Duration;

use anyhow::Result;

use crate::clients::Suite;

/// A check that has ended.
pub struct Line {
    pub name: &'static str,
    pub took: Duration,
    pub outcome: Outcome,
}

pub enum Outcome {
    Passed,
    Failed(String),
    NotRun(String),
}

impl From<Result<()>> for Outcome {
    fn from(result: Result<()>) -> Outcome {
        match result {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }
}

impl From<Result<Suite>> for Outcome {
    fn from(result: Result<Suite>) -> Outcome {
        match result {
            Ok(Suite::Passed) => Outcome::Passed,
            Ok(Suite::NotRun(reason)) => Outcome::NotRun(reason),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }
}

pub fn render(lines: &[Line]) -> String {
    let mut text = String::from("\n");
    for line in lines {
        let (word, reason) = match &line.outcome {
            Outcome::Passed => ("passed", ""),
            Outcome::Failed(reason) => ("FAILED", reason.as_str()),
            Outcome::NotRun(reason) => ("not run", reason.as_str()),
        };
        let row = format!("{word:8} {:>6.1} s  {:16} {reason}", line.took.as_secs_f64(), line.name);
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// The line that counts the tests: nextest's own, or the sum of what `cargo test` says of each binary.
pub fn count(output: &[String]) -> Option<String> {
    let plain: Vec<String> = output.iter().map(|line| without_colours(line)).collect();
    if let Some(summary) = plain.iter().rfind(|line| line.trim_start().starts_with("Summary [")) {
        return Some(summary.clone());
    }
    let results: Vec<&String> = plain.iter().filter(|line| line.starts_with("test result: ")).collect();
    let sum = |what: &str| results.iter().map(|line| number_before(line, what)).sum::<u64>();
    let (passed, failed, ignored) = (sum(" passed"), sum(" failed"), sum(" ignored"));
    let word = if failed == 0 { "ok" } else { "FAILED" };
    (!results.is_empty())
        .then(|| format!("test result: {word}. {passed} passed; {failed} failed; {ignored} ignored"))
}

fn number_before(line: &str, word: &str) -> u64 {
    let before = line.split(word).next().unwrap_or("");
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Drops escape sequences: from an escape character to the letter that ends it.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut escaped = false;
    for character in line.chars() {
        match (escaped, character) {
            (false, '\x1b') => escaped = true,
            (false, other) => plain.push(other),
            (true, other) => escaped = !other.is_ascii_alphabetic(),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &[&str], expected: Option<&str>) {
        let output: Vec<String> = output.iter().map(|&line| line.to_owned()).collect();
        assert_eq!(count(&output).as_deref(), expected);
    }

    #[test]
    fn nextests_own_line_is_the_count_without_its_colours() {
        check(
            &["     Summary [   1.2s] 3 tests run: 3 passed, 0 skipped"],
            Some("     Summary [   1.2s] 3 tests run: 3 passed, 0 skipped"),
        );
        check(
            &["\x1b[32;1m     Summary\x1b[0m [   1.2s] 3 tests run"],
            Some("     Summary [   1.2s] 3 tests run"),
        );
    }

    #[test]
    fn the_results_of_several_binaries_are_added_up() {
        check(
            &[
                "test result: ok. 26 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.08s",
                "test other ... ok",
                "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.08s",
            ],
            Some("test result: FAILED. 30 passed; 2 failed; 1 ignored"),
        );
    }

    #[test]
    fn no_tests_give_no_count() {
        check(&["error: could not compile"], None);
    }

    #[test]
    fn a_failure_and_a_suite_that_did_not_run_say_why() {
        let line = |name, outcome| Line { name, took: Duration::from_millis(1234), outcome };
        let text = render(&[
            line("tests", Outcome::Passed),
            line("lints", Outcome::Failed("`cargo clippy` failed".to_owned())),
            line("node client", Outcome::NotRun("Node is not installed".to_owned())),
        ]);
        let expected = "\n\
            passed      1.2 s  tests\n\
            FAILED      1.2 s  lints            `cargo clippy` failed\n\
            not run     1.2 s  node client      Node is not installed\n";
        assert_eq!(text, expected);
    }
}
