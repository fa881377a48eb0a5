//! Numbers that are not to be guessed or repeated: request ids and seeds.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::RequestId;

/// Hands out request ids: a random beginning for the process, then a count, so that ids of two processes hardly meet.
#[derive(Debug)]
pub struct Ids(AtomicU64);

impl Default for Ids {
    fn default() -> Self {
        Ids(AtomicU64::new(random() << 32))
    }
}

impl Ids {
    /// The next id.
    pub fn next(&self) -> RequestId {
        RequestId(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// A random number, good enough for a seed: the standard library keys its hashers from the system's entropy.
pub fn random() -> u64 {
    RandomState::new().hash_one(0)
}
