//! The real models that tests run on, fetched before the tests so that no test's time has a download in it.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Result;
use catalogue::{Catalogue, Progress};

const SMALL: [&str; 3] = ["smollm2-135m-instruct", "gemma-3-270m", "qwen2.5-coder-0.5b-instruct"];
const LARGE: &str = "qwen2.5-coder-1.5b-instruct";

pub fn pull_all(with_large: bool) -> Result<()> {
    for name in SMALL.into_iter().chain(with_large.then_some(LARGE)) {
        let path = pull(name)?;
        eprintln!("{name}: {}", path.display());
    }
    Ok(())
}

fn pull(name: &str) -> Result<PathBuf> {
    let mut line = Line { last: String::new(), terminal: io::stderr().is_terminal() };
    let path = Catalogue::builtin().pull(name, &mut |progress| match progress {
        Progress::Waiting => line.show(&format!("{name}: waiting for another process that is fetching it")),
        Progress::Trying { source } => line.show(&format!("{name}: from {source}")),
        Progress::SourceFailed { source, reason } => line.show(&format!("{name}: {source}: {reason}")),
        // In steps of ten, so that a log stays short.
        Progress::Fetching { done, total } => {
            line.show(&format!("{name}: {}% of {} MB", done * 10 / total.max(1) * 10, total / 1_000_000));
        }
        Progress::Assembling { .. } => line.show(&format!("{name}: checking")),
    })?;
    Ok(path)
}

/// Prints a line when it differs from the one before.
struct Line {
    last: String,
    terminal: bool,
}

impl Line {
    fn show(&mut self, text: &str) {
        if self.last == text {
            return;
        }
        self.last = text.to_owned();
        let dim = if self.terminal { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        // Progress that cannot be shown is no reason to stop.
        let _ = writeln!(io::stderr(), "{}{text}{}", dim.0, dim.1);
    }
}
