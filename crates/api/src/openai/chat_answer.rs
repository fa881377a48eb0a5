//! `chat.completion` and its chunks.

use bytes::Bytes;
use protocol::Refusal;
use serde::Serialize;

use super::answer::{self, finish_name, finite, printable};
use crate::wire::{Choice, Delta, Ending, Head, Piece, Wire};

const CHUNK: &str = "chat.completion.chunk";

/// Says an answer the way `/v1/chat/completions` does.
pub struct ChatAnswer {
    head: Head,
}

impl ChatAnswer {
    pub fn new(head: Head) -> Self {
        ChatAnswer { head }
    }

    fn logprobs(&self, pieces: &[Piece]) -> Option<Logprobs> {
        self.head.logprobs.then(|| Logprobs { content: pieces.iter().map(token).collect(), refusal: None })
    }
}

impl Wire for ChatAnswer {
    /// The role comes first, once per choice, with empty content as OpenAI has it.
    fn opening(&mut self, choice: usize) -> Bytes {
        let mut frames = Vec::new();
        let message = DeltaMessage { role: Some("assistant"), content: Some("") };
        let choice = ChunkChoice { index: choice, delta: message, logprobs: None, finish_reason: None };
        answer::chunk(&mut frames, &self.head, CHUNK, &[choice]);
        frames.into()
    }

    /// Text in one chunk, the finish reason in one of its own.
    fn delta(&mut self, delta: &Delta) -> Bytes {
        let mut frames = Vec::new();
        if !delta.text.is_empty() || !delta.pieces.is_empty() {
            let message = DeltaMessage { role: None, content: Some(&delta.text) };
            let logprobs = self.logprobs(&delta.pieces);
            let choice = ChunkChoice { index: delta.choice, delta: message, logprobs, finish_reason: None };
            answer::chunk(&mut frames, &self.head, CHUNK, &[choice]);
        }
        if delta.finish.is_some() {
            let message = DeltaMessage { role: None, content: None };
            let finish_reason = finish_name(delta.finish);
            let choice = ChunkChoice { index: delta.choice, delta: message, logprobs: None, finish_reason };
            answer::chunk(&mut frames, &self.head, CHUNK, &[choice]);
        }
        frames.into()
    }

    fn ending(&mut self, ending: &Ending<'_>) -> Bytes {
        answer::ending(&self.head, CHUNK, ending).into()
    }

    fn failure(&mut self, refusal: &Refusal) -> Bytes {
        answer::failure(refusal).into()
    }

    fn whole(&mut self, choices: &[Choice], ending: &Ending<'_>) -> Bytes {
        let choices: Vec<_> = choices
            .iter()
            .enumerate()
            .map(|(index, choice)| WholeChoice {
                index,
                message: WholeMessage { role: "assistant", content: &choice.text, refusal: None },
                logprobs: self.logprobs(&choice.pieces),
                finish_reason: finish_name(choice.finish),
            })
            .collect();
        answer::whole(&self.head, "chat.completion", &choices, ending).into()
    }
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: usize,
    delta: DeltaMessage<'a>,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Serialize)]
struct DeltaMessage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

#[derive(Serialize)]
struct WholeChoice<'a> {
    index: usize,
    message: WholeMessage<'a>,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Serialize)]
struct WholeMessage<'a> {
    role: &'static str,
    content: &'a str,
    refusal: Option<&'static str>,
}

#[derive(Serialize)]
struct Logprobs {
    content: Vec<Token>,
    refusal: Option<Vec<Token>>,
}

#[derive(Serialize)]
struct Token {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
    top_logprobs: Vec<TopToken>,
}

#[derive(Serialize)]
struct TopToken {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

fn token(piece: &Piece) -> Token {
    Token {
        token: printable(&piece.bytes),
        logprob: finite(piece.logprob),
        bytes: piece.bytes.clone(),
        top_logprobs: piece
            .top
            .iter()
            .map(|top| TopToken {
                token: printable(&top.bytes),
                logprob: finite(top.logprob),
                bytes: top.bytes.clone(),
            })
            .collect(),
    }
}
