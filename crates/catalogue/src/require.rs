//! Real models for the tests of other crates. A test that needs one gets it or fails; it never passes by not running.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::find::Catalogue;
use crate::pull::Progress;

/// The path of the model called `name`, which is fetched first if it is not here.
///
/// Test support: it prints its progress to the error stream, past the test harness's capture.
///
/// # Panics
///
/// When the model cannot be had, with the reason.
#[track_caller]
pub fn require(name: &str) -> PathBuf {
    let mut report = Report { name: name.to_owned(), tenths: 0 };
    let pulled = Catalogue::builtin().pull(name, &mut |progress| report.hear(&progress));
    pulled.unwrap_or_else(|error| {
        panic!("this test needs the model {name}: {error}\nTo fetch it by hand: firstlight model pull {name}")
    })
}

/// One line for each tenth: readable in a log, where a moving bar is not.
struct Report {
    name: String,
    tenths: u64,
}

impl Report {
    fn hear(&mut self, progress: &Progress<'_>) {
        match progress {
            Progress::Waiting => self.say("waiting for another process that is fetching it"),
            Progress::Trying { source } => self.say(&format!("fetching from {source}")),
            Progress::SourceFailed { source, reason } => {
                self.say(&format!("{source} did not work: {reason}"))
            }
            Progress::Fetching { done, total } => {
                let tenths = done * 10 / (*total).max(1);
                if tenths > self.tenths {
                    self.tenths = tenths;
                    self.say(&format!("{}% of {} MB", tenths * 10, total / 1_000_000));
                }
            }
            Progress::Assembling { .. } => {}
        }
    }

    fn say(&self, what: &str) {
        // A closed error stream is no reason to fail a test.
        let _ = writeln!(io::stderr(), "model {}: {what}", self.name);
    }
}
