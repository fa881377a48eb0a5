//! What others may see of the engine without waiting for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ledger::clock::Ns;
use ledger::{StepId, StepRecord};

use crate::Limits;

/// How the engine is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineState {
    /// Sequences that hold KV blocks.
    pub running: usize,
    /// Sequences that wait, preempted ones and those still in the inbox included.
    pub waiting: usize,
    /// Prompt tokens of those that wait.
    pub waiting_tokens: usize,
    /// Blocks that can be leased, those that only the cache keeps included.
    pub blocks_free: usize,
    /// Those that only the cache keeps.
    pub blocks_cached: usize,
    pub blocks_total: usize,
    /// Tokens of all prompts that were admitted, and those of them that came from the cache.
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    /// Mean relative error of recent forecasts of how long a step takes.
    pub forecast_error: Option<f64>,
    /// Steps executed so far.
    pub steps: u64,
    /// The executor is still being made.
    pub loading: bool,
    /// What is there is finished, nothing new is taken.
    pub draining: bool,
    /// The engine's thread lives, and its last steps did not all break.
    pub alive: bool,
    /// How long the step in progress has taken so far; `None` between steps.
    pub step_running_ns: Option<u64>,
}

impl EngineState {
    /// Whether nothing is left to do: the end of a drain.
    pub fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting == 0
    }
}

/// Steps that may break one after the other before the engine calls itself dead.
const BROKEN_STEPS_MAX: usize = 3;

/// No step is in progress.
const BETWEEN_STEPS: Ns = Ns::MAX;

/// The numbers behind [`EngineState`], written by the engine and read by anyone.
#[derive(Debug)]
pub(crate) struct Gauges {
    pub running: AtomicUsize,
    pub waiting: AtomicUsize,
    pub waiting_tokens: AtomicUsize,
    pub blocks_free: AtomicUsize,
    pub blocks_cached: AtomicUsize,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    /// The bits of a float; of NaN, before there is one.
    forecast_error: AtomicU64,
    pub steps: AtomicU64,
    pub loading: AtomicBool,
    pub draining: AtomicBool,
    pub stopping: AtomicBool,
    pub exited: AtomicBool,
    broken_steps: AtomicUsize,
    step_began: AtomicU64,
    /// Nanoseconds between two ends of sequences while others wait, smoothed.
    turnover_ns: AtomicU64,
    /// The same from one admission to the next, for each prompt token admitted.
    token_ns: AtomicU64,
    records: Mutex<VecDeque<StepRecord>>,
}

impl Gauges {
    pub fn new(limits: &Limits) -> Self {
        Gauges {
            running: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            waiting_tokens: AtomicUsize::new(0),
            blocks_free: AtomicUsize::new(limits.blocks),
            blocks_cached: AtomicUsize::new(0),
            prompt_tokens: AtomicU64::new(0),
            cached_tokens: AtomicU64::new(0),
            forecast_error: AtomicU64::new(f64::NAN.to_bits()),
            steps: AtomicU64::new(0),
            loading: AtomicBool::new(true),
            draining: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            exited: AtomicBool::new(false),
            broken_steps: AtomicUsize::new(0),
            step_began: AtomicU64::new(BETWEEN_STEPS),
            turnover_ns: AtomicU64::new(0),
            token_ns: AtomicU64::new(0),
            records: Mutex::new(VecDeque::new()),
        }
    }

    pub fn state(&self, limits: &Limits, now: Ns) -> EngineState {
        let began = self.step_began.load(Relaxed);
        EngineState {
            running: self.running.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            waiting_tokens: self.waiting_tokens.load(Relaxed),
            blocks_free: self.blocks_free.load(Relaxed),
            blocks_cached: self.blocks_cached.load(Relaxed),
            blocks_total: limits.blocks,
            prompt_tokens: self.prompt_tokens.load(Relaxed),
            cached_tokens: self.cached_tokens.load(Relaxed),
            forecast_error: Some(f64::from_bits(self.forecast_error.load(Relaxed))).filter(|it| !it.is_nan()),
            steps: self.steps.load(Relaxed),
            loading: self.loading.load(Relaxed),
            draining: self.draining.load(Relaxed),
            alive: !self.exited.load(Relaxed) && self.broken_steps.load(Relaxed) < BROKEN_STEPS_MAX,
            step_running_ns: (began != BETWEEN_STEPS).then(|| now.saturating_sub(began)),
        }
    }

    /// A prompt begins, with some of its tokens from the cache.
    pub fn prompt_admitted(&self, tokens: usize, cached: usize) {
        self.prompt_tokens.fetch_add(tokens as u64, Relaxed);
        self.cached_tokens.fetch_add(cached as u64, Relaxed);
    }

    pub fn forecast_error(&self, error: Option<f64>) {
        self.forecast_error.store(error.unwrap_or(f64::NAN).to_bits(), Relaxed);
    }

    pub fn step_began(&self, now: Ns) {
        self.step_began.store(now, Relaxed);
    }

    pub fn step_ended(&self) {
        self.step_began.store(BETWEEN_STEPS, Relaxed);
    }

    /// The step in progress broke.
    pub fn step_broke(&self) {
        self.broken_steps.fetch_add(1, Relaxed);
    }

    /// The step in progress gave tokens.
    pub fn step_went_well(&self) {
        self.broken_steps.store(0, Relaxed);
    }

    /// A sequence ended `gap_ns` after the one before it, and others wait for its place.
    pub fn place_freed(&self, gap_ns: u64) {
        smooth(&self.turnover_ns, gap_ns);
    }

    /// Prompts of so many tokens together were admitted `gap_ns` after those before them, and others still wait.
    pub fn tokens_admitted(&self, tokens: usize, gap_ns: u64) {
        smooth(&self.token_ns, gap_ns / tokens.max(1) as u64);
    }

    /// When a refused client may find a place: about the time in which one is freed, between 1 and 60 seconds.
    pub fn turnover(&self) -> Duration {
        wait(self.turnover_ns.load(Relaxed))
    }

    /// When `tokens` prompt tokens fewer will wait, between 1 and 60 seconds.
    pub fn drained(&self, tokens: usize) -> Duration {
        wait(self.token_ns.load(Relaxed).saturating_mul(tokens as u64))
    }

    pub fn record(&self, record: StepRecord, kept: usize) {
        let mut records = self.records();
        while records.len() >= kept {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// The newest `count` records, oldest first.
    pub fn newest(&self, count: usize) -> Vec<StepRecord> {
        let records = self.records();
        records.iter().skip(records.len().saturating_sub(count)).cloned().collect()
    }

    /// The records of `first..=last` that are still kept.
    pub fn between(&self, first: StepId, last: StepId) -> Vec<StepRecord> {
        self.records().iter().filter(|record| (first..=last).contains(&record.id)).cloned().collect()
    }

    fn records(&self) -> MutexGuard<'_, VecDeque<StepRecord>> {
        // A record is pushed whole or not at all, so a panic elsewhere cannot have left the ring half-written.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn smooth(gauge: &AtomicU64, ns: u64) {
    let before = gauge.load(Relaxed);
    gauge.store(if before == 0 { ns } else { before - before / 8 + ns / 8 }, Relaxed);
}

fn wait(ns: u64) -> Duration {
    Duration::from_nanos(ns).clamp(Duration::from_secs(1), Duration::from_secs(60))
}
