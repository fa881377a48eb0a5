//! A conversation as chat templates see it: JSON values under the names that templates read.
//!
//! **Invariant:** the values are those that Python's transformers hands to the same template.

use protocol::{Content, Message, Role, Tool};
use serde_json::{Map, Value, json};

/// What a template is rendered with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// Objects with `role`, `content`, and so on.
    pub messages: Vec<Value>,
    /// Absent where no tool is offered.
    pub tools: Option<Vec<Value>>,
    /// Ends the prompt with the opening of an assistant turn.
    pub add_generation_prompt: bool,
    /// Leaves the last message open, for the model to go on with.
    pub continue_final_message: bool,
    /// Further variables; they win over all others.
    pub kwargs: Map<String, Value>,
    /// What `strftime_now` tells, in seconds since the Unix epoch, UTC.
    pub now_unix_s: i64,
}

impl Conversation {
    /// From a validated request.
    pub fn new(messages: &[Message], tools: &[Tool]) -> Self {
        Conversation {
            messages: messages.iter().map(message).collect(),
            tools: (!tools.is_empty()).then(|| tools.iter().map(|tool| tool.0.clone()).collect()),
            ..Conversation::default()
        }
    }

    /// The variables, in transformers' order; `special_tokens` are names such as `bos_token`.
    pub(crate) fn variables(&self, special_tokens: &[(String, String)]) -> Map<String, Value> {
        let mut variables = Map::new();
        variables.insert("messages".into(), self.messages.iter().map(normalized).collect());
        variables.insert("tools".into(), self.tools.clone().map_or(Value::Null, Value::Array));
        variables.insert("documents".into(), Value::Null);
        variables.insert("add_generation_prompt".into(), self.add_generation_prompt.into());
        variables.extend(special_tokens.iter().map(|(name, text)| (name.clone(), text.clone().into())));
        variables.extend(self.kwargs.clone());
        variables
    }

    /// The role of a message.
    pub(crate) fn role(&self, index: usize) -> &str {
        self.messages[index].get("role").and_then(Value::as_str).unwrap_or_default()
    }
}

fn message(message: &Message) -> Value {
    let mut object = Map::new();
    object.insert("role".into(), message.role.name().into());
    // Absent content is no key at all, as transformers drops what is null.
    if let Content::Text(text) = &message.content {
        object.insert("content".into(), text.clone().into());
    }
    if let Some(name) = &message.name {
        object.insert("name".into(), name.clone().into());
    }
    if !message.tool_calls.is_empty() {
        let call = |call: &protocol::ToolCall| {
            json!({
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        };
        object.insert("tool_calls".into(), message.tool_calls.iter().map(call).collect());
    }
    if let Some(id) = message.tool_call_id.as_ref().filter(|_| message.role == Role::Tool) {
        object.insert("tool_call_id".into(), id.clone().into());
    }
    object.extend(message.extra.clone());
    Value::Object(object)
}

/// Nulls are dropped, and the names for reasoning are one: what is found first stands under `thinking`, before all
/// else where the message has no such key, and under `reasoning_content`.
fn normalized(message: &Value) -> Value {
    let Value::Object(object) = message else { return message.clone() };
    let mut normalized = Map::new();
    let reasoning = ["reasoning_content", "thinking", "reasoning"]
        .iter()
        .find_map(|name| object.get(*name).filter(|value| !value.is_null()));
    normalized.extend(reasoning.map(|reasoning| ("thinking".to_owned(), reasoning.clone())));
    let kept = object.iter().filter(|(_, value)| !value.is_null());
    normalized.extend(kept.map(|(key, value)| (key.clone(), value.clone())));
    normalized.extend(reasoning.map(|reasoning| ("reasoning_content".to_owned(), reasoning.clone())));
    Value::Object(normalized)
}
