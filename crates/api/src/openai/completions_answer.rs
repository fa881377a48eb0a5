//! `text_completion` and its chunks.

use bytes::Bytes;
use protocol::Refusal;
use serde::Serialize;
use serde_json::{Map, Value};

use super::answer::{self, finish_name, finite, printable};
use crate::wire::{Choice, Delta, Ending, Head, Piece, Wire};

const OBJECT: &str = "text_completion";

/// Says an answer the way `/v1/completions` does.
pub struct CompletionsAnswer {
    head: Head,
    /// Characters said so far, by choice.
    said: Vec<usize>,
}

impl CompletionsAnswer {
    pub fn new(head: Head) -> Self {
        let said = vec![0; head.choices];
        CompletionsAnswer { head, said }
    }

    fn logprobs(&self, pieces: &[Piece], said: usize) -> Option<Logprobs> {
        self.head.logprobs.then(|| logprobs(pieces, said))
    }
}

impl Wire for CompletionsAnswer {
    /// This format has no opening.
    fn opening(&mut self, _choice: usize) -> Bytes {
        Bytes::new()
    }

    /// Text in one chunk, the finish reason in one of its own.
    fn delta(&mut self, delta: &Delta) -> Bytes {
        let mut frames = Vec::new();
        let index = delta.choice;
        if !delta.text.is_empty() || !delta.pieces.is_empty() {
            // An echoed prompt comes without pieces, and then without log-probabilities.
            let logprobs = self.logprobs(&delta.pieces, self.said[index]);
            let choice = TextChoice { text: &delta.text, index, logprobs, finish_reason: None };
            answer::chunk(&mut frames, &self.head, OBJECT, &[choice]);
            self.said[index] += delta.text.chars().count();
        }
        if delta.finish.is_some() {
            let choice =
                TextChoice { text: "", index, logprobs: None, finish_reason: finish_name(delta.finish) };
            answer::chunk(&mut frames, &self.head, OBJECT, &[choice]);
        }
        frames.into()
    }

    fn ending(&mut self, ending: &Ending<'_>) -> Bytes {
        answer::ending(&self.head, OBJECT, ending).into()
    }

    fn failure(&mut self, refusal: &Refusal) -> Bytes {
        answer::failure(refusal).into()
    }

    fn whole(&mut self, choices: &[Choice], ending: &Ending<'_>) -> Bytes {
        let choices: Vec<_> = choices
            .iter()
            .enumerate()
            .map(|(index, choice)| TextChoice {
                text: &choice.text,
                index,
                logprobs: self.logprobs(&choice.pieces, 0),
                finish_reason: finish_name(choice.finish),
            })
            .collect();
        answer::whole(&self.head, OBJECT, &choices, ending).into()
    }
}

#[derive(Serialize)]
struct TextChoice<'a> {
    text: &'a str,
    index: usize,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
}

/// Four parallel arrays, one entry per token.
#[derive(Serialize)]
struct Logprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<f32>,
    top_logprobs: Vec<Map<String, Value>>,
    /// Where each token begins, in characters from the text's beginning; a token that begins inside a character counts
    /// from that character.
    text_offset: Vec<usize>,
}

fn logprobs(pieces: &[Piece], said: usize) -> Logprobs {
    let continues = |bytes: &[u8]| bytes.first().is_some_and(|byte| byte & 0xC0 == 0x80);
    let starts = |bytes: &[u8]| bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count();
    // Characters begun before the next token. Deltas end with whole characters, so none is in progress at first.
    let mut begun = said;
    let mut offsets = Vec::with_capacity(pieces.len());
    for piece in pieces {
        offsets.push(begun.saturating_sub(usize::from(continues(&piece.bytes))));
        begun += starts(&piece.bytes);
    }
    Logprobs {
        tokens: pieces.iter().map(|piece| printable(&piece.bytes)).collect(),
        token_logprobs: pieces.iter().map(|piece| finite(piece.logprob)).collect(),
        top_logprobs: pieces.iter().map(top).collect(),
        text_offset: offsets,
    }
}

/// The alternatives, and the chosen token even where it is not among them, as OpenAI's API has it.
fn top(piece: &Piece) -> Map<String, Value> {
    let alternatives = piece.top.iter().map(|top| (printable(&top.bytes), finite(top.logprob).into()));
    let mut top: Map<String, Value> = alternatives.collect();
    top.entry(printable(&piece.bytes)).or_insert_with(|| finite(piece.logprob).into());
    top
}
