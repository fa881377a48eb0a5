//! A run, as its JSON file has it. `docs/load.md` describes the schema; a change of meaning raises [`Results::SCHEMA`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::adapter::totals::RunMeans;
use crate::collect::Figures;
use crate::sample::{Ns, Sample};
use crate::schedule::Pacing;

/// One run against one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`Results::SCHEMA`].
    pub schema: u32,
    /// Tool and version.
    pub tool: String,
    /// The run's start, Unix seconds.
    pub began_unix_s: u64,
    pub target: Target,
    pub workload: String,
    pub seed: u64,
    pub pacing: Pacing,
    /// Which part of the run counts.
    pub window: Window,
    pub health: Health,
    /// How many calls ended how, over the whole run.
    pub outcomes: BTreeMap<String, u64>,
    /// Calls that could not be sent when they were intended, because as many as allowed were under way. They are measured
    /// from their intended time all the same.
    #[serde(default)]
    pub held: u64,
    /// Figures over all calls, the dropped ones included, by name: `ttft`, `itl`, `e2e` (from the intended time), `lag`.
    #[serde(default)]
    pub histograms: BTreeMap<String, Figures>,
    /// What the server tells only in sum, where its kind has such totals: means by stage over the run, of all its clients.
    #[serde(default)]
    pub server_means: Option<RunMeans>,
    /// Calls in the order of their ids: all of them, or the first `samples_max`.
    pub samples: Vec<Sample>,
    /// Calls that are in the counts and histograms but not in `samples`.
    pub samples_dropped: u64,
}

impl Results {
    pub const SCHEMA: u32 = 1;
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    pub url: String,
    /// `firstlight`, `llama.cpp`, `vllm`, `sglang`, or `opaque`.
    pub kind: String,
    pub model: String,
    /// `chat` or `completions`.
    pub endpoint: String,
    pub stream: bool,
}

/// The part of a run that counts: calls whose intended time lies in `[from_ns, to_ns)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub from_ns: Ns,
    pub to_ns: Ns,
    /// When the last call ended.
    pub run_ns: Ns,
}

/// Whether the client itself kept up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Sent minus intended, nanoseconds, of calls that could be sent at once: median, p99, worst.
    pub lag_ns: [u64; 3],
    /// Worst delay of a timer on the client's threads.
    pub stall_ns: u64,
    /// The client's own processor time over wall time, in cores.
    pub cpu_cores: f64,
    /// Processor time of the whole machine that was in use, 0 to 1, where the system tells.
    pub machine_busy: Option<f64>,
    pub connection_errors: u64,
    pub retries: u64,
    /// Why the run does not count; empty if it does.
    pub void: Vec<String>,
}
