//! The boundaries of one call, as the client saw them. All moments are nanoseconds since the run's start, by one
//! monotonic clock.

use ledger::Stage;
use serde::{Deserialize, Serialize};

use crate::schedule::CallId;

/// Nanoseconds since the run's start.
pub type Ns = u64;

/// What became of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub call: CallId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session: Option<u64>,
    /// What was said, as [`crate::adapter::Resolved::fingerprint`]: two runs are paired only where these are equal. Not of the
    /// body's bytes, which differ between kinds of servers for one and the same call.
    pub body: String,
    pub outcome: Outcome,
    /// When the schedule wanted it sent. Closed loop: when the user was ready to send it.
    pub intended_ns: Ns,
    /// The request's first byte was handed to the socket; absent if no connection was to be had.
    pub sent_ns: Option<Ns>,
    /// The answer's head was read.
    pub headers_ns: Option<Ns>,
    /// The first byte of the answer's body was read.
    pub first_byte_ns: Option<Ns>,
    /// Chunks that carry tokens, in order. Empty frames, comments, role and usage frames are none.
    pub chunks: Vec<Chunk>,
    /// When frames with a choice but no token of it were read, in order: the role, the finish reason. Some tools count them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub empty_frames: Vec<Ns>,
    /// The answer's last byte was read.
    pub last_byte_ns: Option<Ns>,
    pub tokens: Tokens,
    /// What the server says of itself.
    pub server: ServerAccount,
    /// Status line of the answer.
    pub status: Option<u16>,
    pub finish_reason: Option<String>,
    /// Connections tried before one was had.
    pub retries: u32,
}

/// A frame that carried tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// When its last byte was read off the socket.
    pub at_ns: Ns,
    /// Tokens it carried; see [`Tokens::source`] for how they are known.
    pub tokens: u32,
    pub channel: Channel,
}

/// What a token is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    Answer,
    Reasoning,
    ToolCall,
    Refusal,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "snake_case")]
pub enum Outcome {
    Finished,
    /// Finished as the protocol has it, without a single token.
    Empty,
    /// A status other than 2xx.
    Refused {
        detail: String,
    },
    /// An error frame inside a stream that began well.
    ErrorInBand {
        detail: String,
    },
    /// The stream ended without a finish reason.
    CutShort {
        detail: String,
    },
    /// An earlier call that it needed the answer of had failed.
    NotSent {
        detail: String,
    },
    /// No connection, or it broke before the head.
    ConnectionFailed {
        detail: String,
    },
    TimedOut,
    /// Bytes that are not the protocol.
    Malformed {
        detail: String,
    },
    /// Still under way when the run ended; neither a success nor a failure.
    InFlight,
}

impl Outcome {
    /// Counts as an error where objectives are judged.
    pub fn is_failure(&self) -> bool {
        !matches!(self, Outcome::Finished | Outcome::Empty | Outcome::InFlight)
    }

    /// The class's name, as reports group by.
    pub fn class(&self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::Empty => "empty",
            Outcome::Refused { .. } => "refused",
            Outcome::ErrorInBand { .. } => "error_in_band",
            Outcome::CutShort { .. } => "cut_short",
            Outcome::ConnectionFailed { .. } => "connection_failed",
            Outcome::NotSent { .. } => "not_sent",
            Outcome::TimedOut => "timed_out",
            Outcome::Malformed { .. } => "malformed",
            Outcome::InFlight => "in_flight",
        }
    }
}

/// Token counts of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// By the server's usage.
    pub prompt: Option<u32>,
    /// Prompt tokens that the server served from its cache.
    pub cached: Option<u32>,
    pub output: Option<u32>,
    /// A part of `output`.
    pub reasoning: Option<u32>,
    /// Tokens counted chunk by chunk, and those behind the last chunk that the server told of.
    pub counted: u32,
    pub source: CountSource,
}

/// Where the counts of chunks come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountSource {
    /// The server said of each chunk how many tokens it carries (token ids, log-probabilities, or its own account).
    Server,
    /// Usage says how many in all; each chunk is taken for one, and the rest is dealt to the chunks in order, evenly.
    Usage,
    /// Each chunk is taken for one token.
    #[default]
    Chunks,
}

/// What a server told of one call, in our stages. Durations, since its clock is not ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAccount {
    /// `firstlight`, `llama.cpp`, `vllm`, `sglang`, or `opaque`.
    pub kind: String,
    /// Nanoseconds by stage until the first token was handed over; what the server does not show is missing.
    pub to_first_token: Vec<(Stage, u64)>,
    /// Nanoseconds by stage from then on.
    pub after_it: Vec<(Stage, u64)>,
    /// What the numbers leave out, in words, such as "template and tokenization are not in prompt_ms".
    pub left_out: Option<String>,
}
