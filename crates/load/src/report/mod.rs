//! What a run says, in the forms people read it in: a table in the terminal, a JSON file, a CSV file, a page, and a live
//! view while it runs. All of them are views of one [`Report`], so they cannot disagree.
//!
//! **Invariant:** nothing here measures. Numbers come as they were computed; what is absent stays absent, and a
//! percentile that reached a failed call is infinite, not left out.

use serde::{Deserialize, Serialize};

use crate::results::Results;

pub mod assemble;

pub mod number;

pub mod phases;

pub mod tally;

pub mod live;

pub mod table;

pub mod json;

pub mod csv;

pub mod html;

/// A run, or a sweep of runs at growing load, with everything that was computed from it. This is the JSON file's shape;
/// `docs/load-report.md` describes it field by field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`Report::SCHEMA`].
    pub schema: u32,
    pub title: String,
    /// Which of `results` the metrics, and the page's detailed charts, are of.
    pub focus: usize,
    pub metrics: Vec<MetricRow>,
    pub slo: Option<SloView>,
    /// Of a sweep: one row a level, in the order of `results`, by growing load. Empty for a single run.
    pub levels: Vec<LevelRow>,
    /// The mission's four closing questions.
    pub verdict: Vec<Answer>,
    /// The runs themselves.
    pub results: Vec<Results>,
}

impl Report {
    /// The version of the file. A change of meaning raises it.
    pub const SCHEMA: u32 = 1;

    /// The run that is reported in detail; None if there is none.
    pub fn focused(&self) -> Option<&Results> {
        self.results.get(self.focus).or(self.results.last())
    }
}

/// One metric of the focused run. A metric with a distribution has percentiles; a rate has only a mean.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricRow {
    /// As tables print it, such as `TTFT`.
    pub name: String,
    /// The two boundaries between which it was measured, in words.
    pub definition: String,
    /// `ms` for times (printed as µs, ms or s, whatever fits); anything else is printed as it is, such as `tokens/s`.
    pub unit: String,
    pub from: Origin,
    /// Whether the terminal's table has it; files and page have all.
    pub main: bool,
    /// Values that went into it, failed calls included.
    pub n: u64,
    /// Those of `n` that are failed calls: infinite in times, 0 in speeds.
    pub failed: u64,
    #[serde(with = "number::serde_absent")]
    pub mean: Option<f64>,
    #[serde(with = "number::serde_absent")]
    pub p50: Option<f64>,
    #[serde(with = "number::serde_absent")]
    pub p90: Option<f64>,
    #[serde(with = "number::serde_absent")]
    pub p95: Option<f64>,
    #[serde(with = "number::serde_absent")]
    pub p99: Option<f64>,
    #[serde(with = "number::serde_absent")]
    pub max: Option<f64>,
    pub ci95: Option<Interval>,
    /// What a reader must know besides, such as how the interval was made, or why a percentile is absent.
    pub note: Option<String>,
}

/// Where a metric's time begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// When the schedule wanted the call sent: no coordinated omission.
    #[default]
    Intended,
    /// When the call was sent.
    Sent,
    /// Neither: a time between two boundaries of the answer, or a rate.
    Neither,
}

/// A 95 % confidence interval of one of a row's numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The statistic it is of, such as `p95` or `mean`.
    pub of: String,
    #[serde(with = "number::serde_finite_or_inf")]
    pub low: f64,
    #[serde(with = "number::serde_finite_or_inf")]
    pub high: f64,
}

/// What was demanded, and how much load it held for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SloView {
    pub objectives: Vec<Objective>,
    /// The greatest load that met all of them; absent where none did, or no search was made.
    pub capacity: Option<f64>,
    /// `users` or `requests/s`.
    pub capacity_unit: String,
    pub capacity_ci95: Option<Interval>,
    /// The objective that breaks first, as the user wrote it.
    pub binds: Option<String>,
    /// The stage in which it breaks; absent where the server's account does not show it.
    pub binding_stage: Option<String>,
    /// Why that stage, or why none can be named.
    pub evidence: Vec<String>,
    /// What the capacity costs, such as `("tokens per dollar", "1.2 million")`.
    pub cost: Vec<(String, String)>,
}

/// One objective.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// Such as `ttft_p95`; those named like a [`LevelRow`]'s field are drawn as a line in its chart.
    pub metric: String,
    /// As the user wrote it, such as `ttft_p95<500ms`.
    pub text: String,
    /// In `unit`.
    pub limit: f64,
    pub unit: String,
    /// At the focused run, in `unit`.
    #[serde(with = "number::serde_absent")]
    pub measured: Option<f64>,
    /// Absent where there were too few calls to tell.
    pub passes: Option<bool>,
}

/// One level of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelRow {
    /// In `load_unit`.
    pub load: f64,
    /// `users` or `requests/s`.
    pub load_unit: String,
    /// Output tokens a second; absent where there were too few calls to tell.
    #[serde(with = "number::serde_absent")]
    pub throughput: Option<f64>,
    /// Milliseconds, from the intended time.
    #[serde(with = "number::serde_absent")]
    pub ttft_p95: Option<f64>,
    /// Milliseconds.
    #[serde(with = "number::serde_absent")]
    pub itl_p95: Option<f64>,
    /// Failed calls over all calls that count, 0 to 1; absent where there were too few to tell.
    #[serde(with = "number::serde_absent")]
    pub errors: Option<f64>,
    /// Calls that count.
    pub n: u64,
    /// Whether all objectives were met; absent where there are none, or too few calls to tell.
    pub passes: Option<bool>,
    /// Why the level does not count; empty if it does.
    pub void: Vec<String>,
}

/// A question of the verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub question: String,
    pub answer: String,
    pub evidence: Vec<String>,
    /// What was measured does not tell; `evidence` says what is missing.
    pub abstains: bool,
}
