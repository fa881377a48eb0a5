//! What all requests share.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderName;
use protocol::{Limits, Refusal, RefusalKind};

use crate::Backend;
use crate::drain::Drain;
use crate::ids::Ids;
use crate::prompt::ModelText;
use crate::ring::Ring;
use crate::throttle::Throttle;

/// The served models and the rules of the house.
pub struct App {
    /// At least one; the first answers requests that name no model.
    pub models: Vec<Served>,
    pub limits: Limits,
    /// Keys that clients may present; empty: none is asked for.
    pub keys: Vec<String>,
    /// The header that names the tenant, for servers behind a gateway that sets it; else whoever holds a key is a tenant.
    pub tenant_header: Option<HeaderName>,
    /// Whether the listener is on a loopback address (keyless servers then check the Host header).
    pub loopback: bool,
    /// How often a silent stream says that it lives.
    pub keepalive: Duration,
    pub throttle: Throttle,
    pub ids: Ids,
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
    pub text: ModelText,
}

impl App {
    /// Requests that the edge holds at once, beyond what the engine queues, where nothing else is configured.
    pub const REQUESTS_MAX: usize = 4096;
    /// The interval of keepalives, where nothing else is configured.
    pub const KEEPALIVE: Duration = Duration::from_secs(10);

    /// Serves `models` without keys, under the documented defaults.
    pub fn new(models: Vec<Served>) -> Self {
        App {
            models,
            limits: Limits::default(),
            keys: Vec::new(),
            tenant_header: None,
            loopback: true,
            keepalive: Self::KEEPALIVE,
            throttle: Throttle::new(Self::REQUESTS_MAX),
            ids: Ids::default(),
            records: Ring::default(),
            drain: Drain::default(),
        }
    }

    /// The model a request names; a missing or empty name means the first.
    ///
    /// # Errors
    /// No such model; says which there are.
    pub fn model(&self, name: &str) -> Result<&Served, Refusal> {
        if name.is_empty() {
            return Ok(&self.models[0]);
        }
        let found = self.models.iter().find(|served| served.names.iter().any(|known| known == name));
        found.ok_or_else(|| {
            let names: Vec<_> = self.models.iter().map(|served| served.names[0].as_str()).collect();
            let message = format!("names no model that is served here; there is: {}", names.join(", "));
            Refusal { kind: RefusalKind::UnknownModel, ..Refusal::invalid("model", message) }
        })
    }
}

#[cfg(test)]
impl App {
    /// An app without models or keys.
    pub(crate) fn for_tests() -> Self {
        App { loopback: false, ..App::new(Vec::new()) }
    }
}
