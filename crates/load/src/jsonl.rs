//! Files of one JSON value a line, read with bounds.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Bytes of the longest line that is read.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 20;
/// Lines of the longest file that is read.
pub(crate) const LINES_MAX: u64 = 10_000_000;

/// A line that is not blank.
pub(crate) struct Line<'a> {
    /// From 1.
    pub number: u64,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Without its end.
    pub bytes: &'a [u8],
}

/// Shows every line that is not blank to `see`, in order. A mark of UTF-8 at the beginning is passed over.
pub(crate) fn for_each_line(path: &Path, mut see: impl FnMut(Line<'_>) -> Result<()>) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut reader = BufReader::new(file);
    let (mut line, mut offset) = (Vec::new(), 0_u64);
    for number in 1..=LINES_MAX + 1 {
        line.clear();
        let read = (&mut reader)
            .take(LINE_BYTES_MAX as u64 + 1)
            .read_until(b'\n', &mut line)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if read == 0 {
            return Ok(());
        }
        let mark = if number == 1 && line.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let bytes = line[mark..].trim_ascii_end();
        if number == 1 && bytes.trim_ascii_start().starts_with(b"[") {
            bail!(
                "{} is one JSON array, not one object a line; `jq -c '.[]' FILE > LINES` makes lines of it",
                path.display()
            );
        }
        if read > LINE_BYTES_MAX {
            bail!("{}, line {number}: longer than {LINE_BYTES_MAX} bytes", path.display());
        }
        if !bytes.is_empty() {
            see(Line { number, offset: offset + mark as u64, bytes })?;
        }
        offset += read as u64;
    }
    bail!("{} has more than {LINES_MAX} lines", path.display())
}
