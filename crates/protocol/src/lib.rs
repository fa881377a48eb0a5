//! A request inside Firstlight, after validation and whatever the wire format it came in: every API converts to
//! [`Request`], every backend takes a [`Submission`] and answers with [`Output`]s.
//!
//! **Invariant:** nothing here knows HTTP, text models, or tensors.

pub mod limits;
pub mod message;
pub mod output;
pub mod refusal;
pub mod request;
pub mod sampling;
pub mod submission;
pub mod token;

pub use ledger::RequestId;
pub use limits::Limits;
pub use message::{Content, Message, Role, Tool, ToolCall};
pub use output::{Finish, Output, TokenLogprob, TopLogprob};
pub use refusal::{Refusal, RefusalKind};
pub use request::{Input, Request};
pub use sampling::Sampling;
pub use submission::{PRIORITIES, Submission, Terms};
pub use token::TokenId;
