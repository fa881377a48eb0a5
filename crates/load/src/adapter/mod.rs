//! What differs between kinds of servers: how a call is written, and what an answer tells besides its text.

use std::sync::Arc;

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
    /// A role, usage, a finish reason, an account: no tokens.
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
    /// Counts as the server gives them; the client adds its own.
    pub tokens: Tokens,
    pub server: ServerAccount,
    /// The server's id of the request.
    pub request_id: Option<String>,
}
