//! Logits to a token: bias, penalties, minimum length, then the most probable token, or temperature, top-k, top-p, min-p
//! and a draw.
//!
//! **Invariant:** the token depends on the logits, the sequence's own tokens, its parameters and its seed alone; the draw
//! at a position is a function of (seed, position), so neither batching nor preemption can change it.

mod distribution;
pub(crate) mod random;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use protocol::{Sampling, TokenId, TokenLogprob, TopLogprob};

use distribution::{Candidate, maximum, top};

/// A chosen token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub token: TokenId,
    pub logprob: Option<TokenLogprob>,
}

/// Logits that no token can be chosen from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    #[error("the model's output holds values that are not finite numbers")]
    NotFinite,
    #[error("the model's output has {logits} values, but the vocabulary has {vocabulary} tokens")]
    TooShort { logits: usize, vocabulary: usize },
    #[error("forbids every token of the vocabulary: stop tokens and min_tokens leave none to choose from")]
    NothingLeft,
}

/// Memory that all draws of an engine share.
#[derive(Debug, Default)]
pub struct Scratch {
    candidates: Vec<Candidate>,
    weights: Vec<f32>, // [vocabulary]
}

/// One sequence's parameters, and what they need to remember.
pub struct Sampler {
    sampling: Sampling,
    eog: Arc<[TokenId]>,
    seed: u64,
    /// The tokens of prompt and answer, and how often each is in the answer; kept only where a penalty reads it.
    seen: Option<HashMap<TokenId, u32>>,
}

impl Sampler {
    /// A sampler for an answer to `prompt`; `eog` are the model's end-of-generation tokens.
    pub fn new(sampling: Sampling, eog: Arc<[TokenId]>, prompt: &[TokenId]) -> Self {
        let penalizes = sampling.repetition_penalty != 1.0
            || sampling.presence_penalty != 0.0
            || sampling.frequency_penalty != 0.0;
        let seen = penalizes.then(|| prompt.iter().map(|token| (*token, 0)).collect());
        // The standard library's hasher is keyed with entropy.
        let seed = sampling.seed.unwrap_or_else(|| RandomState::new().hash_one(0u8));
        Sampler { sampling, eog, seed, seen }
    }

    /// Chooses the token at `position` (counted from the prompt's first token) from one row of logits, which it adjusts
    /// in place. `answer` tokens came before it.
    ///
    /// # Errors
    /// Logits that are not numbers, or parameters that forbid every token.
    pub fn sample(
        &mut self,
        logits: &mut [f32], // [vocabulary]
        position: usize,
        answer: usize,
        scratch: &mut Scratch,
    ) -> Result<Sampled, SampleError> {
        self.adjust(logits);
        let mut best = maximum(logits).filter(|best| best.is_finite()).ok_or(SampleError::NotFinite)?;
        let logprobs = self.sampling.logprobs.map(|count| Logprobs::of(logits, best, count, scratch));
        if answer < self.sampling.min_tokens {
            self.forbid_the_end(logits);
            best = maximum(logits).filter(|best| best.is_finite()).ok_or(SampleError::NothingLeft)?;
        }
        let token = if self.sampling.is_greedy() {
            distribution::first(logits, best)
        } else {
            self.draw(logits, best, position, scratch)
        };
        if let Some(seen) = &mut self.seen {
            *seen.entry(token).or_default() += 1;
        }
        let logprob = logprobs.map(|logprobs| logprobs.with_chosen(token, logits[token.index()]));
        Ok(Sampled { token, logprob })
    }

    /// Whether `token` ends the answer.
    pub fn ends(&self, token: TokenId) -> bool {
        (!self.sampling.ignore_eos && self.eog.contains(&token))
            || self.sampling.stop_token_ids.contains(&token)
    }

    /// Whether an answer of `answer` tokens is as long as it may be.
    pub fn is_full(&self, answer: usize) -> bool {
        self.sampling.max_tokens.is_some_and(|max| answer >= max)
    }

    /// Tokens that an answer of `answer` tokens may still get; `usize::MAX` where only the context bounds it.
    pub fn left(&self, answer: usize) -> usize {
        self.sampling.max_tokens.map_or(usize::MAX, |max| max.saturating_sub(answer))
    }

    /// Adds biases, then applies penalties.
    fn adjust(&self, logits: &mut [f32]) {
        for (token, bias) in &self.sampling.logit_bias {
            if let Some(logit) = logits.get_mut(token.index()) {
                *logit += bias;
            }
        }
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, .. } = self.sampling;
        for (token, count) in self.seen.iter().flatten() {
            let Some(logit) = logits.get_mut(token.index()) else { continue };
            if *logit > 0.0 {
                *logit /= repetition_penalty;
            } else {
                *logit *= repetition_penalty;
            }
            if *count > 0 {
                *logit -= presence_penalty + frequency_penalty * *count as f32;
            }
        }
    }

    /// Makes tokens that end an answer impossible.
    fn forbid_the_end(&self, logits: &mut [f32]) {
        for token in self.eog.iter().chain(&self.sampling.stop_token_ids) {
            if let Some(logit) = logits.get_mut(token.index()) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }

    fn draw(&self, logits: &[f32], best: f32, position: usize, scratch: &mut Scratch) -> TokenId {
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        let Scratch { candidates, weights } = scratch;
        distribution::weights(logits, best, temperature, weights);
        // Some clients say "no limit" with 0.
        if let Some(count) =
            top_k.map(|count| count as usize).filter(|count| (1..logits.len()).contains(count))
        {
            distribution::keep_top(logits, count, weights, candidates);
        }
        if top_p < 1.0 {
            distribution::keep_nucleus(weights, top_p, candidates);
        }
        if min_p > 0.0 {
            distribution::keep_above(weights, min_p);
        }
        distribution::draw(weights, random::uniform(self.seed, position as u64))
    }
}

/// Log-probabilities of one row, before the minimum length forbids anything.
struct Logprobs {
    log_sum: f64,
    top: Vec<TopLogprob>,
}

impl Logprobs {
    fn of(logits: &[f32], best: f32, count: usize, scratch: &mut Scratch) -> Self {
        let log_sum = f64::from(best) + distribution::exponential_sum(logits, best).ln();
        top(logits, count, &mut scratch.candidates);
        scratch.candidates.sort_unstable_by(Candidate::order);
        let all = scratch.candidates.iter();
        let top =
            all.map(|best| TopLogprob { token: best.token, logprob: logprob(best.value, log_sum) }).collect();
        Logprobs { log_sum, top }
    }

    fn with_chosen(self, token: TokenId, logit: f32) -> TokenLogprob {
        TokenLogprob { chosen: TopLogprob { token, logprob: logprob(logit, self.log_sum) }, top: self.top }
    }
}

fn logprob(logit: f32, log_sum: f64) -> f32 {
    // Rounding must not make a probability larger than 1.
    (f64::from(logit) - log_sum).min(0.0) as f32
}

#[cfg(test)]
mod tests;
