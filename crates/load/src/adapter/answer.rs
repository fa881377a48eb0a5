//! Reads answers in OpenAI's format, of chat and of completions, streamed or whole, and what of it servers really send:
//! reasoning under two names, usage in every frame or at the end, errors in band, content as a list of parts.
//!
//! A frame's token count is taken from what the server says (token ids, log-probabilities, a running count), never from its text.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::number::count;
use super::{Frame, Read};
use crate::sample::{Channel, CountSource, ServerAccount, Tokens};

/// Bytes of a frame that an error message quotes at most.
const EXCERPT_BYTES: usize = 120;

/// One answer, as far as it has been read.
#[derive(Default)]
pub(super) struct Answer {
    text: String,
    finish_reason: Option<String>,
    request_id: Option<String>,
    usage: Usage,
    counter: Counter,
    /// Listed tokens of frames whose text came later, or never.
    held: u32,
    /// The same by the running count, since the last frame with text.
    silent: u32,
    /// How many frames carried tokens, and how many of them said how many.
    frames: usize,
    counted: usize,
}

/// The server's running count of tokens, which some send with every frame.
#[derive(Default)]
enum Counter {
    /// No token has come yet.
    #[default]
    Unknown,
    /// The count after the last frame.
    At(u32),
    /// A frame with tokens came without a count, so that a later count would be of more than its own frame.
    Absent,
}

impl Counter {
    /// The tokens that `now` is beyond the count after the last frame with text.
    fn since(&self, now: Option<u32>) -> Option<u32> {
        match self {
            Counter::Unknown => now,
            Counter::At(before) => Some(now?.saturating_sub(*before)),
            Counter::Absent => None,
        }
    }

    /// The tokens since the last frame.
    fn step(&mut self, now: Option<u32>) -> Option<u32> {
        let before = match self {
            Counter::Unknown => 0,
            Counter::At(before) => *before,
            Counter::Absent => return None,
        };
        // A first frame with a count of nothing is of a server that counts at the end only.
        match now.filter(|now| *now > 0) {
            Some(now) => {
                *self = Counter::At(now);
                Some(now.saturating_sub(before))
            }
            None => {
                *self = Counter::Absent;
                None
            }
        }
    }
}

impl Answer {
    pub(super) fn header(&mut self, name: &str, value: &str) {
        if name == "x-request-id" && self.request_id.is_none() {
            self.request_id = Some(value.to_owned());
        }
    }

    /// Reads one frame, or a whole body. `counter` is the server's running count of tokens where it is not in `usage`.
    pub(super) fn frame(&mut self, data: &str, counter: Option<u32>) -> Frame {
        let data = data.trim();
        if data == "[DONE]" {
            return Frame::Done;
        }
        let event: Event = match serde_json::from_str(data) {
            Ok(event) => event,
            Err(error) => return Frame::Malformed { detail: format!("{error}, in {}", excerpt(data)) },
        };
        if let Some(detail) = event.error_detail() {
            return Frame::Error { detail };
        }
        if event.choices.is_none() && event.usage.is_none() && event.object.is_none() && event.id.is_none() {
            let detail = format!("neither choices nor usage nor an error in {}", excerpt(data));
            return Frame::Malformed { detail };
        }
        let usage = event.usage.unwrap_or_default();
        let frame = self.choices(event.choices.unwrap_or_default(), counter.or(usage.completion_tokens));
        self.usage.take(usage);
        if event.id.as_deref().is_some_and(|id| !id.is_empty()) {
            self.request_id = event.id;
        }
        frame
    }

    fn choices(&mut self, choices: Vec<Choice>, counter: Option<u32>) -> Frame {
        let mut channel = None;
        let mut listed = None;
        let empty = if choices.is_empty() { Frame::Other } else { Frame::Empty };
        for choice in choices {
            if let Some(tokens) = choice.listed_tokens() {
                listed = Some(listed.unwrap_or(0) + tokens);
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                self.finish_reason = Some(reason);
            }
            let said = choice.delta.or(choice.message).unwrap_or_default();
            let answer =
                choice.text.unwrap_or_default() + &said.content.as_ref().map(text_of).unwrap_or_default();
            channel = channel.or(said.channel(&answer));
            if choice.index == 0 {
                self.text.push_str(&answer);
            }
        }
        let Some(channel) = channel else {
            // Ids whose text is held back until a character is whole belong to the frame that brings it.
            self.held += listed.unwrap_or(0);
            if empty == Frame::Empty {
                self.silent = self.counter.since(counter).unwrap_or(self.silent);
            }
            return empty;
        };
        self.silent = 0;
        let stepped = self.counter.step(counter);
        let tokens = listed.map(|tokens| tokens + std::mem::take(&mut self.held)).or(stepped);
        self.frames += 1;
        self.counted += usize::from(tokens.is_some());
        Frame::Tokens { channel, tokens }
    }

    /// Frames so far that carried tokens.
    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    /// What the answer said, with the account that its kind of server gave.
    pub(super) fn end(self, server: ServerAccount) -> Read {
        let source = if self.frames > 0 && self.counted == self.frames {
            CountSource::Server
        } else if self.usage.completion_tokens.is_some() {
            CountSource::Usage
        } else {
            CountSource::Chunks
        };
        let tokens = Tokens {
            prompt: self.usage.prompt_tokens,
            cached: self.usage.cached(),
            output: self.usage.completion_tokens,
            reasoning: self.usage.reasoning(),
            counted: self.held.max(self.silent),
            source,
        };
        Read {
            text: self.text,
            finish_reason: self.finish_reason,
            tokens,
            server,
            request_id: self.request_id,
            frame_tokens: None,
        }
    }
}

/// What a frame, or a whole body, may hold.
#[derive(Deserialize)]
struct Event {
    id: Option<String>,
    object: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<Usage>,
    error: Option<Value>,
    message: Option<Value>,
}

impl Event {
    fn error_detail(&self) -> Option<String> {
        // `{"error": {"message": ...}}` is OpenAI's form; vLLM has had `{"object": "error", "message": ...}`.
        let error = match (&self.error, self.object.as_deref()) {
            (Some(error), _) if !error.is_null() => error,
            (_, Some("error")) => self.message.as_ref()?,
            _ => return None,
        };
        let message = error.get("message").unwrap_or(error);
        Some(message.as_str().map_or_else(|| excerpt(&message.to_string()), str::to_owned))
    }
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
    delta: Option<Said>,
    message: Option<Said>,
    text: Option<String>,
    finish_reason: Option<String>,
    logprobs: Option<Value>,
    token_ids: Option<Vec<IgnoredAny>>,
}

impl Choice {
    /// How many tokens are listed, by id or by log-probability.
    fn listed_tokens(&self) -> Option<u32> {
        let ids = self.token_ids.as_ref().map(Vec::len);
        let listed = ids.or_else(|| {
            let logprobs = self.logprobs.as_ref()?;
            let chat = logprobs.get("content").and_then(Value::as_array);
            chat.or(logprobs.get("tokens").and_then(Value::as_array)).map(Vec::len)
        });
        listed.and_then(|tokens| u32::try_from(tokens).ok())
    }
}

/// A delta, or a whole message.
#[derive(Default, Deserialize)]
struct Said {
    content: Option<Value>,
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
    refusal: Option<Value>,
    tool_calls: Option<Vec<IgnoredAny>>,
    function_call: Option<IgnoredAny>,
}

impl Said {
    /// What it says something in; where in several, the one that the user waits for most.
    fn channel(&self, answer: &str) -> Option<Channel> {
        let said = |value: &Option<Value>| value.as_ref().is_some_and(|value| !text_of(value).is_empty());
        if !answer.is_empty() {
            Some(Channel::Answer)
        } else if self.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
            || self.function_call.is_some()
        {
            Some(Channel::ToolCall)
        } else if said(&self.refusal) {
            Some(Channel::Refusal)
        } else if said(&self.reasoning_content) || said(&self.reasoning) {
            Some(Channel::Reasoning)
        } else {
            None
        }
    }
}

/// A string, or a list of parts that have texts.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
        }
        _ => String::new(),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    #[serde(deserialize_with = "count")]
    prompt_tokens: Option<u32>,
    #[serde(deserialize_with = "count")]
    completion_tokens: Option<u32>,
    prompt_tokens_details: Option<Details>,
    completion_tokens_details: Option<Details>,
    /// SGLang's place for it.
    #[serde(deserialize_with = "count")]
    reasoning_tokens: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    #[serde(deserialize_with = "count")]
    cached_tokens: Option<u32>,
    #[serde(deserialize_with = "count")]
    reasoning_tokens: Option<u32>,
}

impl Usage {
    /// Takes over what a later frame says; what it leaves out stays.
    fn take(&mut self, later: Usage) {
        self.prompt_tokens = later.prompt_tokens.or(self.prompt_tokens);
        self.completion_tokens = later.completion_tokens.or(self.completion_tokens);
        self.prompt_tokens_details = later.prompt_tokens_details.or(self.prompt_tokens_details.take());
        self.completion_tokens_details =
            later.completion_tokens_details.or(self.completion_tokens_details.take());
        self.reasoning_tokens = later.reasoning_tokens.or(self.reasoning_tokens);
    }

    fn cached(&self) -> Option<u32> {
        self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens)
    }

    fn reasoning(&self) -> Option<u32> {
        let details = self.completion_tokens_details.as_ref();
        details.and_then(|details| details.reasoning_tokens).or(self.reasoning_tokens)
    }
}

/// The beginning of a text, on one line.
pub(super) fn excerpt(text: &str) -> String {
    let end = text.floor_char_boundary(EXCERPT_BYTES);
    let cut = if end < text.len() { "..." } else { "" };
    format!("{:?}{cut}", &text[..end])
}
