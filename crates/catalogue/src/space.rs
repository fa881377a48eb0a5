//! Disk space: looked at before a source is tried, so that an hour's download does not end in a full disk.

use std::fs;
use std::path::Path;

use crate::assemble;
use crate::error::CatalogueError;
use crate::model::{Model, Source};

/// Refuses when the disk has less room than `source` will need.
pub(crate) fn check(model: &Model, source: &Source, partial: &Path) -> Result<(), CatalogueError> {
    let free =
        fs4::available_space(partial).map_err(CatalogueError::io("look for disk space in", partial))?;
    enough(needed(model, source, partial), free, partial)
}

/// The error for a disk that filled up all the same, because others write to it too.
pub(crate) fn full(model: &Model, source: &Source, partial: &Path) -> CatalogueError {
    let free = fs4::available_space(partial).unwrap_or(0);
    space_error(needed(model, source, partial), free, partial)
}

fn enough(needed: u64, free: u64, folder: &Path) -> Result<(), CatalogueError> {
    if needed <= free { Ok(()) } else { Err(space_error(needed, free, folder)) }
}

fn space_error(needed: u64, free: u64, folder: &Path) -> CatalogueError {
    CatalogueError::Space { folder: folder.to_owned(), needed: in_words(needed), free: in_words(free) }
}

/// The most that will lie on the disk at once, beyond what lies there already.
fn needed(model: &Model, source: &Source, partial: &Path) -> u64 {
    match source {
        Source::Hub(_) => {
            let have = fs::metadata(partial.join("hub")).map_or(0, |found| found.len());
            model.bytes.saturating_sub(have)
        }
        Source::Wheels(parts) => {
            let missing = || assemble::missing(parts, partial);
            let arriving: u64 = missing().map(|part| part.bytes).sum();
            // Pip holds a wheel twice for a moment, in its temporary folder and in ours.
            let wheel = 2 * missing().map(|part| part.wheel_bytes).max().unwrap_or(0);
            let joined = if parts.len() > 1 { model.bytes } else { 0 };
            arriving + wheel.max(joined)
        }
    }
}

/// In the unit that disks are sold in.
fn in_words(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_says_how_much_is_needed_and_what_to_do() {
        let error = enough(1_234_567_890, 5_000_000, Path::new("/cache")).unwrap_err().to_string();
        assert!(error.contains("in /cache: 1.2 GB are needed and 5.0 MB are free"), "{error}");
        assert!(error.contains("FIRSTLIGHT_CACHE"), "{error}");
        assert!(enough(5, 5, Path::new("/cache")).is_ok());
    }

    #[test]
    fn parts_that_are_here_need_no_room_again() {
        let folder = tempfile::tempdir().unwrap();
        let model = crate::table::models().pop().unwrap();
        let wheels = model.sources.iter().find(|source| matches!(source, Source::Wheels(_))).unwrap();
        let all = needed(&model, wheels, folder.path());
        assert_eq!(all, 2 * model.bytes);
        let first = fs::File::create(assemble::part_path(folder.path(), 0)).unwrap();
        first.set_len(52_428_800).unwrap();
        assert_eq!(needed(&model, wheels, folder.path()), all - 52_428_800);
    }
}
