//! How an answer is said on the wire: the seam between a request's life cycle and the wire formats.
//!
//! **Invariant:** a [`Delta`]'s pieces are exactly the tokens whose text it carries.

use bytes::Bytes;
use ledger::{Record, RequestId};
use protocol::{Finish, Refusal, Request};

/// What all frames of an answer share.
#[derive(Clone, Debug)]
pub struct Head {
    pub id: RequestId,
    /// The model's name as it is served.
    pub model: String,
    /// Unix seconds.
    pub created: u64,
    /// Choices that the answer has.
    pub choices: usize,
    pub include_usage: bool,
    pub logprobs: bool,
}

impl Head {
    /// The head of an answer to `request` by `model`.
    pub fn of(request: &Request, model: &str, created: u64) -> Self {
        Head {
            id: request.id,
            model: model.to_owned(),
            created,
            choices: request.n * request.inputs.len(),
            include_usage: request.include_usage,
            logprobs: request.sampling.logprobs.is_some(),
        }
    }
}

/// A token as text, for log-probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The token's own bytes, which need not be whole characters.
    pub bytes: Vec<u8>,
    pub logprob: f32,
    /// The best alternatives, most probable first.
    pub top: Vec<Alternative>,
}

/// A token that could have been, as text.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    pub bytes: Vec<u8>,
    pub logprob: f32,
}

/// What is new of one choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    pub choice: usize,
    /// Whole characters; may be empty.
    pub text: String,
    /// The tokens whose text this is, where log-probabilities were asked for. (An echoed prompt has none.)
    pub pieces: Vec<Piece>,
    /// Set on the last delta of its choice.
    pub finish: Option<Finish>,
}

/// All of one choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    pub text: String,
    pub pieces: Vec<Piece>,
    pub finish: Option<Finish>,
}

impl Choice {
    /// Adds what is new.
    pub fn push(&mut self, delta: Delta) {
        self.text.push_str(&delta.text);
        self.pieces.extend(delta.pieces);
        self.finish = self.finish.or(delta.finish);
    }
}

/// How many tokens a request took. Prompts are counted once each, however many choices they have; completion tokens are
/// those sampled, the end-of-generation token included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub completion_tokens: usize,
}

/// What follows the last delta.
#[derive(Clone, Copy, Debug)]
pub struct Ending<'a> {
    pub usage: Usage,
    /// The request's own account so far, where the client asked for it.
    pub lifecycle: Option<&'a Record>,
}

/// A wire format's way to say one answer. A streamed answer is, frame by frame: [`opening`](Wire::opening) once per
/// choice, [`delta`](Wire::delta) as often as there is news, then [`ending`](Wire::ending) or
/// [`failure`](Wire::failure). An answer in one piece is [`whole`](Wire::whole).
pub trait Wire: Send {
    /// Frames that open a choice; may be empty.
    fn opening(&mut self, choice: usize) -> Bytes;

    /// Frames for what is new; may be empty.
    fn delta(&mut self, delta: &Delta) -> Bytes;

    /// The frames that end a stream that succeeded.
    fn ending(&mut self, ending: &Ending<'_>) -> Bytes;

    /// The frames that end a stream that failed after it began.
    fn failure(&mut self, refusal: &Refusal) -> Bytes;

    /// The answer in one piece; choices in order.
    fn whole(&mut self, choices: &[Choice], ending: &Ending<'_>) -> Bytes;
}
