//! What each engine step did, for whom, and where its time went.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{RequestId, clock::Ns};

/// Numbers an engine's steps from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepId(pub u64);

/// A part of a step's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Part {
    /// Token ids to embeddings.
    Embedding,
    /// Norms, residual additions and the quantization of activations.
    Norm,
    /// Query, key, value and output projections.
    Projections,
    /// RoPE, KV writes, and attention itself.
    Attention,
    /// Gate, up and down projections, or experts.
    FeedForward,
    /// The output head over the rows that sample.
    Head,
    /// Logits to tokens.
    Sampling,
    /// Planning, block bookkeeping, and handing outputs out.
    Scheduling,
}

impl Part {
    /// All parts, in the order of a step.
    pub const ALL: [Part; 8] = [
        Part::Embedding,
        Part::Norm,
        Part::Projections,
        Part::Attention,
        Part::FeedForward,
        Part::Head,
        Part::Sampling,
        Part::Scheduling,
    ];

    /// The part's name as every view prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Embedding => "embedding",
            Part::Norm => "norm",
            Part::Projections => "projections",
            Part::Attention => "attention",
            Part::FeedForward => "feed_forward",
            Part::Head => "head",
            Part::Sampling => "sampling",
            Part::Scheduling => "scheduling",
        }
    }
}

/// Nanoseconds by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts([u64; Part::ALL.len()]);

impl Parts {
    /// Adds `duration` to `part`.
    pub fn add(&mut self, part: Part, duration: Duration) {
        self.0[part as usize] += duration.as_nanos() as u64;
    }

    /// Nanoseconds spent in `part`.
    pub fn ns(&self, part: Part) -> u64 {
        self.0[part as usize]
    }

    /// Nanoseconds over all parts.
    pub fn total_ns(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Serialize for Parts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Part::ALL.iter().map(|part| (part.name(), self.ns(*part))))
    }
}

/// One request's share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    pub request: RequestId,
    /// Prompt tokens computed (or recomputed after a preemption).
    pub prefill_tokens: usize,
    /// New tokens computed: 1 for a decoding request, else 0.
    pub decode_tokens: usize,
    /// Tokens in the request's KV after the step.
    pub context_tokens: usize,
    /// Nanoseconds of the step's computation that are put down to this request: all of it, divided by what the cost model
    /// thinks each member's tokens take. An estimate, since members are computed together.
    pub service_ns: u64,
}

/// One engine step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepRecord {
    pub id: StepId,
    pub started_ns: Ns,
    pub ended_ns: Ns,
    /// How long it was expected to take; `None` before anything was known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast_ns: Option<u64>,
    pub members: Vec<Member>,
    pub parts: Parts,
    /// KV blocks free after the step, of all; those that only the prefix cache keeps included.
    pub blocks_free: usize,
    /// KV blocks that only the prefix cache keeps.
    pub blocks_cached: usize,
    pub blocks_total: usize,
    /// Requests that were left waiting.
    pub waiting: usize,
}
