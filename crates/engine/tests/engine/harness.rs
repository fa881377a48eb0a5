//! An engine that the test steps itself, in virtual time.

use std::sync::Arc;

use engine::simulate::{FakeExecutor, FakeModel, VirtualClock};
use engine::{Engine, Handle, Limits, Outputs, Progress};
use ledger::{RequestId, StepId, Timeline};
use protocol::{Finish, Output, Refusal, Sampling, Submission, Terms, TokenId};

pub const VOCABULARY: usize = 64;

/// The token that ends an answer of the fake model.
pub const END: TokenId = TokenId(0);

pub fn limits() -> Limits {
    let mut limits = Limits::new(128, 1024, VOCABULARY);
    limits.max_num_seqs = 32;
    limits.max_num_batched_tokens = 64;
    limits.prefill_chunk_max = 32;
    limits.block_tokens = 8;
    limits
}

/// A prompt of `length` tokens that differs for each `seed`.
pub fn prompt(seed: u64, length: usize) -> Arc<[TokenId]> {
    let mut dice = engine::simulate::Dice::new(seed);
    (0..length).map(|_| TokenId(dice.between(1, VOCABULARY - 1) as u32)).collect()
}

/// `max` tokens of greedy answer that no end token cuts short.
pub fn greedy(max: usize) -> Sampling {
    Sampling { temperature: 0.0, max_tokens: Some(max), ignore_eos: true, ..Sampling::default() }
}

pub fn submission(request: u64, prompt: Arc<[TokenId]>, sampling: Sampling) -> Submission {
    Submission {
        request: RequestId(request),
        choice: 0,
        prompt,
        cache_salt: None,
        terms: Terms::default(),
        sampling,
        eog: Arc::new([END]),
    }
}

pub struct House {
    pub engine: Engine<FakeExecutor>,
    pub handle: Handle,
}

impl House {
    pub fn new(limits: Limits) -> Self {
        Self::with(limits, |executor| executor)
    }

    pub fn with(limits: Limits, change: impl FnOnce(FakeExecutor) -> FakeExecutor) -> Self {
        let clock = VirtualClock::default();
        let executor = change(FakeExecutor::new(&limits, clock.clone()));
        let (engine, handle) = Engine::new(executor, limits, clock.clock()).expect("the limits are sound");
        House { engine, handle }
    }

    pub fn submit(&self, submission: Submission) -> Client {
        Client { outputs: self.handle.submit(submission).expect("it is taken on"), seen: Seen::default() }
    }

    /// A greedy request.
    pub fn ask(&self, request: u64, length: usize, max: usize) -> Client {
        self.submit(submission(request, prompt(request, length), greedy(max)))
    }

    pub fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.engine.step();
            self.engine.check_blocks().unwrap_or_else(|wrong| panic!("{wrong}"));
        }
    }

    /// Steps until nothing is left to do, within a bound.
    pub fn settle(&mut self) {
        let mut steps = 0;
        while self.engine.step() == Progress::Worked {
            self.engine.check_blocks().unwrap_or_else(|wrong| panic!("{wrong}"));
            steps += 1;
            assert!(steps < 100_000, "the engine does not come to rest");
        }
    }

    pub fn assert_empty(&self) {
        let state = self.handle.state();
        assert!(state.is_idle() && state.blocks_free == state.blocks_total, "{state:?}");
    }
}

/// What a client got.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub tokens: Vec<TokenId>,
    pub timelines: Vec<Timeline>,
    pub steps: Vec<StepId>,
    pub finish: Option<Finish>,
    pub failure: Option<Refusal>,
    pub cancelled: bool,
}

pub struct Client {
    pub outputs: Outputs,
    seen: Seen,
}

impl Client {
    /// Takes all that is there.
    pub fn read(&mut self) -> &Seen {
        while let Some(output) = self.outputs.try_recv() {
            let seen = &mut self.seen;
            match output {
                Output::Token { token, finish, timeline, step, .. } => {
                    assert!(seen.finish.is_none(), "nothing follows the last token");
                    seen.tokens.push(token);
                    seen.timelines.push(timeline);
                    seen.steps.push(step);
                    seen.finish = finish;
                }
                Output::Failed { refusal, timeline } => {
                    seen.failure = Some(refusal);
                    seen.timelines.push(timeline);
                }
                Output::Cancelled { timeline } => {
                    seen.cancelled = true;
                    seen.timelines.push(timeline);
                }
            }
        }
        &self.seen
    }

    /// The whole answer; it must have ended.
    pub fn answer(&mut self) -> Vec<TokenId> {
        let seen = self.read();
        assert!(seen.finish.is_some(), "the answer has not ended: {seen:?}");
        seen.tokens.clone()
    }
}

/// The greedy answer by the fake model's definition alone.
pub fn expected(prompt: &[TokenId], max: usize) -> Vec<TokenId> {
    let model = FakeModel { vocabulary: VOCABULARY };
    let mut tokens = prompt.to_vec();
    for _ in 0..max {
        let logits = model.logits(&tokens);
        let best =
            (0..VOCABULARY).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("a vocabulary");
        tokens.push(TokenId(best as u32));
    }
    tokens.split_off(prompt.len())
}
