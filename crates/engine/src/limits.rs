//! Bounds of the engine, each with a name and a default.

use std::collections::BTreeMap;

/// What the engine may hold and do at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sequences that run at once.
    pub max_num_seqs: usize,
    /// Tokens computed in one step: decodes and prefill chunks together.
    pub max_num_batched_tokens: usize,
    /// Prompt tokens of one sequence computed in one step.
    pub prefill_chunk_max: usize,
    /// Prompt tokens computed in a step however long it takes, so that prompts get on.
    pub prefill_chunk_min: usize,
    /// How long a step may take that has a decoding row in it; 0 for any time.
    pub itl_target_ns: u64,
    /// Tokens in one KV block.
    pub block_tokens: usize,
    /// KV blocks that the executor has memory for.
    pub blocks: usize,
    /// Tokens that prompt and answer may have together.
    pub max_model_len: usize,
    /// Token ids that exist; logits beyond them (padding of the head) are never looked at.
    pub vocabulary: usize,
    /// The share of a step's room for prompts, in percent, that one prompt may take while others wait for it and it would not
    /// be done with all of it.
    pub prompt_share_percent: usize,
    /// Sequences that wait, the inbox included; one more is refused.
    pub queue_max: usize,
    /// Prompt tokens that wait, the inbox included; a prompt that would make them more is refused, unless nobody waits.
    pub queue_tokens_max: usize,
    /// How long a class of requests may have none admitted before its first counts as one class better; 0 for ever.
    pub aging_ns: u64,
    /// What tenants' shares are weighed with, by name; 1 for all others.
    pub tenant_weights: BTreeMap<String, u32>,
    /// Tokens handed out that the client's side has not taken yet; a sequence pauses when so many lie there.
    pub outbox_max: usize,
    /// Later sequences that may be admitted before one that waits for blocks; after so many it closes admission.
    pub bypass_max: usize,
    /// Blocks left free at an admission for each running sequence, so that preemption stays rare.
    pub growth_blocks: usize,
    /// Step records kept.
    pub steps_kept: usize,
    /// Whether full blocks are kept and found again.
    pub prefix_caching: bool,
}

impl Limits {
    /// Limits with the documented defaults, for a model and the memory there is.
    pub fn new(blocks: usize, max_model_len: usize, vocabulary: usize) -> Self {
        Limits {
            max_num_seqs: 64,
            max_num_batched_tokens: 512,
            prefill_chunk_max: 512,
            prefill_chunk_min: 16,
            itl_target_ns: 100_000_000,
            block_tokens: 16,
            blocks,
            max_model_len,
            vocabulary,
            prompt_share_percent: 50,
            queue_max: 256,
            queue_tokens_max: 8 * (blocks * 16).max(max_model_len),
            aging_ns: 10_000_000_000,
            tenant_weights: BTreeMap::new(),
            outbox_max: 64,
            bypass_max: 16,
            growth_blocks: 1,
            steps_kept: 1024,
            prefix_caching: true,
        }
    }

    /// Tokens that one sequence can have: the model's length, or the whole KV pool if that is smaller.
    pub fn context(&self) -> usize {
        self.max_model_len.min(self.pool_tokens())
    }

    /// Tokens that all blocks together hold.
    pub fn pool_tokens(&self) -> usize {
        self.blocks.saturating_mul(self.block_tokens)
    }

    /// Blocks that hold `tokens` tokens.
    pub fn blocks_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.block_tokens)
    }

    /// Checks that an engine with these limits makes progress.
    ///
    /// # Errors
    /// The first limit that is out of its range.
    pub fn validate(&self) -> Result<(), LimitsError> {
        let positive = [
            ("max_num_seqs", self.max_num_seqs),
            ("prefill_chunk_max", self.prefill_chunk_max),
            ("prefill_chunk_min", self.prefill_chunk_min),
            ("block_tokens", self.block_tokens),
            ("blocks", self.blocks),
            ("vocabulary", self.vocabulary),
            ("prompt_share_percent", self.prompt_share_percent),
            ("queue_max", self.queue_max),
            ("queue_tokens_max", self.queue_tokens_max),
            ("outbox_max", self.outbox_max),
            ("steps_kept", self.steps_kept),
        ];
        if let Some((limit, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(LimitsError::Zero(limit));
        }
        if self.max_num_batched_tokens <= self.max_num_seqs {
            return Err(LimitsError::Budget {
                budget: self.max_num_batched_tokens,
                sequences: self.max_num_seqs,
            });
        }
        if self.context() < 2 {
            return Err(LimitsError::Context(self.context()));
        }
        Ok(())
    }
}

/// Limits that no engine can work with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    #[error("{0} is 0; it must be at least 1")]
    Zero(&'static str),
    #[error(
        "max_num_batched_tokens is {budget}, but max_num_seqs is {sequences}: a step must have room for one token of \
         each running sequence and at least one of a prompt; raise the first or lower the second"
    )]
    Budget { budget: usize, sequences: usize },
    #[error(
        "a sequence could have {0} tokens; it needs room for at least a prompt token and an answer token"
    )]
    Context(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Limits), wrong: Option<&str>) {
        let mut limits = Limits::new(100, 1000, 32);
        change(&mut limits);
        let message = limits.validate().err().map(|error| error.to_string());
        match (&message, wrong) {
            (None, None) => {}
            (Some(message), Some(wrong)) => assert!(message.contains(wrong), "{message}"),
            _ => panic!("{message:?} where {wrong:?} was expected"),
        }
    }

    #[test]
    fn limits_that_cannot_make_progress_are_refused_by_name() {
        check(|_| {}, None);
        check(|limits| limits.blocks = 0, Some("blocks is 0"));
        check(|limits| limits.max_num_batched_tokens = 64, Some("max_num_seqs is 64"));
        check(|limits| limits.max_num_batched_tokens = 65, None);
        check(|limits| limits.max_model_len = 1, Some("could have 1 tokens"));
        check(
            |limits| {
                limits.blocks = 1;
                limits.block_tokens = 1;
            },
            Some("could have 1 tokens"),
        );
    }
}
