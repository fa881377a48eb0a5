//! SGLang. A whole chat answer brings `meta_info` when asked (`return_meta_info`); streamed ones are refused with that
//! field, so a stream's stages are opaque and only [`super::totals`] of the whole run are to be had from `/metrics`. Fields
//! and meanings after SGLang's `python/sglang/srt/observability/req_time_stats.py` (0.5.23) and
//! `srt/entrypoints/openai/serving_chat.py`.
//!
//! Moments in `meta_info` are of the server's own wall clock; only differences between them are taken.

use ledger::Stage;
use serde::Deserialize;
use serde_json::json;

use super::answer::Answer;
use super::number::{count, ns_of_s, number};
use super::openai::written;
use super::{Adapter, AnswerReader, Endpoint, Form, Frame, Read, Resolved, ResolvedPrompt, Written};
use crate::sample::ServerAccount;

const LEFT_OUT: &str = "opaque is from the request's arrival to the scheduler's queue (template, tokenization, hand-off); \
     prefill runs from the first step to the first token, waits between chunks included; decode runs from there to the \
     end, with sampling, waits between steps, the way back and detokenization inside; writing is in no number";
const NOT_ASKED: &str =
    "SGLang gives a request's timings only in whole chat answers, so this request's stages are not seen";
const NOT_SHOWN: &str = "the answer came without timings (SGLang gives them when started with --enable-metrics), so this \
     request's stages are not seen";

/// See the module.
pub struct Sglang {
    form: Form,
}

impl Sglang {
    pub fn new(form: Form) -> Sglang {
        Sglang { form }
    }

    fn tells(&self) -> bool {
        !self.form.stream && self.form.endpoint == Endpoint::Chat
    }
}

impl Adapter for Sglang {
    fn kind(&self) -> &'static str {
        "sglang"
    }

    fn write(&self, call: &Resolved) -> Written {
        let mut own = vec![("ignore_eos", json!(call.ignore_eos))];
        if self.form.stream {
            own.push(("stream_options", json!({"include_usage": true, "continuous_usage_stats": true})));
        }
        if self.tells() && !matches!(call.prompt, ResolvedPrompt::Tokens(_)) {
            own.push(("return_meta_info", json!(true)));
        }
        written(&self.form, call, &own)
    }

    fn reader(&self) -> Box<dyn AnswerReader> {
        let left_out = if self.tells() { NOT_SHOWN } else { NOT_ASKED };
        Box::new(Reader { answer: Answer::default(), meta: MetaInfo::default(), left_out })
    }
}

struct Reader {
    answer: Answer,
    meta: MetaInfo,
    /// What to say where there is no account.
    left_out: &'static str,
}

impl AnswerReader for Reader {
    fn header(&mut self, name: &str, value: &str) {
        self.answer.header(name, value);
    }

    fn frame(&mut self, data: &str) -> Frame {
        if data.contains("\"meta_info\"")
            && let Ok(event) = serde_json::from_str::<Event>(data)
            && let Some(meta) = event.choices.into_iter().find_map(|choice| choice.meta_info)
        {
            self.meta = meta;
        }
        self.answer.frame(data, None)
    }

    fn end(self: Box<Self>) -> Read {
        let (meta, between) = (&self.meta, |from: Option<f64>, to: Option<f64>| ns_of_s(to? - from?));
        let queued = meta.queue_time.zip(meta.forward_entry_time).map(|(queue, entry)| entry - queue);
        let to_first_token = [
            (Stage::Opaque, between(meta.request_received_ts, queued)),
            (Stage::Queue, meta.queue_time.and_then(ns_of_s)),
            (Stage::Prefill, between(meta.forward_entry_time, meta.prefill_finished_time)),
        ];
        let after_it = [(Stage::Decode, between(meta.prefill_finished_time, meta.request_finished_ts))];
        let seen = |(stage, ns): (Stage, Option<u64>)| ns.map(|ns| (stage, ns));
        let mut to_first_token: Vec<_> = to_first_token.into_iter().filter_map(seen).collect();
        to_first_token.sort_by_key(|(stage, _)| *stage);
        let left_out = if to_first_token.is_empty() { self.left_out } else { LEFT_OUT };
        let (prompt, cached, output) = (meta.prompt_tokens, meta.cached_tokens, meta.completion_tokens);
        let mut read = self.answer.end(ServerAccount {
            kind: "sglang".to_owned(),
            to_first_token,
            after_it: after_it.into_iter().filter_map(seen).collect(),
            left_out: Some(left_out.to_owned()),
        });
        let tokens = &mut read.tokens;
        tokens.prompt = tokens.prompt.or(prompt);
        tokens.cached = tokens.cached.or(cached);
        tokens.output = tokens.output.or(output);
        read
    }
}

#[derive(Deserialize)]
struct Event {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    meta_info: Option<MetaInfo>,
}

/// Durations and moments in seconds.
#[derive(Default, Deserialize)]
#[serde(default)]
struct MetaInfo {
    #[serde(deserialize_with = "number")]
    request_received_ts: Option<f64>,
    #[serde(deserialize_with = "number")]
    queue_time: Option<f64>,
    #[serde(deserialize_with = "number")]
    forward_entry_time: Option<f64>,
    #[serde(deserialize_with = "number")]
    prefill_finished_time: Option<f64>,
    #[serde(deserialize_with = "number")]
    request_finished_ts: Option<f64>,
    #[serde(deserialize_with = "count")]
    prompt_tokens: Option<u32>,
    #[serde(deserialize_with = "count")]
    cached_tokens: Option<u32>,
    #[serde(deserialize_with = "count")]
    completion_tokens: Option<u32>,
}
