//! A model that is no model: its logits are a hash of all tokens before them, read back through the block tables.
//!
//! **Invariant:** what it reads is what was written for that token at that position; a wrong block table, a wrong position,
//! or a block shared by mistake changes every logit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ledger::Parts;
use ledger::clock::Ns;
use protocol::TokenId;

use crate::handle::Clock;
use crate::sample::random::mix;
use crate::{ExecuteError, Executor, Limits};
use models::{Batch, BatchSequence, Logits};

/// Time that passes only when it is told to.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    pub fn now(&self) -> Ns {
        self.0.load(Ordering::Relaxed)
    }

    pub fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::Relaxed);
    }

    /// As the engine takes it. Every look at it takes a nanosecond, so that no two events coincide.
    pub fn clock(&self) -> Clock {
        let this = self.clone();
        Arc::new(move || this.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Tokens to logits, as a plain function.
#[derive(Clone, Copy, Debug)]
pub struct FakeModel {
    pub vocabulary: usize,
}

impl FakeModel {
    /// Logits after `tokens`.
    pub fn logits(&self, tokens: &[TokenId]) -> Vec<f32> {
        let entries = tokens.iter().enumerate().map(|(position, token)| entry(token.0, position));
        let mut logits = Vec::with_capacity(self.vocabulary);
        self.extend(&mut logits, entries.fold(0, absorb));
        logits
    }

    /// Appends the logits that follow from `state`: between -8 and 8.
    fn extend(&self, logits: &mut Vec<f32>, state: u64) {
        let bits =
            (0..self.vocabulary as u64).map(|token| mix(state ^ token.wrapping_mul(0x9fb2_1c65_1e98_df25)));
        logits.extend(bits.map(|bits| (bits >> 40) as f32 / (1u64 << 20) as f32 - 8.0));
    }
}

/// What the fake KV holds for a token at a position.
fn entry(token: u32, position: usize) -> u64 {
    mix(u64::from(token) << 32 | position as u64)
}

fn absorb(state: u64, entry: u64) -> u64 {
    (state ^ entry).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29)
}

/// What can go wrong in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Error,
    Panic,
    /// The first row's logits are not numbers.
    NotANumber,
}

/// Looks at each batch before it is computed; may wait, and may ask for a fault.
type Watch = Box<dyn FnMut(&Batch) -> Option<Fault> + Send>;

/// Executes batches of the [`FakeModel`] with KV in blocks.
pub struct FakeExecutor {
    model: FakeModel,
    block_tokens: usize,
    kv: Vec<u64>, // [blocks * block_tokens]
    clock: VirtualClock,
    watch: Option<Watch>,
    /// What a step takes in virtual time, and what each of its tokens adds.
    pub step_ns: u64,
    pub token_ns: u64,
    /// What each position adds that a token attends to.
    pub position_ns: u64,
}

impl FakeExecutor {
    /// An executor with the blocks of `limits`, whose steps take virtual time.
    pub fn new(limits: &Limits, clock: VirtualClock) -> Self {
        FakeExecutor {
            model: FakeModel { vocabulary: limits.vocabulary },
            block_tokens: limits.block_tokens,
            kv: vec![u64::MAX; limits.pool_tokens()],
            clock,
            watch: None,
            step_ns: 1_000_000,
            token_ns: 10_000,
            position_ns: 0,
        }
    }

    /// Shows each batch to `watch` first.
    pub fn watched(mut self, watch: impl FnMut(&Batch) -> Option<Fault> + Send + 'static) -> Self {
        self.watch = Some(Box::new(watch));
        self
    }

    fn place(&self, blocks: &[u32], position: usize) -> usize {
        blocks[position / self.block_tokens] as usize * self.block_tokens + position % self.block_tokens
    }
}

impl Executor for FakeExecutor {
    fn execute(&mut self, batch: &Batch, _parts: &mut Parts) -> Result<Logits, ExecuteError> {
        let fault = self.watch.as_mut().and_then(|watch| watch(batch));
        match fault {
            Some(Fault::Error) => return Err(ExecuteError::Failed("a fault was asked for".into())),
            Some(Fault::Panic) => panic!("a panic was asked for"),
            Some(Fault::NotANumber) | None => {}
        }
        let positions = |sequence: &BatchSequence| {
            sequence
                .rows
                .clone()
                .map(|row| sequence.first_position + row - sequence.rows.start + 1)
                .sum::<usize>()
        };
        let positions: usize = batch.sequences.iter().map(positions).sum();
        let (tokens, positions) = (batch.tokens.len() as u64, positions as u64);
        self.clock.advance(self.step_ns + self.token_ns * tokens + self.position_ns * positions);
        for sequence in &batch.sequences {
            for (offset, token) in batch.tokens[sequence.rows.clone()].iter().enumerate() {
                let position = sequence.first_position + offset;
                let place = self.place(&sequence.blocks, position);
                self.kv[place] = entry(*token, position);
            }
        }
        let mut values = Vec::with_capacity(batch.logit_rows.len() * self.model.vocabulary);
        let mut sequences = batch.sequences.iter();
        for row in &batch.logit_rows {
            let sequence = sequences.find(|sequence| sequence.rows.contains(row));
            let sequence = sequence.expect("every row belongs to a sequence, in order");
            let context = sequence.first_position + (row - sequence.rows.start) + 1;
            let entries = (0..context).map(|position| self.kv[self.place(&sequence.blocks, position)]);
            self.model.extend(&mut values, entries.fold(0, absorb));
        }
        if fault == Some(Fault::NotANumber) {
            values[..self.model.vocabulary].fill(f32::NAN);
        }
        Ok(Logits { rows: batch.logit_rows.len(), vocabulary: self.model.vocabulary, values })
    }
}
