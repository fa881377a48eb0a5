//! Chat messages and tools, as the template will see them.

use serde_json::{Map, Value};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    System,
    User,
    Assistant,
    Tool,
}

impl Role {
    /// The role's name in templates and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// A message's content. Text parts of the wire are joined in order, without a separator, before they come here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// An assistant message that only calls tools.
    None,
    Text(String),
}

/// A tool call made by the assistant. The arguments were a JSON string on the wire and are an object here, since
/// templates print them as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub arguments: Value,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub role: Role,
    pub content: Content,
    /// The speaker's name, where the client gave one.
    pub name: Option<String>,
    pub tool_calls: Vec<ToolCall>,
    /// For a tool's result: the call that it answers.
    pub tool_call_id: Option<String>,
    /// Further keys that the client sent and a template may read, such as `reasoning_content`.
    pub extra: Map<String, Value>,
}

/// A tool offered to the model: the wire's object with its key order kept, since templates print it as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool(pub Value);
