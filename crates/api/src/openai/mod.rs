//! OpenAI's wire formats: bytes to a [`protocol::Request`], and answers to bytes.

pub mod chat;
pub mod completions;
mod messages;
pub(crate) mod shared;
mod answer;
pub mod chat_answer;
pub mod completions_answer;
pub mod models;

use protocol::{Limits, Refusal, Request, RequestId};

use crate::wire::{Head, Wire};

/// The two generating endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Chat,
    Completions,
}

impl Format {
    /// Bytes to a validated request.
    ///
    /// # Errors
    /// A refusal that names the field at fault.
    pub fn parse(self, id: RequestId, body: &[u8], limits: &Limits) -> Result<Request, Refusal> {
        match self {
            Format::Chat => chat::parse(id, body, limits),
            Format::Completions => completions::parse(id, body, limits),
        }
    }

    /// How its answers are said.
    pub fn wire(self, head: Head) -> Box<dyn Wire> {
        match self {
            Format::Chat => Box::new(chat_answer::ChatAnswer::new(head)),
            Format::Completions => Box::new(completions_answer::CompletionsAnswer::new(head)),
        }
    }
}

#[cfg(test)]
mod answer_tests;
