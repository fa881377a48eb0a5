//! Reads GGUF files (versions 2 and 3, little-endian) through a memory map.
//!
//! The format is described in `docs/gguf.md` of the ggml project: a header, typed metadata, a table of tensors, and
//! their data from an aligned offset on.
//!
//! **Invariant:** a file is hostile until proven otherwise. Every length, offset, type, count and shape is compared with
//! the file's size by checked arithmetic before anything is allocated or sliced, so that what [`Gguf::open`] returns can
//! be read without further checks.

mod cursor;
mod error;
mod map;
mod metadata;
mod parse;
mod tensors;

use std::fs::File;
use std::path::Path;

pub use error::GgufError;
pub use metadata::{Array, Metadata, Value, ValueKind, required};
pub use tensors::TensorInfo;

use map::Map;
use tensors::TensorTable;

/// An open model file: its metadata, its tensor table, and the map that holds the tensors' bytes.
#[derive(Debug)]
pub struct Gguf {
    metadata: Metadata,
    tensors: TensorTable,
    map: Map,
}

impl Gguf {
    /// Maps the file and checks all of it except the tensors' values.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        let io = |source| GgufError::Io { path: path.to_owned(), source };
        // Opening a pipe would block for ever, and a directory cannot be mapped.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(GgufError::NotAFile { path: path.to_owned() });
        }
        let map = Map::of(File::open(path).map_err(io)?).map_err(io)?;
        let parse::Parsed { metadata, tensors } = parse::parse(map.bytes())?;
        Ok(Gguf { metadata, tensors, map })
    }

    /// The typed metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in the file's order.
    pub fn tensors(&self) -> &[TensorInfo] {
        self.tensors.all()
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// The bytes of a tensor of this file.
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        &self.map.bytes()[tensor.range()]
    }

    /// The file's size in bytes when it was opened.
    pub fn file_bytes(&self) -> usize {
        self.map.bytes().len()
    }

    /// Fails when the file has become shorter since it was opened. Reading a page that is gone would kill the process,
    /// so a loader asks before each tensor; once the weights are packed the map is not read again.
    pub fn check_still_whole(&self) -> Result<(), GgufError> {
        let now = self.map.file_bytes_now().map_err(|source| GgufError::Stat { source })?;
        let opened = self.file_bytes() as u64;
        if now < opened { Err(GgufError::Shrunk { opened, now }) } else { Ok(()) }
    }

    /// Closes the map and keeps what a model needs after its weights are packed.
    pub fn into_metadata(self) -> Metadata {
        self.metadata
    }
}
