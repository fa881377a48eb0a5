//! Everything that must pass before a change lands. All checks run even when one has failed, so that one run tells all.
//!
//! One cargo profile serves every check: lints, tests and the clients' binary share what is compiled.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::command::{self, cargo};
use crate::summary::{self, Line, Outcome};
use crate::{clients, tidy};

/// What the tests run on; the large one when it is asked for.
const SMALL: [&str; 3] = ["smollm2-135m-instruct", "gemma-3-270m", "qwen2.5-coder-0.5b-instruct"];
const LARGE: &str = "qwen2.5-coder-1.5b-instruct";
/// Lets the tests slow a stage down; everything is built with it, so that it is built once.
const DELAY: &str = "--features=firstlight/delay";

pub const WITH_LARGE: &str = "--with-1.5b";
pub const WITH_BROWSER: &str = "--with-browser";
pub const FLAGS: [&str; 2] = [WITH_LARGE, WITH_BROWSER];

pub fn run(with_large: bool, with_browser: bool) -> Result<()> {
    let mut lines = Vec::new();
    let mut check = |name: &'static str, outcome: &mut dyn FnMut() -> Outcome| {
        eprintln!("\n== {name}");
        let start = Instant::now();
        let outcome = outcome();
        lines.push(Line { name, took: start.elapsed(), outcome });
    };
    let mut counted = None;

    check("format", &mut || command::run(&mut cargo(&["fmt", "--all", "--check"])).into());
    check("house rules", &mut || tidy::run().into());
    check("lints", &mut || {
        command::run(&mut cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            DELAY,
            "--",
            "-D",
            "warnings",
        ]))
        .into()
    });
    // All targets at once: what tests switch on in a library would otherwise have it compiled a second time.
    check("build", &mut || {
        command::run(&mut cargo(&["build", "--workspace", "--all-targets", "--locked", DELAY])).into()
    });
    let binary = clients::binary("debug");
    check("models", &mut || pull_models(&binary, with_large).into());
    check("tests", &mut || {
        let (output, result) = tests(with_large);
        counted = summary::count(&output);
        result.into()
    });
    if with_browser {
        check("report in a browser", &mut || {
            let tests =
                ["test", "-p", "load", "--locked", "--test", "report", "--", "--ignored", "screenshot"];
            command::run(&mut cargo(&tests)).into()
        });
    }
    check("doc tests", &mut || {
        command::run(&mut cargo(&["test", "--workspace", "--doc", "--quiet", "--locked", DELAY])).into()
    });
    check("Python client", &mut || clients::python(&binary).into());
    check("Node client", &mut || clients::node(&binary).into());

    println!("{}", summary::render(&lines));
    if let Some(counted) = &counted {
        println!("{counted}");
    }
    let failed = lines.iter().filter(|line| matches!(line.outcome, Outcome::Failed(_))).count();
    match (failed, counted) {
        (0, Some(_)) => Ok(()),
        (0, None) => bail!("the tests ran, but no line says how many"),
        (failed, _) => bail!("{failed} of {} checks failed", lines.len()),
    }
}

fn tests(with_large: bool) -> (Vec<String>, Result<()>) {
    let mut tests = if command::exists("cargo", &["nextest", "--version"]) {
        cargo(&["nextest", "run", "--workspace", "--locked", DELAY, "--no-fail-fast"])
    } else {
        eprintln!(
            "cargo-nextest is not installed (`cargo install --locked cargo-nextest`); cargo test runs instead"
        );
        cargo(&["test", "--workspace", "--all-targets", "--locked", DELAY, "--no-fail-fast"])
    };
    if with_large {
        tests.env("FIRSTLIGHT_TEST_1_5B", "1");
    }
    command::run_and_keep(&mut tests)
}

/// Models and chat templates, before the tests, so that no test's time has a download in it.
fn pull_models(binary: &Path, with_large: bool) -> Result<()> {
    let mut names = SMALL.into_iter().chain(with_large.then_some(LARGE));
    names.try_for_each(|name| {
        command::run(&mut command::command(&binary.to_string_lossy(), &["model", "pull", name]))
    })?;
    command::run(&mut command::command("python3", &["tools/golden/public_templates.py"]))
}
