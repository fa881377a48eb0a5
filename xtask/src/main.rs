//! Development tasks, run as `cargo xtask NAME`. Each is a sequence of commands that a person could type; what is
//! checked lives in tests and in `tidy`, never only here.
//!
//! **Invariant:** this crate depends on none of ours, so that `cargo xtask` starts at once on a fresh machine.

mod demo;

mod ci;
mod clients;
mod command;
mod golden;
mod peers;
mod python;
mod summary;

mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  demo [MODEL]         fetch a model, build, serve it, send a chat, show where its time went; the server stays up
  ci [--with-1.5b] [--with-browser]
                       everything that must pass: format, lints, tests on the small models (and the 1.5B), clients, tidy
                       (and reports as a browser draws them)
  golden [ARGS...]     make the committed goldens again, with the reference implementations
  peers [ARGS...]      build llama.cpp once, and measure both engines side by side (`peers --help`)
  tidy                 the house rules: who may depend on whom, where unsafe may stand, what the documents promise";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["demo"] => demo::run(demo::DEFAULT_MODEL),
        ["demo", model] if !model.starts_with('-') => demo::run(model),
        ["ci", rest @ ..] if rest.iter().all(|flag| ci::FLAGS.contains(flag)) => {
            ci::run(rest.contains(&ci::WITH_LARGE), rest.contains(&ci::WITH_BROWSER))
        }
        ["golden", rest @ ..] => golden::run(rest),
        ["peers", rest @ ..] => peers::run(rest),
        ["tidy"] => tidy::run(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root, which every task works in.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).unwrap_or(here)
}
