//! Where models lie: the cache folder, the places inside it, and what is there.
//!
//! `models/FILE` is a finished file; `partial/NAME/` holds what has arrived of an unfinished one; `partial/NAME.lock` is
//! held by the process that is fetching it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::CatalogueError;
use crate::model::Model;

/// The folder Firstlight keeps what it fetches in: `FIRSTLIGHT_CACHE` as it is, or else a folder named `firstlight` in
/// the user's cache folder (`XDG_CACHE_HOME`, or what the system uses).
pub fn cache_dir() -> Result<PathBuf, CatalogueError> {
    folder_from(|name| env::var_os(name).filter(|value| !value.is_empty()))
}

fn folder_from(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, CatalogueError> {
    if let Some(folder) = variable("FIRSTLIGHT_CACHE") {
        return Ok(PathBuf::from(folder));
    }
    let base = if let Some(folder) = variable("XDG_CACHE_HOME") {
        Some(PathBuf::from(folder))
    } else if cfg!(windows) {
        variable("LOCALAPPDATA").map(PathBuf::from)
    } else if cfg!(target_os = "macos") {
        variable("HOME").map(|home| Path::new(&home).join("Library").join("Caches"))
    } else {
        variable("HOME").map(|home| Path::new(&home).join(".cache"))
    };
    base.map(|folder| folder.join("firstlight")).ok_or(CatalogueError::NoCacheFolder)
}

/// Whether a model is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Checked when it was fetched, and of the right length now.
    Present,
    /// Some of it has arrived.
    Partial {
        bytes: u64,
    },
    Absent,
}

/// One line of `firstlight model ls`.
#[derive(Clone, Debug)]
pub struct Listing<'a> {
    pub model: &'a Model,
    pub presence: Presence,
    /// Where the file is, or will be.
    pub path: PathBuf,
}

pub(crate) fn listing<'a>(folder: &Path, model: &'a Model) -> Listing<'a> {
    let place = Place::of(folder, model);
    let presence = if place.is_finished(model) {
        Presence::Present
    } else {
        match bytes_in(&place.partial) {
            0 => Presence::Absent,
            bytes => Presence::Partial { bytes },
        }
    };
    Listing { model, presence, path: place.file }
}

/// The places that belong to one model.
pub(crate) struct Place {
    pub file: PathBuf,
    pub partial: PathBuf,
    pub lock: PathBuf,
}

impl Place {
    pub fn of(folder: &Path, model: &Model) -> Place {
        let partial = folder.join("partial");
        Place {
            file: folder.join("models").join(model.file),
            lock: partial.join(format!("{}.lock", model.name)),
            partial: partial.join(model.name),
        }
    }

    /// A file of another length is not the model, whatever its name: someone else wrote it, and it is replaced.
    pub fn is_finished(&self, model: &Model) -> bool {
        fs::metadata(&self.file).is_ok_and(|found| found.is_file() && found.len() == model.bytes)
    }
}

/// The length of everything under `folder`; nothing when it does not exist.
pub(crate) fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let lengths = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_in(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    lengths.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(variables: &[(&str, &str)], expected: Option<&str>) {
        let look_up = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        assert_eq!(folder_from(look_up).ok(), expected.map(PathBuf::from));
    }

    #[test]
    fn the_most_specific_variable_names_the_cache_folder() {
        check(&[("FIRSTLIGHT_CACHE", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")], Some("/a"));
        check(&[("XDG_CACHE_HOME", "/b"), ("HOME", "/c")], Some("/b/firstlight"));
        check(&[], None);
    }

    #[cfg(all(unix, not(target_os = "macos")))]
    #[test]
    fn without_variables_it_lies_in_the_home_folder() {
        check(&[("HOME", "/c")], Some("/c/.cache/firstlight"));
    }
}
