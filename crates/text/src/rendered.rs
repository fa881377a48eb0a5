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
/// **Invariant:** the spans tile the text, and no character of a control token came from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    pub text: String,
    pub spans: Vec<Span>,
    /// Where the template wrote a control token, ascending and apart. The same spelling elsewhere is plain text.
    pub control: Vec<Range<usize>>,
}
