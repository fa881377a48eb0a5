//! Prompts without an answer: what a request would be rendered to, and text to tokens and back.

use ledger::Origin;
use protocol::{Refusal, TokenId};
use serde::Serialize;
use text::ShowSpecial;

use crate::errors::Fault;
use crate::exchange::Exchange;
use crate::fields::Fields;
use crate::heavy::heavy;
use crate::openai::{Format, shared};
use crate::prompt::Ready;
use crate::{App, Served, json};

/// A request's prompts as the model would see them.
#[derive(Serialize)]
pub struct RenderedPrompts<'a> {
    model: &'a str,
    max_model_len: usize,
    prompts: Vec<RenderedPrompt>,
}

#[derive(Serialize)]
struct RenderedPrompt {
    prompt: String,
    tokens: Vec<TokenId>,
    count: usize,
    spans: Vec<Span>,
}

/// Consecutive tokens of one origin.
#[derive(Serialize)]
struct Span {
    origin: Origin,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<usize>,
    begin: usize,
    end: usize,
}

/// Renders and tokenizes what would be run.
///
/// # Errors
/// Whatever would refuse the request.
pub async fn render<'a>(
    app: &'a App,
    exchange: &mut Exchange,
    format: Format,
) -> Result<RenderedPrompts<'a>, Fault> {
    let body = exchange.read_json(&app.limits).await?;
    let request = heavy(body.len(), || format.parse(app.ids.next(), &body, &app.limits))?;
    let served = app.model(&request.model)?;
    let mut prompts = Vec::with_capacity(request.inputs.len());
    for input in &request.inputs {
        let ready = heavy(body.len(), || served.text.render(input))?;
        let prompt = heavy(body.len(), || served.text.tokenize(&ready));
        let text = match ready {
            Ready::Rendered(rendered) => rendered.text,
            Ready::Raw(text) => text.to_owned(),
            Ready::Tokens(tokens) => decode(served, tokens)?,
        };
        let spans = prompt.spans.iter().map(|span| Span {
            origin: span.origin,
            message: span.message,
            begin: span.tokens.start,
            end: span.tokens.end,
        });
        let spans = spans.collect();
        prompts.push(RenderedPrompt {
            prompt: text,
            count: prompt.tokens.len(),
            tokens: prompt.tokens,
            spans,
        });
    }
    Ok(RenderedPrompts { model: &served.names[0], max_model_len: served.context, prompts })
}

/// A text's tokens.
#[derive(Serialize)]
pub struct Tokenized {
    tokens: Vec<TokenId>,
    count: usize,
    max_model_len: usize,
}

/// `{"model", "prompt"}` gives the tokens of a raw prompt, as `/v1/completions` would take it.
///
/// # Errors
/// A field of the wrong type; an unknown model.
pub async fn tokenize(app: &App, exchange: &mut Exchange) -> Result<Tokenized, Fault> {
    let body = exchange.read_json(&app.limits).await?;
    let mut fields = Fields::top(json::object(&body, &app.limits)?);
    let served = app.model(&fields.text("model")?.unwrap_or_default())?;
    let text = match fields.text("prompt")? {
        Some(text) => text,
        None => return Err(Refusal::invalid("prompt", "is missing; send the text to tokenize").into()),
    };
    let tokens = heavy(text.len(), || served.text.tokenizer.encode_raw(&text)).tokens;
    Ok(Tokenized { count: tokens.len(), tokens, max_model_len: served.context })
}

/// The text of tokens.
#[derive(Serialize)]
pub struct Detokenized {
    prompt: String,
}

/// `{"model", "tokens"}` gives their text, special tokens shown.
///
/// # Errors
/// A field of the wrong type; an unknown model; a token that the vocabulary has not.
pub async fn detokenize(app: &App, exchange: &mut Exchange) -> Result<Detokenized, Fault> {
    let body = exchange.read_json(&app.limits).await?;
    let mut fields = Fields::top(json::object(&body, &app.limits)?);
    let served = app.model(&fields.text("model")?.unwrap_or_default())?;
    let ids = fields.array("tokens")?;
    let ids = ids.ok_or_else(|| Refusal::invalid("tokens", "is missing; send an array of token ids"))?;
    let tokens: Result<Vec<_>, _> =
        ids.iter().enumerate().map(|(index, id)| shared::token_id(&format!("tokens[{index}]"), id)).collect();
    Ok(Detokenized { prompt: decode(served, &tokens?)? })
}

fn decode(served: &Served, tokens: &[TokenId]) -> Result<String, Refusal> {
    let vocabulary = served.text.tokenizer.vocabulary();
    if let Some(index) = tokens.iter().position(|token| token.index() >= vocabulary.len()) {
        let message = format!("is {}, but the vocabulary has {} tokens", tokens[index], vocabulary.len());
        return Err(Refusal::invalid(format!("tokens[{index}]"), message));
    }
    Ok(served.text.tokenizer.decode(tokens, ShowSpecial::Yes))
}
