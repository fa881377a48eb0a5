//! The engine without a model and without waiting: a fake executor, virtual time, and everything else drawn from one seed.
//!
//! **Invariant:** the same seed gives the same run, step by step.

mod executor;
mod oracle;
mod scenario;

pub use executor::{FakeExecutor, FakeModel, Fault, VirtualClock};
pub use oracle::examine;
pub use scenario::{Report, Scenario};

use crate::sample::random::mix;

/// A sequence of numbers drawn from one seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(mix(seed))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number of `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + (self.number() % (high - low + 1) as u64) as usize
    }

    /// True this often.
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.number() >> 11) as f64) < probability * (1u64 << 53) as f64
    }
}
