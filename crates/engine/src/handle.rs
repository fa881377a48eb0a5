//! The engine as seen from other threads.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ledger::clock::Ns;
use ledger::{Stage, StepId, StepRecord, delay};
use protocol::{Refusal, RefusalKind, Submission};

use crate::outputs::{self, Full};
use crate::queue::{Arrival, Closed, Inbox};
use crate::state::Gauges;
use crate::{EngineState, Limits, Outputs};

/// Gives the present moment: [`ledger::now_ns`], or a simulation's own time.
pub type Clock = Arc<dyn Fn() -> Ns + Send + Sync>;

/// What the engine's thread and everyone else share.
pub(crate) struct Shared {
    pub limits: Limits,
    pub inbox: Inbox,
    pub gauges: Gauges,
    clock: Clock,
}

impl Shared {
    pub fn new(limits: Limits, clock: Clock) -> Arc<Self> {
        let gauges = Gauges::new(&limits);
        Arc::new(Shared { limits, inbox: Inbox::default(), gauges, clock })
    }

    pub fn now(&self) -> Ns {
        (self.clock)()
    }
}

/// Submits to the engine and asks how it is; never waits for a step. When the last handle is dropped, the engine stops.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>, thread: Option<JoinHandle<()>>) -> Self {
        Handle { inner: Arc::new(Inner { shared, thread: Mutex::new(thread) }) }
    }

    /// Takes one sequence on, or says at once why not.
    ///
    /// # Errors
    /// `ContextLength` for a sequence that can never fit, `Unavailable` when the queue is full or the engine is
    /// draining or gone, `Invalid` for what no validated request holds.
    pub fn submit(&self, submission: Submission) -> Result<Outputs, Refusal> {
        let shared = &self.inner.shared;
        let submitted = shared.now();
        check_submission(&submission, &shared.limits)?;
        if shared.gauges.draining.load(Ordering::Relaxed) {
            return Err(self.unavailable("the server is shutting down and takes no new requests"));
        }
        delay::inject(Stage::Handoff);
        let tokens = submission.prompt.len();
        let (outbox, outputs) = outputs::open(shared, tokens).map_err(|full| self.full(full, tokens))?;
        match shared.inbox.push(Arrival { submission, submitted, outbox }) {
            Ok(()) => Ok(outputs),
            Err(Closed) => Err(self.unavailable("the engine has stopped")),
        }
    }

    /// How the engine is doing.
    pub fn state(&self) -> EngineState {
        let shared = &self.inner.shared;
        shared.gauges.state(&shared.limits, shared.now())
    }

    /// The engine's limits.
    pub fn limits(&self) -> &Limits {
        &self.inner.shared.limits
    }

    /// The newest steps, at most `count`, oldest first.
    pub fn steps(&self, count: usize) -> Vec<StepRecord> {
        self.inner.shared.gauges.newest(count)
    }

    /// The steps `first..=last`, as far as they are still kept.
    pub fn steps_between(&self, first: StepId, last: StepId) -> Vec<StepRecord> {
        self.inner.shared.gauges.between(first, last)
    }

    /// Takes nothing new; what runs and waits is finished. The drain is over when [`EngineState::is_idle`] holds.
    pub fn drain(&self) {
        self.inner.shared.gauges.draining.store(true, Ordering::Relaxed);
    }

    /// Ends everything at the next step boundary (each sequence is told) and waits for the thread to end.
    pub fn stop(self) {
        self.inner.request_stop();
        let thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread catches its panics; should one escape all the same, the gauges say that it is gone.
            let _ = thread.join();
        }
    }

    fn full(&self, full: Full, tokens: usize) -> Refusal {
        let Shared { limits, gauges, .. } = &*self.inner.shared;
        let (message, wait) = match full {
            Full::Sequences(waiting) => (
                format!("the queue is full: {waiting} sequences wait already; try again later"),
                gauges.turnover(),
            ),
            Full::Tokens(waiting) => (
                format!(
                    "the queue is full: {waiting} prompt tokens wait already, and with the {tokens} of this one they would \
                     be more than {}; try again later",
                    limits.queue_tokens_max
                ),
                gauges.drained((waiting + tokens).saturating_sub(limits.queue_tokens_max)),
            ),
        };
        Refusal::new(RefusalKind::Unavailable, message).retry_after(wait)
    }

    fn unavailable(&self, message: impl Into<String>) -> Refusal {
        Refusal::new(RefusalKind::Unavailable, message).retry_after(self.inner.shared.gauges.turnover())
    }
}

impl Inner {
    fn request_stop(&self) {
        self.shared.gauges.draining.store(true, Ordering::Relaxed);
        self.shared.gauges.stopping.store(true, Ordering::Relaxed);
        self.shared.inbox.ring();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.request_stop();
    }
}

/// Refuses what could never be served.
fn check_submission(submission: &Submission, limits: &Limits) -> Result<(), Refusal> {
    let prompt = submission.prompt.len();
    if prompt == 0 {
        return Err(Refusal::invalid("prompt", "has no tokens; at least one is needed"));
    }
    if submission.sampling.max_tokens == Some(0) {
        return Err(Refusal::invalid("max_tokens", "is 0; it must be at least 1"));
    }
    if let Some(token) = submission.prompt.iter().find(|token| token.index() >= limits.vocabulary) {
        let message = format!("holds token {token}, but the vocabulary has {} tokens", limits.vocabulary);
        return Err(Refusal::invalid("prompt", message));
    }
    submission.sampling.validate(limits.vocabulary)?;
    let too_long = |what: String| {
        Err(Refusal::new(
            RefusalKind::ContextLength,
            format!(
                "the prompt has {prompt} tokens and the answer needs at least one, but {what}; shorten the prompt"
            ),
        ))
    };
    if prompt >= limits.max_model_len {
        return too_long(format!("the model's context is {} tokens", limits.max_model_len));
    }
    if prompt >= limits.pool_tokens() {
        return too_long(format!("the server's KV memory holds {} tokens", limits.pool_tokens()));
    }
    Ok(())
}
