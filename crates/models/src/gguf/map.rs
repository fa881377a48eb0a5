//! A whole file mapped read-only: the one place of this crate that may be unsafe.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// A read-only map of a regular file, together with the file it maps.
#[derive(Debug)]
pub(super) struct Map {
    file: File,
    /// `None` for an empty file, which cannot be mapped.
    bytes: Option<Mmap>,
}

impl Map {
    pub(super) fn of(file: File) -> io::Result<Map> {
        if file.metadata()?.len() == 0 {
            return Ok(Map { file, bytes: None });
        }
        // SAFETY: the map is private and read-only, and lives as long as the slices taken from it. What the type system
        // cannot promise is that no other process changes the file meanwhile. Changed bytes are harmless: lengths and
        // offsets were copied out when they were checked, and every bit pattern is a valid weight. A file cut short
        // makes the kernel send SIGBUS; `Gguf::check_still_whole` narrows that window to the loading of one tensor.
        let bytes = unsafe { Mmap::map(&file)? };
        Ok(Map { file, bytes: Some(bytes) })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }

    pub(super) fn file_bytes_now(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
