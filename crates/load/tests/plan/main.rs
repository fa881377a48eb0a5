//! Schedules: when calls are wanted, and what they say.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod arrivals;

mod merging;
mod support;

mod exact;
mod file;
mod lengths;
mod spec;
mod workloads;
