//! A conversation on the wire, turned into what templates read.
//!
//! **Invariant:** no null reaches a template, so none prints "None" or "null".

use protocol::{Content, Limits, Message, Refusal, Role, ToolCall};
use serde_json::Value;

use crate::fields::{Fields, wrong};
use crate::json::{self, excerpt};

/// The `messages` array.
pub fn parse(messages: Option<Value>, limits: &Limits) -> Result<Vec<Message>, Refusal> {
    let items = match messages {
        Some(Value::Array(items)) => items,
        Some(other) => return Err(wrong("messages", "an array", &other)),
        None => {
            return Err(Refusal::invalid("messages", "is missing; send an array with at least one message"));
        }
    };
    if items.is_empty() {
        return Err(Refusal::invalid("messages", "is empty; send at least one message"));
    }
    if items.len() > limits.messages_max {
        let message = format!("has {} messages; at most {} are taken", items.len(), limits.messages_max);
        return Err(Refusal::invalid("messages", message));
    }
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| message(&format!("messages[{index}]"), item, limits))
        .collect()
}

fn message(path: &str, item: Value, limits: &Limits) -> Result<Message, Refusal> {
    let mut fields = Fields::nested(path, item)?;
    let role = role(&mut fields)?;
    let tool_calls = tool_calls(&mut fields, role, limits)?;
    let content = content(&mut fields, role, !tool_calls.is_empty())?;
    let name = fields.text("name")?;
    let tool_call_id = fields.text("tool_call_id")?;
    if fields.take("function_call").is_some() {
        return Err(Refusal::invalid(fields.path("function_call"), "is not supported; send tool_calls"));
    }
    if fields.take("audio").is_some() {
        return Err(Refusal::invalid(
            fields.path("audio"),
            "is not supported yet: the model reads text only",
        ));
    }
    Ok(Message { role, content, name, tool_calls, tool_call_id, extra: fields.rest() })
}

fn role(fields: &mut Fields) -> Result<Role, Refusal> {
    let path = fields.path("role");
    match fields.text("role")?.as_deref() {
        // OpenAI's newer name for the same voice; no template of an open model knows it.
        Some("system" | "developer") => Ok(Role::System),
        Some("user") => Ok(Role::User),
        Some("assistant") => Ok(Role::Assistant),
        Some("tool") => Ok(Role::Tool),
        Some(other) => {
            let message = format!(
                "is {}; it must be \"system\", \"developer\", \"user\", \"assistant\" or \"tool\"",
                excerpt(other)
            );
            Err(Refusal::invalid(path, message))
        }
        None => Err(Refusal::invalid(path, "is missing")),
    }
}

/// A string, or text parts joined in order without a separator. Only an assistant may say nothing: a message of its own
/// that calls tools has no content.
fn content(fields: &mut Fields, role: Role, calls_tools: bool) -> Result<Content, Refusal> {
    let path = fields.path("content");
    match fields.take("content") {
        Some(Value::String(text)) => Ok(Content::Text(text)),
        Some(Value::Array(parts)) => {
            let mut text = String::new();
            for (index, part) in parts.into_iter().enumerate() {
                text.push_str(&part_text(&format!("{path}[{index}]"), part)?);
            }
            Ok(Content::Text(text))
        }
        None if role == Role::Assistant && calls_tools => Ok(Content::None),
        None if role == Role::Assistant => Ok(Content::Text(String::new())),
        None => {
            let message =
                format!("is missing or null; a {} message needs a string or text parts", role.name());
            Err(Refusal::invalid(path, message))
        }
        Some(other) => Err(wrong(path, "a string or an array of parts", &other)),
    }
}

fn part_text(path: &str, part: Value) -> Result<String, Refusal> {
    let mut fields = Fields::nested(path, part)?;
    let kind = fields.text("type")?;
    let key = match kind.as_deref() {
        Some("text") => "text",
        Some("refusal") => "refusal",
        Some(kind @ ("image_url" | "input_audio" | "file" | "video_url" | "audio_url")) => {
            let message = format!("is \"{kind}\", but the model reads text only; send text parts");
            return Err(Refusal::invalid(fields.path("type"), message));
        }
        Some(other) => {
            let message = format!("is {}, which is unknown; send \"text\"", excerpt(other));
            return Err(Refusal::invalid(fields.path("type"), message));
        }
        None => return Err(Refusal::invalid(fields.path("type"), "is missing; send \"text\"")),
    };
    let path = fields.path(key);
    fields.text(key)?.ok_or_else(|| Refusal::invalid(path, "is missing"))
}

fn tool_calls(fields: &mut Fields, role: Role, limits: &Limits) -> Result<Vec<ToolCall>, Refusal> {
    let path = fields.path("tool_calls");
    let items = fields.array("tool_calls")?.unwrap_or_default();
    if !items.is_empty() && role != Role::Assistant {
        return Err(Refusal::invalid(
            path,
            format!("belongs to assistant messages, not to a {} message", role.name()),
        ));
    }
    if items.len() > limits.tools_max {
        let message = format!("has {} calls; at most {} are taken", items.len(), limits.tools_max);
        return Err(Refusal::invalid(path, message));
    }
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| tool_call(&format!("{path}[{index}]"), item, limits))
        .collect()
}

fn tool_call(path: &str, item: Value, limits: &Limits) -> Result<ToolCall, Refusal> {
    let mut call = Fields::nested(path, item)?;
    let kind_path = call.path("type");
    if let Some(kind) = call.text("type")?.filter(|kind| kind != "function") {
        let message = format!("is {}, which is not supported; only \"function\" is", excerpt(&kind));
        return Err(Refusal::invalid(kind_path, message));
    }
    let id = call.text("id")?.unwrap_or_default();
    let path = call.path("function");
    let function = call.take("function").ok_or_else(|| Refusal::invalid(path.as_str(), "is missing"))?;
    let mut function = Fields::nested(&path, function)?;
    let name_path = function.path("name");
    let name = function.text("name")?.ok_or_else(|| Refusal::invalid(name_path, "is missing"))?;
    let arguments_path = function.path("arguments");
    let arguments = arguments(&arguments_path, function.take("arguments"), limits)?;
    Ok(ToolCall { id, name, arguments })
}

/// A JSON object in a string, as OpenAI has it, or the object itself. No arguments are an empty object.
fn arguments(path: &str, value: Option<Value>, limits: &Limits) -> Result<Value, Refusal> {
    let value = match value {
        None => return Ok(Value::Object(serde_json::Map::new())),
        Some(Value::String(text)) if text.trim().is_empty() => {
            return Ok(Value::Object(serde_json::Map::new()));
        }
        Some(Value::String(text)) => json::value(text.as_bytes(), limits.json_depth_max)
            .map_err(|fault| Refusal::invalid(path, format!("is not valid JSON: {fault}")))?,
        Some(other) => other,
    };
    match value {
        Value::Object(_) => Ok(value),
        other => Err(wrong(path, "a JSON object in a string", &other)),
    }
}
