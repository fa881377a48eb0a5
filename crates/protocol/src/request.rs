//! A validated request: what every wire format converts to.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::{Message, Refusal, RequestId, Sampling, Terms, TokenId, Tool};

/// What the model is given.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A conversation, to be rendered by the model's chat template.
    Chat {
        messages: Vec<Message>,
        tools: Vec<Tool>,
        /// Ends the prompt with the opening of an assistant turn.
        add_generation_prompt: bool,
        /// Further template variables, such as `enable_thinking`.
        template_kwargs: Map<String, Value>,
    },
    /// Raw text; special tokens in it are parsed.
    Text(String),
    /// Token ids, used as they are.
    Tokens(Vec<TokenId>),
}

/// A request that passed validation.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub id: RequestId,
    pub model: String,
    /// One prompt for a chat; one or more for completions.
    pub inputs: Vec<Input>,
    /// Choices per prompt; choice `prompt * n + k`.
    pub n: usize,
    pub sampling: Sampling,
    /// Computed blocks are shared only with requests of the same salt.
    pub cache_salt: Option<Arc<str>>,
    /// The deadline counts from the request's first byte; the tenant is not in the body.
    pub terms: Terms,
    /// Strings that end the answer; none is empty.
    pub stop: Vec<String>,
    /// Completions only: the answer begins with the prompt.
    pub echo: bool,
    pub stream: bool,
    /// Streams end with a usage chunk.
    pub include_usage: bool,
    /// The answer carries the request's own account.
    pub include_lifecycle: bool,
    /// Top-level keys that nothing reads, listed in the account.
    pub ignored: Vec<String>,
}

impl Request {
    /// Checks what depends on the model: `vocabulary` is how many rows its output head has.
    ///
    /// # Errors
    /// A [`Refusal`] that names the field.
    pub fn validate(&self, vocabulary: usize) -> Result<(), Refusal> {
        self.sampling.validate(vocabulary)?;
        for (index, input) in self.inputs.iter().enumerate() {
            let Input::Tokens(tokens) = input else { continue };
            if let Some(token) = tokens.iter().find(|token| token.index() >= vocabulary) {
                let message = format!(
                    "names token {token} in prompt {index}, but the vocabulary has {vocabulary} tokens"
                );
                return Err(Refusal::invalid("prompt", message));
            }
        }
        Ok(())
    }
}
