//! `POST /v1/chat/completions`: the request as clients send it.

use protocol::{Input, Limits, Refusal, Request, RequestId, Sampling, Tool};
use serde_json::{Map, Value};

use super::{messages, shared};
use crate::fields::{Fields, wrong};
use crate::json::{self, excerpt};

/// Bytes to a validated request.
///
/// # Errors
/// A refusal that names the field at fault.
pub fn parse(id: RequestId, body: &[u8], limits: &Limits) -> Result<Request, Refusal> {
    let mut fields = Fields::top(json::object(body, limits)?);
    let mut ignored = Vec::new();

    let model = fields.text("model")?.unwrap_or_default();
    let messages = messages::parse(fields.take("messages"), limits)?;
    let tools = tools(&mut fields, limits)?;
    let template_kwargs = template_kwargs(&mut fields)?;
    let add_generation_prompt = fields.boolean("add_generation_prompt")?.unwrap_or(true);
    if fields.boolean("echo")?.unwrap_or(false) {
        return Err(Refusal::invalid("echo", "is not supported for chats; /v1/completions takes it"));
    }

    let n = shared::choices(&mut fields, 1, limits)?;
    let mut sampling = shared::sampling(&mut fields)?;
    sampling.max_tokens = max_tokens(&mut fields)?;
    sampling.logprobs = logprobs(&mut fields)?;
    shared::check_ranges(&sampling)?;
    let stop = shared::stop(&mut fields, limits)?;
    let cache_salt = shared::cache_salt(&mut fields)?;
    let terms = shared::terms(&mut fields)?;

    let streaming = shared::streaming(&mut fields, &mut ignored)?;
    let include_lifecycle = fields.boolean("include_lifecycle")?.unwrap_or(false);
    modalities(&mut fields)?;
    shared::ignored(fields, &mut ignored)?;

    let input = Input::Chat { messages, tools, add_generation_prompt, template_kwargs };
    Ok(Request {
        id,
        model,
        inputs: vec![input],
        n,
        sampling,
        cache_salt,
        terms,
        stop,
        echo: false,
        stream: streaming.stream,
        include_usage: streaming.include_usage,
        include_lifecycle,
        ignored,
    })
}

/// `max_completion_tokens` wins over `max_tokens`; absent, the context is the limit.
fn max_tokens(fields: &mut Fields) -> Result<Option<usize>, Refusal> {
    let older = fields.count("max_tokens")?;
    let newer = fields.count("max_completion_tokens")?;
    for (key, value) in [("max_tokens", older), ("max_completion_tokens", newer)] {
        if value == Some(0) {
            return Err(Refusal::invalid(key, "is 0; ask for at least one token, or leave it out"));
        }
    }
    Ok(newer.or(older))
}

/// `logprobs` switches them on, `top_logprobs` says how many alternatives.
fn logprobs(fields: &mut Fields) -> Result<Option<usize>, Refusal> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    let top = fields.count("top_logprobs")?;
    match top {
        Some(count) if count > Sampling::LOGPROBS_MAX => {
            let message = format!("is {count}; at most {} are given", Sampling::LOGPROBS_MAX);
            Err(Refusal::invalid("top_logprobs", message))
        }
        Some(count) if count > 0 && !wanted => {
            Err(Refusal::invalid("top_logprobs", "is only allowed with \"logprobs\": true"))
        }
        _ => Ok(wanted.then(|| top.unwrap_or(0))),
    }
}

/// Tools are shown to the model by its template. With `tool_choice: "none"` they are not, so that it cannot call any.
fn tools(fields: &mut Fields, limits: &Limits) -> Result<Vec<Tool>, Refusal> {
    let items = fields.array("tools")?.unwrap_or_default();
    if items.len() > limits.tools_max {
        let message = format!("has {} tools; at most {} are taken", items.len(), limits.tools_max);
        return Err(Refusal::invalid("tools", message));
    }
    for (index, item) in items.iter().enumerate() {
        check_tool(&format!("tools[{index}]"), item)?;
    }
    let shown = match fields.take("tool_choice") {
        None => true,
        Some(Value::String(choice)) if choice == "auto" => true,
        Some(Value::String(choice)) if choice == "none" => false,
        Some(Value::String(choice)) if choice != "required" => {
            let message = format!("is {}; it must be \"auto\" or \"none\"", excerpt(&choice));
            return Err(Refusal::invalid("tool_choice", message));
        }
        Some(Value::String(_) | Value::Object(_)) => {
            let message = "forces a tool call, which is not supported yet; use \"auto\" or \"none\"";
            return Err(Refusal::invalid("tool_choice", message));
        }
        Some(other) => return Err(wrong("tool_choice", "a string or an object", &other)),
    };
    if fields.boolean("parallel_tool_calls")? == Some(false) && shown && !items.is_empty() {
        let message = "is false, which is not supported yet: calls are not limited; leave it out";
        return Err(Refusal::invalid("parallel_tool_calls", message));
    }
    Ok(if shown { items.into_iter().map(Tool).collect() } else { Vec::new() })
}

/// Checks what every template reads; the rest of a tool is the template's business.
fn check_tool(path: &str, tool: &Value) -> Result<(), Refusal> {
    let Value::Object(map) = tool else { return Err(wrong(path, "an object", tool)) };
    match map.get("type") {
        Some(Value::String(name)) if name == "function" => {}
        Some(Value::String(name)) => {
            let message = format!("is {}, which is not supported; only \"function\" is", excerpt(name));
            return Err(Refusal::invalid(format!("{path}.type"), message));
        }
        Some(other) => return Err(wrong(format!("{path}.type"), "a string", other)),
        None => return Err(Refusal::invalid(format!("{path}.type"), "is missing; it must be \"function\"")),
    }
    let function = match map.get("function") {
        Some(Value::Object(function)) => function,
        Some(other) => return Err(wrong(format!("{path}.function"), "an object", other)),
        None => return Err(Refusal::invalid(format!("{path}.function"), "is missing")),
    };
    match function.get("name") {
        Some(Value::String(name)) if !name.is_empty() => {}
        Some(Value::String(_)) => return Err(Refusal::invalid(format!("{path}.function.name"), "is empty")),
        Some(other) => return Err(wrong(format!("{path}.function.name"), "a string", other)),
        None => return Err(Refusal::invalid(format!("{path}.function.name"), "is missing")),
    }
    match function.get("parameters") {
        None | Some(Value::Null | Value::Object(_)) => Ok(()),
        Some(other) => Err(wrong(format!("{path}.function.parameters"), "an object (a JSON schema)", other)),
    }
}

/// Variables for the template, except those that the server sets itself.
fn template_kwargs(fields: &mut Fields) -> Result<Map<String, Value>, Refusal> {
    const OURS: [&str; 3] = ["messages", "tools", "add_generation_prompt"];
    let kwargs = fields.object("chat_template_kwargs")?.unwrap_or_default();
    match OURS.iter().find(|name| kwargs.contains_key(**name)) {
        Some(name) => {
            let message = "cannot be set here; send it at the top level of the request";
            Err(Refusal::invalid(format!("chat_template_kwargs.{name}"), message))
        }
        None => Ok(kwargs),
    }
}

fn modalities(fields: &mut Fields) -> Result<(), Refusal> {
    let wanted = fields.array("modalities")?.unwrap_or_default();
    match wanted.iter().find(|modality| modality.as_str() != Some("text")) {
        Some(_) => {
            Err(Refusal::invalid("modalities", "may only hold \"text\"; other answers are not supported yet"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "chat_tests.rs"]
mod tests;
