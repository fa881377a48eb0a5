//! From a request's input to the tokens the model is given.

use std::sync::Arc;

use crate::reply;
use ledger::PromptAccount;
use ledger::record::OriginTokens;
use protocol::{Input, Refusal, RefusalKind, Request, TokenId};
use text::{ChatTemplate, Conversation, Prompt, Rendered, Tokenizer};

/// A model's own text: tokenizer, template, and the tokens that end an answer.
pub struct ModelText {
    pub tokenizer: Arc<Tokenizer>,
    /// None for a base model.
    pub template: Option<ChatTemplate>,
    /// End-of-generation tokens.
    pub eog: Arc<[TokenId]>,
}

/// An input whose text is settled.
pub enum Ready<'a> {
    Rendered(Rendered),
    Raw(&'a str),
    Tokens(&'a [TokenId]),
}

impl ModelText {
    /// Renders a conversation by the model's own template; raw inputs are ready as they are.
    ///
    /// # Errors
    /// A model without a template; whatever the template itself refuses.
    pub fn render<'a>(&self, input: &'a Input) -> Result<Ready<'a>, Refusal> {
        match input {
            Input::Text(text) => Ok(Ready::Raw(text)),
            Input::Tokens(tokens) => Ok(Ready::Tokens(tokens)),
            Input::Chat { messages, tools, add_generation_prompt, template_kwargs } => {
                let template = self.template.as_ref().ok_or_else(|| {
                    let message = "cannot be a conversation: this model has no chat template (it is a base model); \
                                   use /v1/completions, or a model that was trained to chat";
                    Refusal::invalid("messages", message)
                })?;
                let conversation = Conversation {
                    add_generation_prompt: *add_generation_prompt,
                    kwargs: template_kwargs.clone(),
                    now_unix_s: i64::try_from(reply::unix_seconds()).unwrap_or(i64::MAX),
                    ..Conversation::new(messages, tools)
                };
                template.render(&conversation).map(Ready::Rendered)
            }
        }
    }

    /// Tokens of a settled input, with their origins.
    pub fn tokenize(&self, ready: &Ready<'_>) -> Prompt {
        match ready {
            Ready::Rendered(rendered) => self.tokenizer.encode_rendered(rendered),
            Ready::Raw(text) => self.tokenizer.encode_raw(text),
            Ready::Tokens(tokens) => self.tokenizer.prompt_of_tokens(tokens),
        }
    }

    /// The text of prompt `index`, for an answer that begins with it.
    pub fn echo(&self, request: &Request, index: usize) -> String {
        match &request.inputs[index] {
            Input::Text(text) => text.clone(),
            Input::Tokens(tokens) => self.tokenizer.decode(tokens, text::ShowSpecial::Yes),
            Input::Chat { .. } => String::new(),
        }
    }
}

/// Refuses a prompt that leaves no room for an answer.
///
/// # Errors
/// Names both numbers.
pub fn check_length(prompt: &Prompt, context: usize) -> Result<(), Refusal> {
    let tokens = prompt.tokens.len();
    if tokens == 0 {
        let message =
            "has no tokens, and this model has no token that begins a text; send at least one character";
        return Err(Refusal::invalid("prompt", message));
    }
    if tokens < context {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalKind::ContextLength,
        format!(
            "the prompt has {tokens} tokens, but the context is {context} tokens, answer included; shorten it"
        ),
    ))
}

/// The accounts of several prompts as one. Messages keep their numbers; a request has them in one prompt only.
pub fn account(prompts: &[Prompt]) -> PromptAccount {
    let mut total = PromptAccount::default();
    for account in prompts.iter().map(|prompt| &prompt.account) {
        total.tokens += account.tokens;
        for entry in &account.by_origin {
            let same =
                |other: &&mut OriginTokens| (other.origin, other.message) == (entry.origin, entry.message);
            match total.by_origin.iter_mut().find(same) {
                Some(other) => other.tokens += entry.tokens,
                None => total.by_origin.push(*entry),
            }
        }
    }
    total
}
