//! Why a request waits, and for whom.

use serde::{Deserialize, Serialize};

/// Identifies one request (or one of its choices) inside a process; printed as `req-` and 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "req-{:016x}", self.0)
    }
}

impl std::str::FromStr for RequestId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("req-").filter(|digits| digits.len() == 16);
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(RequestId)
            .ok_or_else(|| format!("{text:?} is not a request id: expected req- and 16 hexadecimal digits"))
    }
}

impl Serialize for RequestId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Why a wait goes on. A wait whose cause changes is split into two segments.
///
/// Requests named by a cause are capped at [`Cause::NAMED_MAX`], so that a crowded engine does not make records grow.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Cause {
    /// Too few free KV blocks: `needed` are wanted, `free` exist, and `holders` hold the rest.
    NoFreeBlocks { needed: usize, free: usize, holders: Vec<RequestId> },
    /// As many sequences run as may.
    BatchFull { running: usize, max: usize },
    /// The step's token budget went to the prefill of others.
    TokenBudget { budget: usize, prefill_of: Vec<RequestId> },
    /// More would make the step longer than those who decode in it are to wait; what time there is goes to the prefill of others.
    StepTime { target_ns: u64, prefill_of: Vec<RequestId> },
    /// A request of higher priority goes first.
    HigherPriority { behind: RequestId },
    /// Requests that arrived earlier go first.
    Behind { ahead: usize, next: RequestId },
    /// Another request is computing the same prefix.
    SamePrefix { by: RequestId },
    /// The client does not read: the sequence pauses until its outbox has room.
    ClientSlow,
    /// The engine is executing a step that began before the request was there.
    StepRunning,
    /// The model is not loaded yet.
    ModelLoading,
    /// The server is shutting down.
    Draining,
}

impl Cause {
    /// How many requests a cause names at most.
    pub const NAMED_MAX: usize = 8;
}
