//! Test support: builds small model files, whole or with a single field overwritten.
//!
//! **Invariant:** what [`FileBuilder::build`] writes follows the format to the letter, so that a test's one overwritten
//! field is the only thing wrong with the file.

mod file;
mod tiny;

pub use file::{Datum, FileBuilder, Image};
pub use tiny::{Random, tiny_model};
