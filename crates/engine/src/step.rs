//! The step: the loop that all tokens come from.
//!
//! **Invariant:** between two steps every sequence is either in the queue, holding nothing, or running with its lease.

mod carry;
mod phases;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use ledger::clock::Ns;
use ledger::{Cause, Member, Parts, StepId};

use crate::batch::batch;
use crate::blocks::{BlockPool, Caching};
use crate::cost::CostModel;
use crate::fair::Shares;
use crate::handle::{Clock, Shared};
use crate::plan::{Plan, Situation, plan};
use crate::queue::{Arrival, Queue};
use crate::sample::Scratch;
use crate::sequence::{Running, SequenceId};
use crate::{Executor, Handle, Limits, LimitsError};

/// Continuous batching over one executor.
pub struct Engine<E> {
    shared: Arc<Shared>,
    executor: E,
    pool: BlockPool,
    queue: Queue,
    /// By class, then by arrival.
    running: Vec<Running>,
    shares: Shares,
    /// What the plan of this step was made from, and the plan.
    situation: Situation,
    plan: Plan,
    /// What kept the engine from its inbox, until when.
    absence: (Cause, Ns),
    last_end: Ns,
    last_admission: Ns,
    cost: CostModel,
    next_sequence: SequenceId,
    arrivals: Vec<Arrival>,
    scratch: Scratch,
}

/// Whether a step did anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Worked,
    /// Nothing can be done until something arrives, is cancelled, or an outbox gets room.
    Idle,
}

impl<E: Executor> Engine<E> {
    /// One step: picks up what has arrived, lets go of what was cancelled, plans, carries the plan out, executes the batch,
    /// and for each row with logits samples a token, commits it, and hands it out.
    pub fn step(&mut self) -> Progress {
        let mut step = self.begin();
        self.drain_inbox();
        self.release_cancelled();
        self.look_up();
        self.arrange();
        self.survey();
        self.plan = plan(&self.situation, &self.shared.limits);
        self.carry_out_plan();
        let Some(batch) = batch(&self.running) else { return self.rest(step) };
        match self.execute(&batch, &mut step) {
            Ok(mut logits) => {
                step.went_well = true;
                for (row, index) in self.sampling_rows().into_iter().enumerate() {
                    let Some(sampled) = self.sample(index, &mut logits, row, &mut step) else { continue };
                    let finish = self.commit(index, &sampled);
                    self.emit(index, sampled, finish, step.id);
                }
            }
            Err(error) => self.fail_members(&error),
        }
        self.release_ended();
        self.record(step)
    }
}

/// What is known of the step in progress.
struct Step {
    id: StepId,
    started: Ns,
    parts: Parts,
    /// Time in the executor and in sampling; the rest is scheduling.
    computing_ns: u64,
    /// It gave logits.
    went_well: bool,
    members: Vec<Member>,
}

impl<E: Executor> Engine<E> {
    /// An engine that its owner steps, and a handle to it.
    ///
    /// # Errors
    /// Limits with which no engine makes progress.
    pub fn new(executor: E, limits: Limits, clock: Clock) -> Result<(Self, Handle), LimitsError> {
        limits.validate()?;
        let shared = Shared::new(limits, clock);
        let handle = Handle::new(shared.clone(), None);
        Ok((Engine::over(shared, executor), handle))
    }

    /// Starts an engine on a thread of its own, which makes the executor first.
    ///
    /// # Errors
    /// Limits with which no engine makes progress, or a thread that cannot be started.
    pub fn start(make: impl FnOnce() -> E + Send + 'static, limits: Limits) -> Result<Handle, StartError> {
        limits.validate()?;
        let shared = Shared::new(limits, Arc::new(ledger::now_ns));
        let exit = Exit(shared.clone());
        let of_thread = shared.clone();
        let body = move || {
            let _exit = exit;
            Engine::over(of_thread, make()).serve();
        };
        let thread = thread::Builder::new().name("engine".into()).spawn(body)?;
        Ok(Handle::new(shared, Some(thread)))
    }

    /// What the last step was planned from, and its plan.
    pub fn last_plan(&self) -> (&Situation, &Plan) {
        (&self.situation, &self.plan)
    }

    /// Checks that every block is free, idle or held by the sequences that think so.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check_blocks(&self) -> Result<(), String> {
        self.pool.check(self.running.iter().map(|running| &running.lease))
    }

    fn over(shared: Arc<Shared>, executor: E) -> Self {
        shared.gauges.loading.store(false, Ordering::Relaxed);
        let loaded = shared.now();
        Engine {
            pool: pool(&shared.limits, &executor),
            executor,
            queue: Queue::default(),
            running: Vec::new(),
            shares: Shares::default(),
            situation: Situation::default(),
            plan: Plan::default(),
            absence: (Cause::ModelLoading, loaded),
            last_end: loaded,
            last_admission: loaded,
            cost: CostModel::default(),
            next_sequence: SequenceId(0),
            arrivals: Vec::new(),
            scratch: Scratch::default(),
            shared,
        }
    }

    /// Steps until it is told to stop, and rests while there is nothing to do.
    fn serve(&mut self) {
        while !self.shared.gauges.stopping.load(Ordering::Relaxed) {
            if self.survive_step() == Progress::Idle {
                self.shared.inbox.wait();
            }
        }
        self.shut_down();
    }

    /// A step that may break outside the executor: then everything there was has failed, and the engine goes on empty.
    fn survive_step(&mut self) -> Progress {
        catch_unwind(AssertUnwindSafe(|| self.step())).unwrap_or_else(|panic| {
            self.fail_all(&phases::message(&*panic));
            Progress::Worked
        })
    }
}

/// Blocks as the limits say, and kept as the executor's rounding wants it.
fn pool(limits: &Limits, executor: &impl Executor) -> BlockPool {
    let caching = Caching { block_tokens: limits.block_tokens, wide_from: executor.wide_from() };
    BlockPool::new(limits.blocks, limits.prefix_caching.then_some(caching))
}

/// Says that the engine's thread is gone, however it ended.
struct Exit(Arc<Shared>);

impl Drop for Exit {
    fn drop(&mut self) {
        self.0.inbox.close();
        self.0.gauges.exited.store(true, Ordering::Relaxed);
        // Arrivals that nobody will pick up: dropping them ends their receivers.
        self.0.inbox.drain(&mut Vec::new());
    }
}

/// An engine that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Limits(#[from] LimitsError),
    #[error("the engine's thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use ledger::RequestId;
    use protocol::{Output, RefusalKind, Sampling, Submission, Terms, TokenId};

    use super::*;
    use crate::simulate::{FakeExecutor, VirtualClock};

    fn submission(request: u64) -> Submission {
        let sampling = Sampling { max_tokens: Some(5), ..Sampling::default() };
        let prompt = [TokenId(1), TokenId(2)].into();
        Submission {
            request: RequestId(request),
            choice: 0,
            prompt,
            cache_salt: None,
            terms: Terms::default(),
            sampling,
            eog: Arc::new([]),
        }
    }

    #[test]
    fn a_panic_anywhere_in_a_step_fails_what_there_was_and_leaves_a_working_engine() {
        // The clock is looked at in every phase, so a clock that breaks is a step that breaks there.
        for broken_look in 1..40 {
            let looks = Arc::new(AtomicU64::new(1_000));
            let of_clock = looks.clone();
            let clock: Clock = Arc::new(move || {
                let look = of_clock.fetch_add(1, Ordering::Relaxed);
                assert_ne!(look, 1_000_000 + broken_look, "a panic was asked for");
                look
            });
            let limits = Limits::new(8, 64, 16);
            let executor = FakeExecutor::new(&limits, VirtualClock::default());
            let (mut engine, handle) = Engine::new(executor, limits, clock).unwrap();
            let mut outputs: Vec<_> =
                (0..3).map(|request| handle.submit(submission(request)).unwrap()).collect();
            looks.store(1_000_000, Ordering::Relaxed);
            while engine.survive_step() == Progress::Worked {}
            engine.check_blocks().unwrap();
            let state = handle.state();
            assert!(
                state.is_idle() && state.blocks_free == 8 && state.alive,
                "look {broken_look}: {state:?}"
            );
            for outputs in &mut outputs {
                let mut last = None;
                while let Some(output) = outputs.try_recv() {
                    last = Some(output);
                }
                match last {
                    Some(Output::Failed { refusal, .. }) => assert_eq!(refusal.kind, RefusalKind::Internal),
                    Some(Output::Token { finish, .. }) => assert!(finish.is_some(), "look {broken_look}"),
                    // It was lost on its way from one place to another; its receiver ends all the same.
                    None => {}
                    other => panic!("look {broken_look}: {other:?}"),
                }
            }
            let mut after = handle.submit(submission(9)).unwrap();
            while engine.survive_step() == Progress::Worked {}
            let tokens = std::iter::from_fn(|| after.try_recv()).count();
            assert_eq!(tokens, 5, "look {broken_look}");
        }
    }
}
