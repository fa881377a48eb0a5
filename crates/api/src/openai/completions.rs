//! `POST /v1/completions`: the request as clients send it.

use protocol::{Input, Limits, Refusal, Request, RequestId, Sampling, TokenId};
use serde_json::Value;

use super::shared;
use crate::fields::{Fields, wrong};
use crate::json;

/// The answer's length where the client names none, as in OpenAI's API.
pub const MAX_TOKENS_DEFAULT: usize = 16;

/// Bytes to a validated request.
///
/// # Errors
/// A refusal that names the field at fault.
pub fn parse(id: RequestId, body: &[u8], limits: &Limits) -> Result<Request, Refusal> {
    let mut fields = Fields::top(json::object(body, limits)?);
    let mut ignored = Vec::new();

    let model = fields.text("model")?.unwrap_or_default();
    let inputs = prompts(fields.take("prompt"), limits)?;
    let echo = fields.boolean("echo")?.unwrap_or(false);

    let n = shared::choices(&mut fields, inputs.len(), limits)?;
    let mut sampling = shared::sampling(&mut fields)?;
    sampling.max_tokens = Some(max_tokens(&mut fields, echo)?);
    sampling.logprobs = logprobs(&mut fields, echo)?;
    shared::check_ranges(&sampling)?;
    let stop = shared::stop(&mut fields, limits)?;
    let cache_salt = shared::cache_salt(&mut fields)?;
    let terms = shared::terms(&mut fields)?;

    let streaming = shared::streaming(&mut fields, &mut ignored)?;
    let include_lifecycle = fields.boolean("include_lifecycle")?.unwrap_or(false);
    shared::ignored(fields, &mut ignored)?;

    Ok(Request {
        id,
        model,
        inputs,
        n,
        sampling,
        cache_salt,
        terms,
        stop,
        echo,
        stream: streaming.stream,
        include_usage: streaming.include_usage,
        include_lifecycle,
        ignored,
    })
}

/// A string, a list of strings, a list of token ids, or a list of such lists; never mixed, never empty.
fn prompts(prompt: Option<Value>, limits: &Limits) -> Result<Vec<Input>, Refusal> {
    let items = match prompt {
        Some(Value::String(text)) => return Ok(vec![Input::Text(text)]),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(wrong("prompt", "a string, an array of strings, or token ids", &other)),
        None => {
            return Err(Refusal::invalid(
                "prompt",
                "is missing; send a string, an array of strings, or token ids",
            ));
        }
    };
    match items.first() {
        None => return Err(Refusal::invalid("prompt", "is empty; send at least one prompt")),
        Some(Value::Number(_)) => return Ok(vec![Input::Tokens(tokens("prompt", &items)?)]),
        Some(_) => {}
    }
    if items.len() > limits.prompts_max {
        let message = format!("has {} prompts; at most {} are taken", items.len(), limits.prompts_max);
        return Err(Refusal::invalid("prompt", message));
    }
    let of_text = items[0].is_string();
    let input = |(index, item): (usize, Value)| match item {
        Value::String(text) if of_text => Ok(Input::Text(text)),
        Value::Array(ids) if !of_text => Ok(Input::Tokens(tokens(&format!("prompt[{index}]"), &ids)?)),
        other if of_text => {
            Err(wrong(format!("prompt[{index}]"), "a string like the prompts before it", &other))
        }
        other => Err(wrong(format!("prompt[{index}]"), "an array of token ids", &other)),
    };
    items.into_iter().enumerate().map(input).collect()
}

fn tokens(path: &str, ids: &[Value]) -> Result<Vec<TokenId>, Refusal> {
    if ids.is_empty() {
        return Err(Refusal::invalid(path, "is empty; send at least one token id"));
    }
    ids.iter().enumerate().map(|(index, id)| shared::token_id(&format!("{path}[{index}]"), id)).collect()
}

/// 0 is only allowed with `echo`, and then returns the prompt alone.
fn max_tokens(fields: &mut Fields, echo: bool) -> Result<usize, Refusal> {
    let older = fields.count("max_tokens")?;
    let newer = fields.count("max_completion_tokens")?;
    match newer.or(older).unwrap_or(MAX_TOKENS_DEFAULT) {
        0 if !echo => Err(Refusal::invalid(
            if newer.is_some() { "max_completion_tokens" } else { "max_tokens" },
            "is 0, which is only allowed with \"echo\": true; ask for at least one token",
        )),
        count => Ok(count),
    }
}

/// An integer here: how many alternatives; 0 gives the chosen token's alone.
fn logprobs(fields: &mut Fields, echo: bool) -> Result<Option<usize>, Refusal> {
    match fields.count("logprobs")? {
        Some(count) if count > Sampling::LOGPROBS_MAX => {
            let message = format!("is {count}; at most {} are given", Sampling::LOGPROBS_MAX);
            Err(Refusal::invalid("logprobs", message))
        }
        Some(_) if echo => {
            let message = "cannot be combined with echo yet: the prompt's log-probabilities are not computed";
            Err(Refusal::invalid("logprobs", message))
        }
        count => Ok(count),
    }
}

#[cfg(test)]
#[path = "completions_tests.rs"]
mod tests;
