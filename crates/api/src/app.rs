//! What all requests share.

use std::sync::Arc;
use std::time::Duration;

use protocol::Limits;

use crate::Backend;
use crate::drain::Drain;
use crate::ring::Ring;

/// The served models and the rules of the house.
pub struct App {
    /// At least one; the first answers requests that name no model.
    pub models: Vec<Served>,
    pub limits: Limits,
    /// Keys that clients may present; empty: none is asked for.
    pub keys: Vec<String>,
    /// Whether the listener is on a loopback address (keyless servers then check the Host header).
    pub loopback: bool,
    /// How often a silent stream says that it lives.
    pub keepalive: Duration,
    /// The last accounts, for `/v1/requests`.
    pub records: Ring,
    /// Whether the server is going down.
    pub drain: Drain,
}

/// One model as the edge sees it.
pub struct Served {
    /// The name answers carry, then its other names.
    pub names: Vec<String>,
    /// Unix seconds, for `/v1/models`.
    pub created: u64,
    /// Tokens that prompt and answer may have together.
    pub context: usize,
    /// Rows of the output head.
    pub vocabulary: usize,
    pub backend: Arc<dyn Backend>,
}

impl App {
    /// The model a request names; a missing or empty name means the first.
    pub fn model(&self, name: &str) -> Option<&Served> {
        if name.is_empty() {
            return self.models.first();
        }
        self.models.iter().find(|served| served.names.iter().any(|known| known == name))
    }
}

#[cfg(test)]
impl App {
    /// An app without models or keys.
    pub(crate) fn for_tests() -> Self {
        App {
            models: Vec::new(),
            limits: Limits::default(),
            keys: Vec::new(),
            loopback: false,
            keepalive: Duration::from_secs(10),
            records: Ring::default(),
            drain: Drain::default(),
        }
    }
}
