//! From a model file to logits.
//!
//! A GGUF file is mapped and checked ([`gguf`]), its architecture is found in the table of [`families`], its sizes become
//! a [`Config`], its matrices are repacked for the kernels ([`weights`]), and [`Model::forward`] takes a [`Batch`] over
//! paged keys and values ([`KvCache`]) to [`Logits`].
//!
//! **Invariant, by absence:** nothing here knows a request, a schedule or a text.

pub mod gguf;

pub mod families;

pub mod config;
pub mod weights;

pub mod batch;
pub mod kv;
pub mod model;
pub mod transformer;

pub mod error;
pub mod inspect;
pub mod vocabulary;

#[cfg(any(test, feature = "test-support"))]
pub mod testing;

pub use batch::{Batch, BatchSequence};
pub use config::Config;
pub use error::LoadError;
pub use gguf::{Gguf, GgufError};
pub use inspect::Inspection;
pub use kv::KvCache;
pub use model::{LoadOptions, Model};
pub use transformer::Logits;
pub use vocabulary::Vocabulary;
