//! The engine: sequences of token ids in, sampled tokens out, one step at a time on one plain thread.
//!
//! A sequence's life, in the order of the files: it arrives in the inbox ([`queue`]), waits until the planner ([`plan`],
//! which knows by [`cost`] how long a step will take) admits it with a lease on KV blocks ([`blocks`], some of which hold its
//! beginning already: [`prefix`]), becomes rows of a [`batch`], is computed by an [`executor`], gets a
//! token ([`sample`]), and hands it out through its outbox ([`outputs`]). [`step`] is the loop that says so.
//!
//! **Invariant:** nothing here knows HTTP, JSON, or text; the engine never blocks on a client.

mod limits;

mod handle;
mod outputs;
mod queue;
mod state;

pub mod blocks;
pub mod prefix;
pub mod cost;
mod fair;
pub mod plan;
mod sequence;

mod batch;
mod executor;
pub mod sample;
mod step;

pub mod simulate;

pub use executor::{CpuExecutor, ExecuteError, Executor};
pub use handle::{Clock, Handle};
pub use limits::{Limits, LimitsError};
pub use outputs::Outputs;
pub use state::EngineState;
pub use step::{Engine, Progress, StartError};
