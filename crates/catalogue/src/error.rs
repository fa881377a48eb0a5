//! What can go wrong, as messages that say what happened, why, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the catalogue as a whole.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    #[error("no model is called {name:?}{hint}; known models: {known}. A path to a .gguf file works as well")]
    UnknownModel { name: String, hint: String, known: String },

    #[error("there is no file at {}; give the path of a .gguf file, or the name of a model (see `firstlight model ls`)", .path.display())]
    NoSuchFile { path: PathBuf },

    #[error("{} is not a GGUF file: it {found}; convert the model to GGUF first", .path.display())]
    NotGguf { path: PathBuf, found: String },

    #[error(
        "no folder to keep models in: none of FIRSTLIGHT_CACHE, XDG_CACHE_HOME and HOME is set; set FIRSTLIGHT_CACHE"
    )]
    NoCacheFolder,

    #[error(
        "not enough disk space in {}: {needed} are needed and {free} are free; free some, or set FIRSTLIGHT_CACHE to a folder with room",
        .folder.display()
    )]
    Space { folder: PathBuf, needed: String, free: String },

    #[error("could not {doing} {}: {source}", .path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },

    /// Every source was tried; each line says why it did not work.
    #[error("could not fetch {model}:{}\nWhat has arrived is kept; the same command goes on from there", list(.attempts))]
    AllSourcesFailed { model: &'static str, attempts: Vec<(String, FetchError)> },
}

/// Why one source of a model did not work. The next one is tried, except when the disk is full.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("not reachable: {0}")]
    Unreachable(String),

    #[error("switched off by {0}")]
    Off(&'static str),

    #[error(
        "Python's pip is needed to read a package index, and {0}; install Python 3 with pip (`apt install python3-pip`, `brew install python`, or `python3 -m ensurepip --upgrade`), or set FIRSTLIGHT_PYTHON to an interpreter that has it"
    )]
    NoPip(String),

    #[error("{0}")]
    Refused(String),

    #[error("{what} arrived damaged: {found}")]
    Damaged { what: String, found: String },

    #[error("the disk is full")]
    StorageFull,

    #[error("could not {doing} {}: {source}", .path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

impl CatalogueError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| CatalogueError::Io { doing, path, source }
    }
}

impl FetchError {
    /// A full disk is told apart, because no other source helps against it.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FetchError::StorageFull,
            _ => FetchError::Io { doing, path, source },
        }
    }
}

fn list(attempts: &[(String, FetchError)]) -> String {
    attempts.iter().map(|(source, error)| format!("\n  - {source}: {error}")).collect()
}
