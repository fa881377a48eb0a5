//! What differs between kinds of servers: how a call is written, and what an answer tells besides its text.
//!
//! [`detect`] finds out which kind a URL is, [`of_kind`] gives the adapter for it. All kinds speak OpenAI's format
//! ([`openai`]); the others add what their server tells of itself. What a server tells only in sum, over all requests, is
//! in [`totals`].
//!
//! **Invariant:** a stage that a server does not show is missing from its account, never guessed.

pub mod detect;

pub mod openai;

pub mod firstlight;
pub mod llama_server;
pub mod sglang;
pub mod vllm;

pub mod totals;

mod answer;
mod number;

use std::sync::Arc;

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};

use serde::{Deserialize, Serialize};

use crate::sample::{Channel, ServerAccount, Tokens};
use crate::schedule::CallId;

/// The endpoint that calls go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    Chat,
    Completions,
}

/// A call whose conversation is complete: answers to earlier calls have been put in.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub id: CallId,
    pub prompt: ResolvedPrompt,
    pub max_tokens: u32,
    pub ignore_eos: bool,
}

/// What a resolved call says.
#[derive(Clone, Debug)]
pub enum ResolvedPrompt {
    Text(Arc<str>),
    Tokens(Arc<[u32]>),
    Chat(Vec<(Arc<str>, Arc<str>)>), // role, content
}

impl Resolved {
    /// SHA-256 of what the call says and how long its answer may be, the first 8 bytes in hex. The same on every kind of
    /// server, while the bodies differ by the model's name and by how a kind is asked for its account.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        // Lengths stand before what they measure, so that no two calls are written alike.
        let mut part = |kind: u8, bytes: &[u8]| {
            hash.update([kind]);
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        match &self.prompt {
            ResolvedPrompt::Text(text) => part(0, text.as_bytes()),
            ResolvedPrompt::Tokens(ids) => {
                part(1, &ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>());
            }
            ResolvedPrompt::Chat(messages) => {
                for (role, content) in messages {
                    part(2, role.as_bytes());
                    part(3, content.as_bytes());
                }
            }
        }
        part(4, &self.max_tokens.to_le_bytes());
        part(5, &[u8::from(self.ignore_eos)]);
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What all requests of a run have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    pub model: String,
    pub endpoint: Endpoint,
    pub stream: bool,
    /// Top-level keys of the body that the user wants; they win over ours, and null takes a key out. `stream` is not for
    /// here, since the reader goes by the field above.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// The adapter of a kind; `auto` is not one: see [`detect`].
///
/// # Errors
/// The kind is none of [`KINDS`].
pub fn of_kind(kind: &str, form: Form) -> Result<Arc<dyn Adapter>> {
    Ok(match kind {
        "firstlight" => Arc::new(firstlight::Firstlight::new(form)),
        "llama.cpp" => Arc::new(llama_server::LlamaServer::new(form)),
        "vllm" => Arc::new(vllm::Vllm::new(form)),
        "sglang" => Arc::new(sglang::Sglang::new(form)),
        "opaque" => Arc::new(openai::OpenAi::new(form)),
        _ => bail!("no kind of server is called {kind:?}; there are {}", KINDS.join(", ")),
    })
}

/// All kinds of servers.
pub const KINDS: [&str; 5] = ["firstlight", "llama.cpp", "vllm", "sglang", "opaque"];

/// A request to be written to the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Behind the target's base path, such as `/v1/chat/completions`.
    pub path: String,
    pub body: Vec<u8>,
}

/// A kind of server.
pub trait Adapter: Send + Sync {
    /// `firstlight`, `llama.cpp`, `vllm`, `sglang`, or `opaque`.
    fn kind(&self) -> &'static str;

    /// The request for a call.
    fn write(&self, call: &Resolved) -> Written;

    /// A reader for one answer.
    fn reader(&self) -> Box<dyn AnswerReader>;
}

/// Reads one answer, frame by frame or whole. Time is the client's business.
pub trait AnswerReader: Send {
    /// A head line that the account may be in, such as `server-timing`; names are lower case.
    fn header(&mut self, name: &str, value: &str);

    /// The data of one server-sent event (`[DONE]` included), or the whole body of an answer that is not streamed.
    fn frame(&mut self, data: &str) -> Frame;

    /// What the answer said in all, once the connection has nothing more.
    fn end(self: Box<Self>) -> Read;
}

/// What a frame carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Tokens, of one channel; `tokens` is None where the frame does not say how many.
    Tokens { channel: Channel, tokens: Option<u32> },
    /// A choice without tokens: a role, a finish reason.
    Empty,
    /// Usage, an account: no choice at all.
    Other,
    /// `[DONE]`.
    Done,
    /// An error in band.
    Error { detail: String },
    /// Not what the protocol allows.
    Malformed { detail: String },
}

/// An answer, read to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The answer's text, for later turns of its session.
    pub text: String,
    pub finish_reason: Option<String>,
    /// Counts as the server gives them. `counted` has the tokens that came behind the last text, such as the end of the turn; the
    /// client adds those of the frames.
    pub tokens: Tokens,
    pub server: ServerAccount,
    /// The server's id of the request.
    pub request_id: Option<String>,
    /// Tokens of each frame that was [`Frame::Tokens`], in order, where the server says so only at the end.
    pub frame_tokens: Option<Vec<u32>>,
}
