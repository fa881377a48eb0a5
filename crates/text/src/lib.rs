//! Between text and tokens: a request is rendered by the model's chat template and encoded; an answer's tokens are
//! decoded and watched for stop strings.
//!
//! **Invariant:** what a user typed never becomes a control token, and no piece of an answer ends within a character.

// What the model's file says of its text.
pub mod vocabulary;

// From messages to a prompt's text.
pub mod conversation;
pub mod rendered;
pub mod template;

mod literals;
mod marks;
mod python;

// From text to tokens.
pub mod prompt;
pub mod tokenizer;

mod bytelevel;
mod merge;
mod normalize;
mod pretokenize;
mod special;
mod unicode;

// From tokens to an answer's text.
pub mod answer;
pub mod detokenize;
pub mod stop;

pub use answer::{AnswerText, Delta};
pub use conversation::Conversation;
pub use detokenize::Detokenizer;
pub use prompt::{Prompt, TokenSpan};
pub use rendered::{Rendered, Span};
pub use stop::{StopMatcher, StopStrings};
pub use template::{ChatTemplate, TemplateError};
pub use tokenizer::{Encoding, ShowSpecial, Special, Tokenizer};
pub use vocabulary::{TokenType, Vocabulary, VocabularyError, VocabularySource};
