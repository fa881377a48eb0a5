//! vLLM. Started with `--enable-per-request-metrics` it ends an answer with `metrics`; without, the request's stages are
//! opaque and only [`super::totals`] of the whole run are to be had from its `/metrics`. Fields and meanings after vLLM's
//! `docs/features/per_request_metrics.md` (commit 0377ba9ad), as 0.32.0 sends them. Its running usage (`continuous_usage_stats`) says how many
//! tokens each frame carries.

use ledger::Stage;
use serde::Deserialize;
use serde_json::json;

use super::answer::Answer;
use super::number::{ns_of_ms, number};
use super::openai::written;
use super::{Adapter, AnswerReader, Form, Frame, Read, Resolved, Written};
use crate::sample::ServerAccount;

const LEFT_OUT: &str = "template, tokenization, the way to the scheduler, detokenization and writing are in none of these \
     numbers; prefill runs from scheduling to the first token, sampling and waits between chunks included; decode runs \
     from there to the last token, with sampling, preemption and waits between steps inside";
const NOT_SHOWN: &str = "the answer came without metrics (vLLM gives them when started with --enable-per-request-metrics), \
     so this request's stages are not seen";

/// See the module.
pub struct Vllm {
    form: Form,
}

impl Vllm {
    pub fn new(form: Form) -> Vllm {
        Vllm { form }
    }
}

impl Adapter for Vllm {
    fn kind(&self) -> &'static str {
        "vllm"
    }

    fn write(&self, call: &Resolved) -> Written {
        let mut own = vec![("ignore_eos", json!(call.ignore_eos))];
        if self.form.stream {
            own.push(("stream_options", json!({"include_usage": true, "continuous_usage_stats": true})));
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
    metrics: Metrics,
}

impl AnswerReader for Reader {
    fn header(&mut self, name: &str, value: &str) {
        self.answer.header(name, value);
    }

    fn frame(&mut self, data: &str) -> Frame {
        if data.contains("\"metrics\"")
            && let Ok(Event { metrics: Some(metrics) }) = serde_json::from_str(data)
        {
            self.metrics = metrics;
        }
        self.answer.frame(data, None)
    }

    fn end(self: Box<Self>) -> Read {
        let Metrics { queue_time_ms, time_to_first_token_ms, generation_time_ms } = self.metrics;
        let stage = |stage: Stage, ms: Option<f64>| ms.and_then(ns_of_ms).map(|ns| (stage, ns));
        let to_first_token: Vec<_> =
            [stage(Stage::Queue, queue_time_ms), stage(Stage::Prefill, time_to_first_token_ms)]
                .into_iter()
                .flatten()
                .collect();
        let left_out = if to_first_token.is_empty() { NOT_SHOWN } else { LEFT_OUT };
        self.answer.end(ServerAccount {
            kind: "vllm".to_owned(),
            to_first_token,
            after_it: stage(Stage::Decode, generation_time_ms).into_iter().collect(),
            left_out: Some(left_out.to_owned()),
        })
    }
}

#[derive(Deserialize)]
struct Event {
    metrics: Option<Metrics>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metrics {
    /// In the scheduler's queue.
    #[serde(deserialize_with = "number")]
    queue_time_ms: Option<f64>,
    /// From scheduling, not from arrival.
    #[serde(deserialize_with = "number")]
    time_to_first_token_ms: Option<f64>,
    /// From the first to the last token.
    #[serde(deserialize_with = "number")]
    generation_time_ms: Option<f64>,
}
