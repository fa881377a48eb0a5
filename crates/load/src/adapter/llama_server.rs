//! llama.cpp's `llama-server`. Its `timings` come with each frame when asked for (`timings_per_token`) and with the last
//! one in any case: time until the prompt was computed, time since then, and running counts of tokens. Meanings are read
//! from its source (`tools/server/server-common.h`, `server_slot_stats`, commit 0c1e57098).

use ledger::Stage;
use serde::Deserialize;
use serde_json::json;

use super::answer::Answer;
use super::number::{count, ns_of_ms, number};
use super::openai::written;
use super::{Adapter, AnswerReader, Form, Frame, Read, Resolved, Written};
use crate::sample::ServerAccount;

const LEFT_OUT: &str = "template, tokenization, the wait for a slot, detokenization and writing are in neither number; \
     prefill runs from the slot's start to the first token's logits, waits between its batches included; decode runs from \
     there to the last token, with sampling and waits between steps inside";

/// See the module.
pub struct LlamaServer {
    form: Form,
}

impl LlamaServer {
    pub fn new(form: Form) -> LlamaServer {
        LlamaServer { form }
    }
}

impl Adapter for LlamaServer {
    fn kind(&self) -> &'static str {
        "llama.cpp"
    }

    fn write(&self, call: &Resolved) -> Written {
        let mut own = vec![("ignore_eos", json!(call.ignore_eos))];
        if self.form.stream {
            own.push(("timings_per_token", json!(true)));
        }
        written(&self.form, call, &own)
    }

    fn reader(&self) -> Box<dyn AnswerReader> {
        Box::new(Reader::default())
    }
}

#[derive(Default)]
struct Reader {
    answer: Answer,
    timings: Timings,
}

impl AnswerReader for Reader {
    fn header(&mut self, name: &str, value: &str) {
        self.answer.header(name, value);
    }

    fn frame(&mut self, data: &str) -> Frame {
        let mut counter = None;
        if data.contains("\"timings\"")
            && let Ok(Event { timings: Some(timings) }) = serde_json::from_str(data)
        {
            counter = timings.predicted_n;
            self.timings = timings;
        }
        self.answer.frame(data, counter)
    }

    fn end(self: Box<Self>) -> Read {
        let Timings { cache_n, prompt_n, prompt_ms, predicted_n, predicted_ms } = self.timings;
        let stage = |stage: Stage, ms: Option<f64>| ms.and_then(ns_of_ms).map(|ns| (stage, ns));
        let seen = prompt_ms.is_some();
        let left_out = if seen { LEFT_OUT } else { "the answer came without timings" };
        let mut read = self.answer.end(ServerAccount {
            kind: "llama.cpp".to_owned(),
            to_first_token: stage(Stage::Prefill, prompt_ms).into_iter().collect(),
            after_it: stage(Stage::Decode, predicted_ms).into_iter().collect(),
            left_out: Some(left_out.to_owned()),
        });
        let tokens = &mut read.tokens;
        tokens.cached = tokens.cached.or(cache_n);
        tokens.prompt =
            tokens.prompt.or(cache_n.zip(prompt_n).map(|(cached, computed)| cached.saturating_add(computed)));
        tokens.output = tokens.output.or(predicted_n);
        read
    }
}

#[derive(Deserialize)]
struct Event {
    timings: Option<Timings>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Timings {
    /// Prompt tokens that were in the slot's cache, and those that were computed.
    #[serde(deserialize_with = "count")]
    cache_n: Option<u32>,
    #[serde(deserialize_with = "count")]
    prompt_n: Option<u32>,
    #[serde(deserialize_with = "number")]
    prompt_ms: Option<f64>,
    /// Tokens so far.
    #[serde(deserialize_with = "count")]
    predicted_n: Option<u32>,
    #[serde(deserialize_with = "number")]
    predicted_ms: Option<f64>,
}
