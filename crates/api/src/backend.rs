//! What the edge asks of whatever computes tokens.

use std::task::{Context, Poll};

use ledger::StepRecord;
use protocol::{Output, Refusal, Submission};
use serde::Serialize;

/// Computes tokens: the engine in this process, or something far away.
pub trait Backend: Send + Sync {
    /// Takes one sequence on, or says at once why not. Never blocks.
    ///
    /// # Errors
    /// A full queue, a shutdown under way, or a sequence that can never fit.
    fn submit(&self, submission: Submission) -> Result<Box<dyn Answers>, Refusal>;

    /// How it is doing; cheap, and never waits for a step.
    fn state(&self) -> BackendState;

    /// The newest steps, at most `count`, oldest first.
    fn steps(&self, count: usize) -> Vec<StepRecord>;

    /// Finishes what it has and takes nothing new.
    fn drain(&self);
}

/// The outputs of one submission. Dropping it cancels the sequence.
pub trait Answers: Send {
    /// The next output; `None` after the last one.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Output>>;

    /// Asks for the sequence to end within one step; its last output is then [`Output::Cancelled`].
    fn cancel(&mut self);
}

/// How a backend is doing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BackendState {
    /// Whether it takes requests.
    pub ready: bool,
    /// Why not, where it does not.
    pub reason: Option<String>,
    pub running: usize,
    pub waiting: usize,
    /// KV blocks that can be leased, those that only the prefix cache keeps included.
    pub blocks_free: usize,
    pub blocks_cached: usize,
    /// Prompt tokens of those that wait.
    pub waiting_tokens: usize,
    pub blocks_total: usize,
    /// Tokens of all prompts so far, and those of them that came from the prefix cache.
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    /// Mean relative error of recent forecasts of how long a step takes.
    pub forecast_error: Option<f64>,
    pub steps: u64,
}
