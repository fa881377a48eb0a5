//! What all made-up workloads share: lengths and texts for a number, put into the endpoint's form.

use std::sync::Arc;

use anyhow::Result;
use rand::rngs::ChaCha12Rng;

use super::Setting;
use super::lengths::Lengths;
use super::text::{Content, Piece, Texts};
use crate::adapter::Endpoint;
use crate::schedule::{Call, CallId, Prompt, Purpose, Said, random_stream};

pub(super) struct Maker {
    pub texts: Texts,
    seed: u64,
    endpoint: Endpoint,
    ignore_eos: bool,
}

impl Maker {
    pub fn new(setting: &Setting) -> Result<Self> {
        Ok(Self {
            texts: Texts::new(&setting.material, setting.seed)?,
            seed: setting.seed,
            endpoint: setting.endpoint,
            ignore_eos: setting.ignore_eos.unwrap_or(true),
        })
    }

    pub fn random(&self, purpose: Purpose, number: u64) -> ChaCha12Rng {
        random_stream(self.seed, purpose, number)
    }

    /// A prompt's length.
    pub fn prompt_length(&self, lengths: &Lengths, number: u64) -> u32 {
        lengths.draw(&mut self.random(Purpose::PromptLength, number))
    }

    /// An answer's length limit.
    pub fn answer_length(&self, lengths: &Lengths, number: u64) -> u32 {
        lengths.draw(&mut self.random(Purpose::AnswerLength, number))
    }

    /// A call that stands alone.
    pub fn single(&self, id: CallId, piece: Piece, max_tokens: u32) -> Call {
        let prompt = match (self.endpoint, piece.content) {
            (Endpoint::Chat, Content::Text(text)) => Prompt::Chat(vec![message("user", text)]),
            (Endpoint::Completions, Content::Text(text)) => Prompt::Text(text),
            (_, Content::Ids(ids)) => Prompt::Tokens(ids),
        };
        Call { prompt_tokens: piece.tokens, ..self.call(id, prompt, max_tokens) }
    }

    /// A call of unknown prompt length that depends on nothing.
    pub fn call(&self, id: CallId, prompt: Prompt, max_tokens: u32) -> Call {
        Call {
            id,
            prompt,
            max_tokens,
            ignore_eos: self.ignore_eos,
            after: Vec::new(),
            session: None,
            prompt_tokens: None,
        }
    }

    /// The workload in one line.
    pub fn describe(&self, shown: &str) -> String {
        format!("{shown} ({})", self.texts.describe())
    }
}

pub(super) fn message(role: &str, content: Arc<str>) -> Said {
    Said::Message { role: role.into(), content }
}

/// A user's message of a conversation, which is text: token ids are refused before.
pub(super) fn user(piece: Piece) -> Said {
    said("user", piece)
}

pub(super) fn said(role: &str, piece: Piece) -> Said {
    match piece.content {
        Content::Text(text) => message(role, text),
        Content::Ids(_) => unreachable!("conversations are not built of token ids"),
    }
}
