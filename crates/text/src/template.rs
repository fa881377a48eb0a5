//! Chat templates: from a conversation to a prompt's text, exactly as transformers renders it.
//!
//! **Invariant:** a template is compiled once, reads nothing but the conversation, and every rendering is bounded in work
//! and memory.

mod environment;
mod methods;
mod origins;
pub(crate) mod source;

use std::sync::Arc;

use minijinja::Environment;
use protocol::{Refusal, RefusalKind};
use serde_json::{Map, Value};

use crate::conversation::Conversation;
use crate::literals::Literals;
use crate::marks::Pass;
use crate::rendered::Rendered;
use crate::tokenizer::Tokenizer;

/// Why a model's template cannot be used at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("tokenizer.chat_template has {bytes} bytes; at most {max} are taken")]
    TooLarge { bytes: usize, max: usize },
    #[error("tokenizer.chat_template is not a valid template: {0}")]
    Syntax(String),
}

/// A model's chat template, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    plain: Environment<'static>,
    marked: Environment<'static>,
    literals: Literals,
    tokenizer: Arc<Tokenizer>,
    special_tokens: Vec<(String, String)>,
}

impl ChatTemplate {
    /// Bytes that a template may have.
    pub const SOURCE_BYTES_MAX: usize = 1 << 20;
    /// Work that any rendering may do, in the template engine's units: about an instruction, or 64 bytes of data.
    const FUEL: u64 = 4_000_000;
    /// Further work for each message.
    const FUEL_PER_MESSAGE: u64 = 1_000;
    /// Conversations up to which the message that a template rejects is looked for.
    const BLAMED_MESSAGES_MAX: usize = 64;
    /// Bytes of a template's own sentence that a refusal quotes.
    const SENTENCE_BYTES_MAX: usize = 400;

    /// Compiles `source` for the model of `tokenizer`, whose BOS and EOS templates may write.
    ///
    /// # Errors
    /// A [`TemplateError`] where it is too large or not a template.
    pub fn new(source: &str, tokenizer: Arc<Tokenizer>) -> Result<Self, TemplateError> {
        let vocabulary = tokenizer.vocabulary();
        let name = |token| String::from_utf8_lossy(vocabulary.token_bytes(token)).into_owned();
        let named = [("bos_token", vocabulary.bos()), ("eos_token", vocabulary.eos())];
        let special_tokens =
            named.into_iter().filter_map(|(key, token)| Some((key.to_owned(), name(token?)))).collect();
        Self::with_special_tokens(source, tokenizer, special_tokens)
    }

    /// Compiles `source` with special tokens of other names or spellings.
    ///
    /// # Errors
    /// As [`ChatTemplate::new`].
    pub fn with_special_tokens(
        source: &str,
        tokenizer: Arc<Tokenizer>,
        special_tokens: Vec<(String, String)>,
    ) -> Result<Self, TemplateError> {
        if source.len() > Self::SOURCE_BYTES_MAX {
            return Err(TemplateError::TooLarge { bytes: source.len(), max: Self::SOURCE_BYTES_MAX });
        }
        // A literal that spells a control token must not let the same text in a message pass for the template's.
        let harmless = |text: &str| {
            let control = |found: &crate::special::Found| tokenizer.is_control(found.token);
            !tokenizer.specials().find_all(text, |_| true).any(|found| control(&found))
        };
        let literals = Literals::new(source, harmless);
        let plain = environment::compiled(source, Pass::Plain)?;
        let marked = environment::compiled(source, Pass::Marked)?;
        Ok(ChatTemplate { plain, marked, literals, tokenizer, special_tokens })
    }

    /// Renders a conversation, and finds out where each part of the prompt came from.
    ///
    /// # Errors
    /// A refusal that quotes the template's own sentence and names the message, where the template rejects the
    /// conversation; one that says so, where text of the request cannot be told from the template's control tokens.
    pub fn render(&self, conversation: &Conversation) -> Result<Rendered, Refusal> {
        let variables = conversation.variables(&self.special_tokens);
        let text = self.pass(Pass::Plain, conversation, &variables).map_err(|failure| {
            let param = match self.blamed(conversation, &failure) {
                Some(index) => format!("messages[{index}]"),
                None => "messages".to_owned(),
            };
            Refusal::invalid(param, failure.sentence())
        })?;
        origins::trace(self, conversation, &variables, text)
    }

    fn pass(
        &self,
        pass: Pass,
        conversation: &Conversation,
        variables: &Map<String, Value>,
    ) -> Result<String, environment::Failure> {
        let environment = match pass {
            Pass::Plain => &self.plain,
            Pass::Marked => &self.marked,
        };
        let bytes = variables.values().map(size).sum::<usize>() as u64;
        let fuel = Self::FUEL + Self::FUEL_PER_MESSAGE * conversation.messages.len() as u64 + bytes;
        environment::render(environment, variables, conversation, fuel)
    }

    /// The first message with which the conversation so far is rejected.
    fn blamed(&self, conversation: &Conversation, failure: &environment::Failure) -> Option<usize> {
        let count = conversation.messages.len();
        if !failure.is_raised() || count > Self::BLAMED_MESSAGES_MAX {
            return None;
        }
        let rejected = |count: &usize| {
            let mut beginning = conversation.clone();
            beginning.messages.truncate(*count);
            let variables = beginning.variables(&self.special_tokens);
            self.pass(Pass::Plain, &beginning, &variables).is_err_and(|failure| failure.is_raised())
        };
        (1..=count).find(rejected).map(|count| count - 1)
    }
}

impl environment::Failure {
    /// What the user is told: the template's own sentence, or what went wrong in it, never its source.
    fn sentence(&self) -> String {
        match self {
            environment::Failure::Raised(sentence) => {
                format!("is rejected by the model's chat template: {}", excerpt(sentence))
            }
            environment::Failure::Broken(what) => {
                format!("cannot be rendered by the model's chat template: {}", excerpt(what))
            }
        }
    }
}

fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(ChatTemplate::SENTENCE_BYTES_MAX)]
}

fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum::<usize>() + items.len(),
        Value::Object(object) => object.iter().map(|(key, value)| key.len() + size(value)).sum(),
        _ => 8,
    }
}

/// Text that the template's own control tokens cannot be told from.
fn indistinct(token: &str) -> Refusal {
    let message = format!(
        "hold characters of the control token {token:?}, and the model's chat template rearranges them so that its own \
         control tokens cannot be told from typed text; leave these characters out"
    );
    Refusal { param: Some("messages".into()), ..Refusal::new(RefusalKind::Invalid, message) }
}
