//! Fetching a model with a progress bar.

use std::path::PathBuf;

use catalogue::{Catalogue, Progress};
use indicatif::{ProgressBar, ProgressStyle};

/// A model that can be loaded.
pub struct Present {
    /// The name to serve it under.
    pub name: String,
    pub path: PathBuf,
}

/// The file for a name or a path; a catalogue model that is not here yet is fetched.
pub fn present(name_or_path: Option<&str>) -> anyhow::Result<Present> {
    let catalogue = Catalogue::builtin();
    let wanted = name_or_path.unwrap_or(Catalogue::default_name());
    let resolved = catalogue.resolve(wanted)?;
    let path = if resolved.present { resolved.path } else { pull(&resolved.name)? };
    Ok(Present { name: resolved.name, path })
}

/// Fetches the catalogue model `name` unless it is here; gives its path.
pub fn pull(name: &str) -> anyhow::Result<PathBuf> {
    let catalogue = Catalogue::builtin();
    let mut bar = Bar { bar: None, assembling: false, name };
    let outcome = catalogue.pull(name, &mut |progress| bar.show(&progress));
    if let Some(bar) = bar.bar {
        bar.finish_and_clear();
    }
    Ok(outcome?)
}

struct Bar<'a> {
    bar: Option<ProgressBar>,
    assembling: bool,
    name: &'a str,
}

impl Bar<'_> {
    fn show(&mut self, progress: &Progress<'_>) {
        match *progress {
            Progress::Waiting => eprintln!("another process is fetching {}; waiting for it", self.name),
            Progress::Trying { source } => self.say(&format!("fetching {} from {source}", self.name)),
            Progress::SourceFailed { source, reason } => {
                self.say(&format!("{source} did not work: {reason}"))
            }
            Progress::Fetching { done, total } => self.advance(done, total, false),
            Progress::Assembling { done, total } => self.advance(done, total, true),
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    fn advance(&mut self, done: u64, total: u64, assembling: bool) {
        if self.assembling != assembling {
            self.assembling = assembling;
            if let Some(bar) = self.bar.take() {
                bar.finish_and_clear();
            }
        }
        let bar = self
            .bar
            .get_or_insert_with(|| self::bar(total, if assembling { "checking" } else { "fetching" }));
        bar.set_length(total);
        bar.set_position(done);
    }
}

/// A bar for loading the model `name`, in bytes.
pub fn loading_bar(name: &str) -> ProgressBar {
    bar(0, &format!("loading {name}"))
}

fn bar(total: u64, prefix: &str) -> ProgressBar {
    let template = "{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template).expect("the template is a constant that parses");
    ProgressBar::new(total).with_style(style).with_prefix(prefix.to_owned())
}
