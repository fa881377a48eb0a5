//! What a backend answers: one token at a time.

use ledger::{Miss, StepId, Timeline};

use crate::{Refusal, TokenId};

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finish {
    /// An end-of-generation token, a stop token, or a stop string.
    Stop,
    /// The token limit or the context's end.
    Length,
}

impl Finish {
    /// The reason's name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
        }
    }
}

/// A token and the logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopLogprob {
    pub token: TokenId,
    pub logprob: f32,
}

/// Log-probabilities at one position, of the model's own distribution (before temperature and truncation, after bias
/// and penalties).
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub chosen: TopLogprob,
    /// The best alternatives, most probable first; the chosen token is among them if it ranks so high.
    pub top: Vec<TopLogprob>,
}

/// What a backend says of one sequence.
#[derive(Clone, Debug)]
pub enum Output {
    /// A sampled token.
    Token {
        token: TokenId,
        logprob: Option<TokenLogprob>,
        /// Set on the last token.
        finish: Option<Finish>,
        /// Since the previous token was handed out (for the first: since the submission), ending in `return`.
        timeline: Timeline,
        step: StepId,
        /// Prompt tokens that were not computed because their KV existed already.
        cached_tokens: usize,
        /// Why there were not more of them, with the first token.
        miss: Option<Miss>,
    },
    /// The sequence ended without a further token because something broke.
    Failed { refusal: Refusal, timeline: Timeline },
    /// The sequence was cancelled by its receiver; its blocks are back.
    Cancelled { timeline: Timeline },
}
