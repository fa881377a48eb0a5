//! Between text and tokens: a request is rendered by the model's chat template and encoded; an answer's tokens are
//! decoded and watched for stop strings.
//!
//! **Invariant:** what a user typed never becomes a control token, and no piece of an answer ends within a character.

pub mod answer;
pub mod conversation;
pub mod detokenize;
pub mod merge;
pub mod normalize;
pub mod pretokenize;
pub mod prompt;
pub mod rendered;
pub mod special;
pub mod stop;
pub mod template;
pub mod tokenizer;
pub mod vocabulary;

mod bytelevel;
mod literals;
mod marks;
mod python;
mod unicode;

pub use answer::{AnswerText, Delta};
pub use conversation::Conversation;
pub use detokenize::Detokenizer;
pub use prompt::{Prompt, TokenSpan};
pub use rendered::{Rendered, Span};
pub use stop::{StopMatcher, StopStrings};
pub use template::{ChatTemplate, TemplateError};
pub use tokenizer::{Encoding, ShowSpecial, Special, Tokenizer};
pub use vocabulary::{TokenType, Vocabulary, VocabularyError, VocabularySource};
