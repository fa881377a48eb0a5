//! What both OpenAI answers are made of.

use ledger::Record;
use protocol::{Finish, Refusal};
use serde::{Serialize, Serializer};

use crate::errors::Fault;
use crate::sse;
use crate::wire::{Ending, Head, Usage};

/// A chunk of a stream, or the whole answer: `C` is what the endpoint calls a choice.
#[derive(Serialize)]
pub struct Envelope<'a, C> {
    #[serde(serialize_with = "display")]
    pub id: ledger::RequestId,
    pub object: &'static str,
    pub created: u64,
    pub model: &'a str,
    pub choices: &'a [C],
    #[serde(skip_serializing_if = "UsageField::is_absent")]
    pub usage: UsageField<'a>,
    /// Our extension: the request's own account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<&'a Record>,
}

/// `usage` is absent unless asked for; where it was, all chunks but the last say null.
#[derive(Clone, Copy)]
pub enum UsageField<'a> {
    Absent,
    Null,
    Known(&'a Ending<'a>),
}

impl UsageField<'_> {
    fn is_absent(&self) -> bool {
        matches!(self, UsageField::Absent)
    }
}

impl Serialize for UsageField<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let UsageField::Known(ending) = self else { return serializer.serialize_none() };
        let Usage { prompt_tokens, cached_tokens, completion_tokens } = ending.usage;
        UsageBody {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens },
            ttft_ns: ending.lifecycle.and_then(|record| record.ttft_ns),
            e2e_ns: ending.lifecycle.map(|record| record.e2e_ns),
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
struct UsageBody {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
    /// Our extension, with `lifecycle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttft_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e2e_ns: Option<u64>,
}

#[derive(Serialize)]
struct PromptDetails {
    cached_tokens: usize,
}

/// Appends one chunk with `choices`.
pub fn chunk<C: Serialize>(frames: &mut Vec<u8>, head: &Head, object: &'static str, choices: &[C]) {
    let usage = if head.include_usage { UsageField::Null } else { UsageField::Absent };
    sse::event(frames, &envelope(head, object, choices, usage, None));
}

/// The frames that end a stream: a chunk without choices for what was asked for, then the end mark.
pub fn ending(head: &Head, object: &'static str, ending: &Ending<'_>) -> Vec<u8> {
    let mut frames = Vec::new();
    if head.include_usage || ending.lifecycle.is_some() {
        let usage = if head.include_usage { UsageField::Known(ending) } else { UsageField::Absent };
        sse::event(&mut frames, &envelope::<()>(head, object, &[], usage, ending.lifecycle));
    }
    frames.extend_from_slice(sse::DONE);
    frames
}

/// The frames that end a stream that failed: an error in band, then the end mark. No usage, since nothing succeeded.
pub fn failure(refusal: &Refusal) -> Vec<u8> {
    let json = Fault::from(refusal.clone()).json();
    let mut frames = Vec::with_capacity(json.len() + 32);
    frames.extend_from_slice(b"data: ");
    frames.extend_from_slice(json.as_bytes());
    frames.extend_from_slice(b"\n\n");
    frames.extend_from_slice(sse::DONE);
    frames
}

/// The answer in one piece.
pub fn whole<C: Serialize>(head: &Head, object: &'static str, choices: &[C], ending: &Ending<'_>) -> Vec<u8> {
    let usage = UsageField::Known(ending);
    serde_json::to_vec(&envelope(head, object, choices, usage, ending.lifecycle))
        .expect("an answer's strings and numbers always serialize")
}

fn envelope<'a, C>(
    head: &'a Head,
    object: &'static str,
    choices: &'a [C],
    usage: UsageField<'a>,
    lifecycle: Option<&'a Record>,
) -> Envelope<'a, C> {
    Envelope { id: head.id, object, created: head.created, model: &head.model, choices, usage, lifecycle }
}

fn display<S: Serializer>(value: &impl std::fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// A finish reason's name on the wire.
pub fn finish_name(finish: Option<Finish>) -> Option<&'static str> {
    finish.map(Finish::name)
}

/// A token's bytes as text that JSON can carry: characters as they are, and bytes that belong to none as `\xNN`.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// JSON has no infinity; OpenAI's API uses this number for "practically impossible".
pub fn finite(logprob: f32) -> f32 {
    const FLOOR: f32 = -9999.0;
    logprob.max(FLOOR)
}
