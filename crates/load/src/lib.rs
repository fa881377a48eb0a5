//! The load tool: it sends a schedule of calls to any OpenAI-compatible server, stamps what comes back, and says what the
//! server's users would have felt, which service-level objective breaks first, and in which stage.
//!
//! The way of a number: [`schedule`] (what is to be sent, and when) → client → [`sample`] (the boundaries of one call) →
//! [`results`] (a run, as its JSON file has it) → metrics, comparison, reports.
//!
//! **Invariant:** a metric is a difference of two named boundaries; what was not seen is absent, never guessed.

pub mod schedule;

// What is sent, and when.
pub mod arrivals;
pub mod workload;
mod compact;
mod jsonl;

pub mod adapter;

pub mod client;

pub mod run;

pub mod health;

pub mod collect;

pub mod sample;

pub mod results;

pub mod stats;

pub mod metrics;

pub mod dialect;

pub mod slo;

pub mod search;

pub mod capacity;

pub mod compare;

pub mod verdict;

pub mod report;
