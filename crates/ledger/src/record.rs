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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(skip_serializing_if = "Option::is_none", default)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptAccount {
    pub tokens: usize,
    /// Tokens whose keys and values were there already.
    pub cached_tokens: usize,
    /// Why the others were not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub miss: Option<Miss>,
    /// Tokens by origin and, for messages, by their index in the request.
    pub by_origin: Vec<OriginTokens>,
}

/// Why a prompt's tokens, `from` this one on, were not found in the prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Miss {
    /// Nothing that was computed went on like this.
    NeverSeen { from: usize },
    /// Up to there it was the same as an earlier prompt or answer.
    Diverged { from: usize },
    /// They had been computed, but so long ago another request needed the memory.
    Evicted { from: usize, by: RequestId, ago_ns: u64 },
}

impl Miss {
    /// The first token that was not found.
    pub fn from(&self) -> usize {
        match self {
            Miss::NeverSeen { from } | Miss::Diverged { from } | Miss::Evicted { from, .. } => *from,
        }
    }
}

/// The tokens of one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginTokens {
    pub origin: Origin,
    #[serde(skip_serializing_if = "Option::is_none", default)]
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

/// One choice of a request that has several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoiceRecord {
    pub index: usize,
    pub tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub finish_reason: Option<String>,
    /// First byte in to the choice's last byte out, by stage.
    pub stages: Vec<Charge>,
    /// Its deliveries; empty for the choice that the request's own account follows, where they stand in `tokens`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub units: Vec<Unit>,
}

/// The life of one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`Record::SCHEMA`].
    pub schema: u32,
    pub id: RequestId,
    pub model: String,
    pub outcome: Outcome,
    /// The status of the answer, and for a refusal its words.
    pub status: u16,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refusal: Option<String>,
    /// Wall-clock time of the first byte, in nanoseconds since the Unix epoch.
    pub began_unix_ns: u64,
    /// First byte in to last byte out.
    pub e2e_ns: u64,
    /// First byte in to the first generated token handed to the socket; absent if there was none.
    pub ttft_ns: Option<u64>,
    /// Charged time in the order of the line, equal stages and causes added up; sums to `e2e_ns`.
    pub stages: Vec<Charge>,
    /// Overlapped time by stage: it delayed nobody.
    pub hidden: Vec<Charge>,
    pub prompt: PromptAccount,
    /// Deliveries of the choice that closed last, which the request's account follows; their gaps sum to `e2e_ns`.
    pub tokens: Vec<Unit>,
    /// Deliveries beyond [`crate::Account::UNITS_MAX`]: not kept one by one, but charged in `stages`.
    pub tokens_dropped: usize,
    /// Tokens generated over all choices.
    pub completion_tokens: usize,
    pub choices: Vec<ChoiceRecord>,
    /// Top-level keys of the request that nothing reads.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ignored: Vec<String>,
    /// The account is not closed yet: it was written into the answer that it accounts for.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub open: bool,
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
