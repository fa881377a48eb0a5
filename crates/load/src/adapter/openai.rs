//! Any OpenAI-compatible server. It shows nothing of its stages, so its account is opaque; what it says in `usage` is all
//! that is known of it. Only fields of OpenAI's own are sent, since a strict server refuses others: a call's `ignore_eos`
//! is left out here, and can be had with the user's extra fields.

use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::{Adapter, AnswerReader, Endpoint, Form, Frame, Read, Resolved, ResolvedPrompt, Written};
use crate::sample::ServerAccount;

/// See the module.
pub struct OpenAi {
    form: Form,
}

impl OpenAi {
    pub fn new(form: Form) -> OpenAi {
        OpenAi { form }
    }
}

impl Adapter for OpenAi {
    fn kind(&self) -> &'static str {
        "opaque"
    }

    fn write(&self, call: &Resolved) -> Written {
        written(&self.form, call, &[])
    }

    fn reader(&self) -> Box<dyn AnswerReader> {
        Box::new(OpaqueReader::default())
    }
}

#[derive(Default)]
struct OpaqueReader(Answer);

impl AnswerReader for OpaqueReader {
    fn header(&mut self, name: &str, value: &str) {
        self.0.header(name, value);
    }

    fn frame(&mut self, data: &str) -> Frame {
        self.0.frame(data, None)
    }

    fn end(self: Box<Self>) -> Read {
        self.0.end(ServerAccount {
            kind: "opaque".to_owned(),
            left_out: Some("this server shows none of its stages".to_owned()),
            ..ServerAccount::default()
        })
    }
}

/// The request for a call, with the fields that a kind of server wants besides OpenAI's.
///
/// What an endpoint has no place for is sent as near as it can be: a text becomes a user's message on chat, messages become
/// lines on completions, and token ids go to completions whatever the endpoint.
pub(super) fn written(form: &Form, call: &Resolved, own: &[(&str, Value)]) -> Written {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(form.model));
    let endpoint = match &call.prompt {
        ResolvedPrompt::Tokens(_) => Endpoint::Completions,
        _ => form.endpoint,
    };
    let (path, key, said) = match endpoint {
        Endpoint::Chat => ("/v1/chat/completions", "messages", messages(&call.prompt)),
        Endpoint::Completions => ("/v1/completions", "prompt", prompt(&call.prompt)),
    };
    body.insert(key.to_owned(), said);
    body.insert("max_tokens".to_owned(), json!(call.max_tokens));
    body.insert("stream".to_owned(), json!(form.stream));
    if form.stream {
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    for (key, value) in own {
        body.insert((*key).to_owned(), value.clone());
    }
    for (key, value) in &form.extra {
        match value {
            Value::Null => body.shift_remove(key),
            value => body.insert(key.clone(), value.clone()),
        };
    }
    Written { path: path.to_owned(), body: Value::Object(body).to_string().into_bytes() }
}

fn messages(said: &ResolvedPrompt) -> Value {
    match said {
        ResolvedPrompt::Chat(messages) => {
            messages.iter().map(|(role, content)| json!({"role": **role, "content": **content})).collect()
        }
        ResolvedPrompt::Text(text) => json!([{"role": "user", "content": **text}]),
        ResolvedPrompt::Tokens(ids) => json!([{"role": "user", "content": format!("{ids:?}")}]),
    }
}

fn prompt(said: &ResolvedPrompt) -> Value {
    match said {
        ResolvedPrompt::Text(text) => json!(**text),
        ResolvedPrompt::Tokens(ids) => json!(**ids),
        ResolvedPrompt::Chat(messages) => {
            json!(messages.iter().map(|(_, content)| &**content).collect::<Vec<_>>().join("\n"))
        }
    }
}
