//! Our own server. It is asked for its account (`include_lifecycle`), which comes with the last event or in the whole
//! answer: every delivery with its gap by stage, which here is split at the first token. The deliveries also say how
//! many tokens each frame carried.

use std::borrow::Cow;

use ledger::Stage;
use serde::Deserialize;
use serde_json::json;

use super::answer::Answer;
use super::openai::written;
use super::{Adapter, AnswerReader, Form, Frame, Read, Resolved, Written};
use crate::sample::{CountSource, ServerAccount};

/// See the module.
pub struct Firstlight {
    form: Form,
}

impl Firstlight {
    pub fn new(form: Form) -> Firstlight {
        Firstlight { form }
    }
}

impl Adapter for Firstlight {
    fn kind(&self) -> &'static str {
        "firstlight"
    }

    fn write(&self, call: &Resolved) -> Written {
        let own = [("ignore_eos", json!(call.ignore_eos)), ("include_lifecycle", json!(true))];
        written(&self.form, call, &own)
    }

    fn reader(&self) -> Box<dyn AnswerReader> {
        Box::new(Reader { answer: Answer::default(), lifecycle: None, stream: self.form.stream })
    }
}

struct Reader {
    answer: Answer,
    lifecycle: Option<Lifecycle>,
    stream: bool,
}

impl AnswerReader for Reader {
    fn header(&mut self, name: &str, value: &str) {
        self.answer.header(name, value);
    }

    fn frame(&mut self, data: &str) -> Frame {
        // Looked for in the bytes first, so that only the one frame that has it is read twice.
        if data.contains("\"lifecycle\"")
            && let Ok(Event { lifecycle: Some(lifecycle) }) = serde_json::from_str(data)
        {
            self.lifecycle = Some(lifecycle);
        }
        self.answer.frame(data, None)
    }

    fn end(self: Box<Self>) -> Read {
        let frames = self.answer.frames();
        let server = self.lifecycle.as_ref().map_or_else(no_account, Lifecycle::account);
        let mut read = self.answer.end(server);
        if let Some(lifecycle) = self.lifecycle.filter(|_| self.stream)
            && let Some((tokens, silent)) = lifecycle.tokens_of_frames(frames)
        {
            read.tokens.source = CountSource::Server;
            read.tokens.counted = silent;
            read.frame_tokens = Some(tokens);
        }
        read
    }
}

fn no_account() -> ServerAccount {
    ServerAccount {
        kind: "firstlight".to_owned(),
        left_out: Some("the answer came without its account".to_owned()),
        ..ServerAccount::default()
    }
}

#[derive(Deserialize)]
struct Event {
    lifecycle: Option<Lifecycle>,
}

/// What is needed of `ledger::Record`, by its JSON form, so that a server of another version is understood too.
#[derive(Deserialize)]
struct Lifecycle {
    stages: Vec<Charge>,
    #[serde(default)]
    tokens: Vec<Unit>,
    #[serde(default)]
    tokens_dropped: u64,
    #[serde(default)]
    open: bool,
}

#[derive(Deserialize)]
struct Unit {
    tokens: u32,
    gap: Vec<Charge>,
}

struct Charge {
    stage: Stage,
    ns: u64,
}

impl<'de> Deserialize<'de> for Charge {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Charge, D::Error> {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            stage: Cow<'a, str>,
            ns: u64,
        }
        let Named { stage, ns } = Named::deserialize(deserializer)?;
        // A stage of a later version: its time is known, its meaning is not.
        Ok(Charge { stage: stage.parse().unwrap_or(Stage::Opaque), ns })
    }
}

impl Lifecycle {
    fn account(&self) -> ServerAccount {
        let first = self.tokens.iter().position(|unit| unit.tokens > 0);
        let mut to_first_token = match first {
            Some(first) => by_stage(self.tokens[..=first].iter().flat_map(|unit| &unit.gap)),
            // Without a token, nothing comes after it.
            None => by_stage(&self.stages),
        };
        // The stages are whole even where deliveries were too many to be kept, so the rest is taken from them.
        let mut after_it = by_stage(&self.stages);
        for (stage, ns) in &mut after_it {
            let earlier = to_first_token.iter().find(|(other, _)| other == stage).map_or(0, |(_, ns)| *ns);
            *ns = ns.saturating_sub(earlier);
        }
        to_first_token.retain(|(_, ns)| *ns > 0);
        after_it.retain(|(_, ns)| *ns > 0);
        let left_out = "writing the account itself and the frames behind it".to_owned();
        ServerAccount {
            kind: "firstlight".to_owned(),
            to_first_token,
            after_it,
            left_out: self.open.then_some(left_out),
        }
    }

    /// Tokens by frame, and those without text behind them, if the deliveries are those of the frames that the client saw.
    fn tokens_of_frames(&self, frames: usize) -> Option<(Vec<u32>, u32)> {
        let mut tokens: Vec<u32> =
            self.tokens.iter().map(|unit| unit.tokens).filter(|tokens| *tokens > 0).collect();
        // A token without text, such as the end of the turn, is delivered by the frame of the finish reason.
        let silent = if tokens.len() == frames + 1 { tokens.pop() } else { None };
        (tokens.len() == frames && self.tokens_dropped == 0).then_some((tokens, silent.unwrap_or(0)))
    }
}

/// Nanoseconds by stage, in the order of the line.
fn by_stage<'a>(charges: impl IntoIterator<Item = &'a Charge>) -> Vec<(Stage, u64)> {
    let mut sums: Vec<(Stage, u64)> = Vec::new();
    for charge in charges {
        match sums.iter_mut().find(|(stage, _)| *stage == charge.stage) {
            Some((_, ns)) => *ns = ns.saturating_add(charge.ns),
            None => sums.push((charge.stage, charge.ns)),
        }
    }
    sums.sort_by_key(|(stage, _)| *stage);
    sums
}
