//! One line of a file of calls. Three forms: OpenAI's requests (bare, or as the batch API has them under `body`), raw
//! prompts, and ShareGPT's conversations.

use std::sync::Arc;

use serde_json::Value;

use super::Turns;
use crate::adapter::Endpoint;
use crate::schedule::Prompt;
use crate::workload::lengths::LENGTH_MAX;
use crate::workload::maker::message;

/// A line's call.
pub(super) struct Entry {
    pub prompt: Prompt,
    pub max_tokens: Option<u32>,
}

/// The error is a reason without its place.
pub(super) fn read(bytes: &[u8], endpoint: Endpoint, turns: Turns) -> Result<Entry, String> {
    let line: Value = serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
    let line = line.get("body").unwrap_or(&line);
    if !line.is_object() {
        return Err("not a JSON object".to_owned());
    }
    let prompt = match (line.get("messages"), line.get("prompt"), line.get("conversations")) {
        (Some(messages), None, None) => chat(openai(messages)?, "messages", endpoint)?,
        (None, Some(prompt), None) => raw(prompt, endpoint)?,
        (None, None, Some(turned)) => chat(cut(sharegpt(turned)?, turns)?, "conversations", endpoint)?,
        (None, None, None) => return Err("has none of `messages`, `prompt` and `conversations`".to_owned()),
        _ => return Err("has more than one of `messages`, `prompt` and `conversations`".to_owned()),
    };
    Ok(Entry { prompt, max_tokens: max_tokens(line)? })
}

/// Role and content.
type Message = (&'static str, String);

fn chat(messages: Vec<Message>, field: &str, endpoint: Endpoint) -> Result<Prompt, String> {
    match endpoint {
        Endpoint::Chat => {
            Ok(Prompt::Chat(messages.into_iter().map(|(role, text)| message(role, text.into())).collect()))
        }
        Endpoint::Completions => {
            Err(format!("has `{field}`, which go to the chat endpoint and not to completions"))
        }
    }
}

/// A raw prompt; in a chat it is what the user says.
fn raw(prompt: &Value, endpoint: Endpoint) -> Result<Prompt, String> {
    match (prompt, endpoint) {
        (Value::String(text), _) if text.is_empty() => Err("`prompt` is empty".to_owned()),
        (Value::String(text), Endpoint::Completions) => Ok(Prompt::Text(text.as_str().into())),
        (Value::String(text), Endpoint::Chat) => {
            Ok(Prompt::Chat(vec![message("user", text.as_str().into())]))
        }
        (Value::Array(_), Endpoint::Chat) => {
            Err("`prompt` is token ids, which go to the completions endpoint and not to chat".to_owned())
        }
        (Value::Array(ids), Endpoint::Completions) => {
            let ids: Option<Arc<[u32]>> =
                ids.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect();
            match ids {
                Some(ids) if !ids.is_empty() => Ok(Prompt::Tokens(ids)),
                Some(_) => Err("`prompt` is empty".to_owned()),
                None => Err("`prompt` is an array, but not of token ids".to_owned()),
            }
        }
        _ => Err("`prompt` must be a text or an array of token ids".to_owned()),
    }
}

fn openai(messages: &Value) -> Result<Vec<Message>, String> {
    let messages = full_array(messages, "messages")?;
    let read: Vec<Message> = messages
        .iter()
        .enumerate()
        .map(|(at, message)| {
            let at = at + 1;
            let role = match message.get("role").and_then(Value::as_str) {
                Some("system") => "system",
                Some("developer") => "developer",
                Some("user") => "user",
                Some("assistant") => "assistant",
                Some(role) => return Err(format!("message {at} has the role `{role}`, which is not sent")),
                None => return Err(format!("message {at} has no `role`")),
            };
            if message.get("tool_calls").is_some_and(|calls| !calls.is_null()) {
                return Err(format!("message {at} has `tool_calls`, which are not sent"));
            }
            let content = message.get("content").unwrap_or(&Value::Null);
            Ok((role, text_of(content).map_err(|why| format!("message {at}: {why}"))?))
        })
        .collect::<Result<_, String>>()?;
    Ok(read)
}

/// A content: a text, or parts that are all text.
fn text_of(content: &Value) -> Result<String, String> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => parts
            .iter()
            .map(|part| match (part.get("type").and_then(Value::as_str), part.get("text")) {
                (Some("text"), Some(Value::String(text))) => Ok(text.as_str()),
                (Some(kind), _) if kind != "text" => {
                    Err(format!("a part is of type `{kind}`; only text is sent"))
                }
                _ => Err("a part has no text".to_owned()),
            })
            .collect(),
        _ => Err("`content` must be a text or an array of parts".to_owned()),
    }
}

fn sharegpt(turns: &Value) -> Result<Vec<Message>, String> {
    full_array(turns, "conversations")?
        .iter()
        .enumerate()
        .map(|(at, turn)| {
            let at = at + 1;
            let role = match turn.get("from").and_then(Value::as_str) {
                Some("human" | "user") => "user",
                Some("gpt" | "chatgpt" | "assistant" | "bing" | "bard") => "assistant",
                Some("system") => "system",
                Some(from) => {
                    return Err(format!(
                        "turn {at} is from `{from}`, which is none of human, gpt and system"
                    ));
                }
                None => return Err(format!("turn {at} has no `from`")),
            };
            match turn.get("value") {
                Some(Value::String(text)) => Ok((role, text.clone())),
                _ => Err(format!("turn {at} has no text in `value`")),
            }
        })
        .collect()
}

/// The part of a conversation that is sent: it ends with the user.
fn cut(mut messages: Vec<Message>, turns: Turns) -> Result<Vec<Message>, String> {
    let is_user = |message: &Message| message.0 == "user";
    let last = match turns {
        Turns::First => messages.iter().position(is_user),
        Turns::Last => messages.iter().rposition(is_user),
    };
    messages.truncate(last.ok_or("`conversations` has no turn of a human")? + 1);
    // Recordings that were cut into parts begin with an answer to something that is not there.
    if messages.iter().find(|message| message.0 != "system").is_some_and(|message| message.0 == "assistant") {
        return Err("`conversations` begins with an answer".to_owned());
    }
    Ok(messages)
}

fn max_tokens(line: &Value) -> Result<Option<u32>, String> {
    for field in ["max_completion_tokens", "max_tokens"] {
        match line.get(field) {
            None | Some(Value::Null) => {}
            Some(value) => {
                let length = value.as_u64().and_then(|length| u32::try_from(length).ok());
                return match length {
                    Some(length) if (1..=LENGTH_MAX).contains(&length) => Ok(Some(length)),
                    _ => Err(format!(
                        "`{field}` must be a whole number from 1 to {LENGTH_MAX}, and is {value}"
                    )),
                };
            }
        }
    }
    Ok(None)
}

fn full_array<'a>(value: &'a Value, field: &str) -> Result<&'a [Value], String> {
    match value.as_array() {
        Some(array) if !array.is_empty() => Ok(array),
        Some(_) => Err(format!("`{field}` is empty")),
        None => Err(format!("`{field}` must be an array")),
    }
}
