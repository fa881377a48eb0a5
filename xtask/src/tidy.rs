//! The house rules that can be checked: by `cargo xtask tidy`, and by a test, so that they hold wherever the tests pass.
//!
//! **Invariant:** a rule looks at files and changes nothing. What it finds either fails the check or is only listed.

mod depends;
mod documents;
mod hosts;
mod lengths;
mod manifests;
mod sources;
mod unsafety;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{command, root};

/// Something a rule found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub severity: Severity,
    /// Relative to the root, with the line where there is one.
    pub place: String,
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing, and no more.
    Listed,
    Broken,
}

impl Finding {
    fn broken(place: impl fmt::Display, what: impl Into<String>) -> Finding {
        Finding { severity: Severity::Broken, place: place.to_string(), what: what.into() }
    }

    fn listed(place: impl fmt::Display, what: impl Into<String>) -> Finding {
        Finding { severity: Severity::Listed, place: place.to_string(), what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Broken => "broken",
            Severity::Listed => "listed",
        };
        write!(f, "{word}  {}: {}", self.place, self.what)
    }
}

/// A file of the repository.
pub struct Source {
    /// Relative to the root, with forward slashes.
    pub path: String,
    pub text: String,
}

/// What the rules look at.
pub struct Repository {
    pub root: PathBuf,
    /// Every file that is text and not ignored by git, in order of their paths.
    pub files: Vec<Source>,
}

pub fn run() -> Result<()> {
    let findings = check(&Repository::read(&root())?)?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    let broken = findings.iter().filter(|finding| finding.severity == Severity::Broken).count();
    eprintln!("tidy: {broken} rules broken, {} places listed", findings.len() - broken);
    if broken > 0 {
        bail!("{broken} house rules are broken (see above)");
    }
    Ok(())
}

/// Applies every rule; what is broken comes last, where it is seen.
fn check(repository: &Repository) -> Result<Vec<Finding>> {
    let manifests = manifests::read(repository)?;
    let mut findings = Vec::new();
    findings.extend(depends::check(&manifests));
    findings.extend(documents::dependencies_have_their_line(repository, &manifests));
    findings.extend(documents::paths_exist(repository));
    for source in sources::parse(repository)? {
        findings.extend(unsafety::check(&source));
        findings.extend(lengths::check(&source));
        findings.extend(sources::check(&source));
    }
    findings.extend(hosts::check(repository));
    findings.sort();
    Ok(findings)
}

impl Repository {
    fn read(root: &Path) -> Result<Repository> {
        let mut list =
            command::command("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let output =
            list.current_dir(root).output().context("could not start git, which lists the files to check")?;
        if !output.status.success() {
            bail!("git could not list the files: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let names = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
        let mut files = Vec::new();
        for path in names.split_terminator('\0') {
            // What is not text, or listed but removed, has nothing to check in it.
            if let Ok(text) = fs::read_to_string(root.join(path)) {
                files.push(Source { path: path.to_owned(), text });
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Repository { root: root.to_owned(), files })
    }

    fn file(&self, path: &str) -> Option<&Source> {
        self.files.iter().find(|file| file.path == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_keeps_the_house_rules() {
        let findings = check(&Repository::read(&root()).unwrap()).unwrap();
        let broken: Vec<String> = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Broken)
            .map(Finding::to_string)
            .collect();
        assert!(broken.is_empty(), "\n{}", broken.join("\n"));
    }
}
