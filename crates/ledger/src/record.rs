//! A closed account, read by every view.

use serde::{Deserialize, Serialize};

use crate::{Cause, RequestId, Stage, StepId, clock::Ns};

/// Time charged to one stage (of one cause).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    pub stage: Stage,
    pub ns: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<Cause>,
}

/// What reached the client at one moment: usually one token, several when text was held back or tokens came together,
/// none for the closing frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unit {
    /// How many tokens were delivered.
    pub tokens: usize,
    /// When, since the request's first byte.
    pub delivered_ns: u64,
    /// The gap since the unit before it, by stage; sums to that gap.
    pub gap: Vec<Charge>,
    /// What overlapped with the delivery of the unit before it and so delayed nobody.
    pub hidden_ns: u64,
    /// The engine step that computed its last token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepId>,
}

/// Where a prompt token came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The template's own markers and text, BOS included.
    Template,
    System,
    Tools,
    User,
    Assistant,
    /// A tool's result.
    Tool,
    Media,
    /// A raw completion's prompt.
    Raw,
}

impl Origin {
    /// All origins.
    pub const ALL: [Origin; 8] = [
        Origin::Template,
        Origin::System,
        Origin::Tools,
        Origin::User,
        Origin::Assistant,
        Origin::Tool,
        Origin::Media,
        Origin::Raw,
    ];

    /// The origin's name as every view prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::Template => "template",
            Origin::System => "system",
            Origin::Tools => "tools",
            Origin::User => "user",
            Origin::Assistant => "assistant",
            Origin::Tool => "tool",
            Origin::Media => "media",
            Origin::Raw => "raw",
        }
    }
}

/// The prompt's tokens by where they came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PromptAccount {
    pub tokens: usize,
    pub cached_tokens: usize,
    /// Tokens by origin and, for messages, by their index in the request.
    pub by_origin: Vec<OriginTokens>,
}

/// The tokens of one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OriginTokens {
    pub origin: Origin,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<usize>,
    pub tokens: usize,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// An answer was delivered in full.
    Finished,
    /// The client went away.
    CancelledByClient,
    /// The request was refused with an error status.
    Refused,
    /// Something broke on our side.
    Failed,
}

/// One choice's units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChoiceRecord {
    pub index: usize,
    pub tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<&'static str>,
    pub units: Vec<Unit>,
    /// Units beyond the limit on how many a record keeps; their charges are in `stages` all the same.
    pub units_dropped: usize,
    /// The request's whole time as this choice saw it, by stage; sums to the request's `e2e_ns`.
    pub stages: Vec<Charge>,
}

/// The life of one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    pub schema: u32,
    pub id: RequestId,
    pub model: String,
    pub outcome: Outcome,
    /// Wall-clock time of the first byte, in nanoseconds since the Unix epoch.
    pub began_unix_ns: u128,
    /// First byte in to last byte out.
    pub e2e_ns: u64,
    /// First byte in to the first generated token handed to the socket; absent if there was none.
    pub ttft_ns: Option<u64>,
    /// Charged time in the order of the line, equal stages and causes added up; sums to `e2e_ns`.
    pub stages: Vec<Charge>,
    /// Overlapped time by stage: it delayed nobody.
    pub hidden: Vec<Charge>,
    pub prompt: PromptAccount,
    pub choices: Vec<ChoiceRecord>,
    /// What the accounting itself cost after the last byte.
    pub overhead_ns: u64,
}

impl Record {
    /// The version of the record's JSON form.
    pub const SCHEMA: u32 = 1;

    /// Nanoseconds charged to `stage`, all causes together.
    pub fn charged_ns(&self, stage: Stage) -> u64 {
        self.stages.iter().filter(|charge| charge.stage == stage).map(|charge| charge.ns).sum()
    }
}

/// Adds `ns` to the entry of the same stage and cause, or makes one.
pub(crate) fn add(charges: &mut Vec<Charge>, stage: Stage, cause: Option<&Cause>, ns: u64) {
    match charges.iter_mut().find(|charge| charge.stage == stage && charge.cause.as_ref() == cause) {
        Some(charge) => charge.ns += ns,
        None => charges.push(Charge { stage, ns, cause: cause.cloned() }),
    }
}

/// Moments relative to `origin`.
pub(crate) fn since(origin: Ns, moment: Ns) -> u64 {
    moment.saturating_sub(origin)
}
