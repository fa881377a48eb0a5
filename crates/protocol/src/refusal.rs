//! Why a request is not (or no longer) served, in words for the person who sent it.

use std::time::Duration;

/// The kind of a refusal; the edge maps it to a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// A field is missing, of the wrong type, or out of range.
    Invalid,
    /// Prompt and answer do not fit the model's context (or the KV memory there is).
    ContextLength,
    /// No such model.
    UnknownModel,
    /// No such request, path, or resource.
    NotFound,
    /// No key, or a wrong one.
    Unauthorized,
    /// Over the client's own limit.
    RateLimited,
    /// The server is full, loading, or draining.
    Unavailable,
    /// What was asked for cannot be done in the time that the client gave.
    Deadline,
    /// A bug or a fault of ours.
    Internal,
}

/// A typed no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", param.as_ref().map(|param| format!("{param} ")).unwrap_or_default())]
pub struct Refusal {
    pub kind: RefusalKind,
    /// The field at fault, such as `messages[0].content`.
    pub param: Option<String>,
    /// What happened, why, and what to do; continues the sentence that `param` begins, where there is one.
    pub message: String,
    /// When to come back.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// A field is wrong; `message` continues the sentence that the field's name begins.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Refusal {
            kind: RefusalKind::Invalid,
            param: Some(param.into()),
            message: message.into(),
            retry_after: None,
        }
    }

    /// A refusal that no single field is to blame for.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Refusal { kind, param: None, message: message.into(), retry_after: None }
    }

    /// Tells the client when to come back.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
}
