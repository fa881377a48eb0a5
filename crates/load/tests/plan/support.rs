//! What the tests of workloads share.

use std::sync::Arc;

use load::adapter::Endpoint;
use load::schedule::{Call, CallId, Prompt, Said, Workload};
use load::workload::{Material, Setting, Spec};

pub fn setting(seed: u64) -> Setting {
    Setting { seed, endpoint: Endpoint::Chat, material: Material::Words, ignore_eos: None }
}

#[track_caller]
pub fn build(spec: &str, setting: &Setting) -> Arc<dyn Workload> {
    Spec::parse(spec).unwrap().build(setting).unwrap()
}

/// The first calls, all of them if there are fewer.
pub fn calls(workload: &dyn Workload, count: u64) -> Vec<Call> {
    (0..count).map_while(|id| workload.call(CallId(id))).collect()
}

/// The text of a prompt that is one text.
#[track_caller]
pub fn text(call: &Call) -> &str {
    match &call.prompt {
        Prompt::Text(text) => text,
        Prompt::Chat(messages) => match messages.as_slice() {
            [Said::Message { role, content }] if &**role == "user" => content,
            messages => panic!("not one user's message: {messages:?}"),
        },
        Prompt::Tokens(_) => panic!("token ids"),
    }
}
