//! What a backend is handed: one choice of a request, in tokens.

use std::sync::Arc;

use crate::{RequestId, Sampling, TokenId};

/// One sequence to generate.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The request's id; all its choices share it.
    pub request: RequestId,
    /// Which choice this is.
    pub choice: usize,
    /// At least one token; shorter than the context.
    pub prompt: Arc<[TokenId]>,
    /// Sequences share computed blocks only with those of the same salt.
    pub cache_salt: Option<Arc<str>>,
    /// `seed` is settled: the request's, plus the choice's index.
    pub sampling: Sampling,
    /// The model's end-of-generation tokens.
    pub eog: Arc<[TokenId]>,
}
