//! What is to be sent, and when. A schedule is decided before the run, from a seed, so that it can be sent again to
//! another server, call by call.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::ChaCha12Rng;
use serde::{Deserialize, Serialize};

/// A call's place in its schedule; the same on every server that the schedule is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub u64);

/// What gives a schedule its calls. Pure: the same `id` always gives the same call, so that a run of a million calls
/// keeps none of them.
pub trait Workload: Send + Sync {
    /// How many calls there are; None where they never end.
    fn len(&self) -> Option<u64>;

    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// A call, or None behind the last one.
    fn call(&self, id: CallId) -> Option<Call>;

    /// The workload in one line, for reports.
    fn describe(&self) -> String;
}

/// One request, as it is to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub id: CallId,
    pub prompt: Prompt,
    /// The answer's length limit in tokens.
    pub max_tokens: u32,
    /// Asks the server to go on until `max_tokens`, where it knows how to.
    pub ignore_eos: bool,
    /// Calls that must have ended before this one may be sent; they have smaller ids.
    pub after: Vec<CallId>,
    /// The conversation or workflow that it belongs to.
    pub session: Option<u64>,
    /// The prompt's length in tokens as the workload was asked to make it; None where it cannot know.
    pub prompt_tokens: Option<u32>,
}

/// What a call says.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// A raw completion.
    Text(Arc<str>),
    /// A raw completion, by token ids.
    Tokens(Arc<[u32]>),
    /// A conversation. Where a message is an [`Said::Answer`], the runner puts in what the server answered to that call.
    Chat(Vec<Said>),
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Message {
        role: Arc<str>,
        content: Arc<str>,
    },
    /// The server's own answer to an earlier call, as an assistant's message.
    Answer(CallId),
}

/// When calls are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "loop", rename_all = "snake_case")]
pub enum Pacing {
    /// At intended times that do not depend on the answers. `mean_per_s` is absent for traces.
    Open { description: String, mean_per_s: Option<f64> },
    /// By `users` who each wait for an answer, think, and send again.
    Closed { users: usize, think_ms: f64 },
}

/// The intended times of an open loop's calls since the run's start, ascending; from a seed, so they can be had again.
pub type Arrivals = Box<dyn Iterator<Item = Duration> + Send>;

/// What random numbers are drawn for. Each purpose has numbers of its own, so that, say, other prompt lengths leave the
/// arrival times as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Purpose {
    Arrivals = 1,
    PromptLength = 2,
    AnswerLength = 3,
    Text = 4,
    /// Text that several calls share.
    SharedText = 5,
    Group = 6,
    Shuffle = 7,
    Tag = 8,
}

/// The random numbers for one purpose and one index, such as a call's number. Streams do not overlap: seed and purpose are the
/// generator's key, and the index is its stream.
pub fn random_stream(seed: u64, purpose: Purpose, index: u64) -> ChaCha12Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&(purpose as u64).to_le_bytes());
    let mut random = ChaCha12Rng::from_seed(key);
    random.set_stream(index);
    random
}
