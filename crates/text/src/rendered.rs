//! A prompt's text, before it is tokens.

use std::ops::Range;

use ledger::Origin;

/// A stretch of a prompt's text of one origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// In bytes of the text.
    pub range: Range<usize>,
    pub origin: Origin,
    /// The message's index in the request.
    pub message: Option<usize>,
}

/// What a chat template made of a conversation.
///
/// **Invariant:** the spans tile the text. A control token's spelling lies in one of `written` only if the template
/// wrote it: no character of it came from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    pub text: String,
    pub spans: Vec<Span>,
    /// Where control tokens may be parsed, ascending and apart.
    pub written: Vec<Range<usize>>,
}
