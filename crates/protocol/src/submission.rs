//! What a backend is handed: one choice of a request, in tokens.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

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
    pub terms: Terms,
    /// `seed` is settled: the request's, plus the choice's index.
    pub sampling: Sampling,
    /// The model's end-of-generation tokens.
    pub eog: Arc<[TokenId]>,
}

/// On what terms a sequence is served, compared with others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Its class, within [`PRIORITIES`]: lower ones go first.
    pub priority: i8,
    /// Whose it is: tenants of one class get shares of the service, however many sequences they have.
    pub tenant: Option<Arc<str>>,
    /// How long after its submission its first token is still of use.
    pub first_token_within: Option<Duration>,
}

/// Classes that there are.
pub const PRIORITIES: RangeInclusive<i8> = -10..=10;
