//! What can be wrong with a GGUF file; every message names the key or the tensor.

use std::fmt;
use std::path::PathBuf;

/// Why a file could not be read as GGUF.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    #[error("cannot read {path:?}: {source}")]
    Io { path: PathBuf, source: std::io::Error },

    #[error("{path:?} is not a regular file; give the path of a .gguf file")]
    NotAFile { path: PathBuf },

    #[error("not a GGUF file: it begins with {found:?} instead of \"GGUF\"")]
    Magic { found: String },

    #[error(
        "the file is big-endian GGUF, which is not supported; convert the model for a little-endian machine"
    )]
    BigEndian,

    #[error("GGUF version {0} is not supported, only 2 and 3 are; convert the model anew")]
    Version(u32),

    #[error(
        "the file ends inside {place}: {needed} bytes are needed at offset {offset}, but it has {size} in all"
    )]
    Truncated { place: String, needed: u64, offset: usize, size: usize },

    #[error("the header claims {count} {what}; at most {limit} are allowed")]
    TooMany { what: &'static str, count: u64, limit: u64 },

    #[error("metadata key {}: {problem}", Name(key))]
    Key { key: String, problem: String },

    #[error("tensor {}: {problem}", Name(tensor))]
    Tensor { tensor: String, problem: String },

    #[error("cannot ask for the file's size: {source}")]
    Stat { source: std::io::Error },

    #[error("the file shrank from {opened} to {now} bytes while it was being loaded; download it again")]
    Shrunk { opened: u64, now: u64 },
}

impl GgufError {
    pub(crate) fn key(key: impl Into<String>, problem: impl Into<String>) -> GgufError {
        GgufError::Key { key: key.into(), problem: problem.into() }
    }

    pub(crate) fn tensor(tensor: impl Into<String>, problem: impl Into<String>) -> GgufError {
        GgufError::Tensor { tensor: tensor.into(), problem: problem.into() }
    }
}

/// A name out of the file as a message shows it: quoted, escaped, and cut to a length that fits a terminal.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 100;
        match self.0.char_indices().nth(SHOWN) {
            Some((cut, _)) => write!(f, "{:?}... ({} bytes)", &self.0[..cut], self.0.len()),
            None => write!(f, "{:?}", self.0),
        }
    }
}
