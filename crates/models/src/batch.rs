//! What one forward pass computes: rows of several sequences, decoding and prefilling alike.
//!
//! **Invariant:** sequences' rows follow each other without gaps and cover the batch; a sequence's rows are consecutive
//! positions; its block table reaches over its last one.

use std::ops::Range;

use kernels::AttentionSequence;

use crate::config::Config;
use crate::kv::KvCache;

/// The shortest prompt whose rows are rounded wide: below it, taking the weights apart costs more than tiles save. A constant, and
/// not measured at start, because it decides how numbers are rounded, which must not change from one start to the next.
pub const WIDE_FROM: usize = 64;

/// Rows for one forward pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// One token per row.
    pub tokens: Vec<u32>,
    pub sequences: Vec<BatchSequence>,
    /// Rows whose logits are wanted, in the order in which they are returned.
    pub logit_rows: Vec<usize>,
}

/// One sequence's part of a batch: a decoding one has one row, a prefilling one as many as its chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSequence {
    pub rows: Range<usize>,
    /// The first row's position; the others follow.
    pub first_position: usize,
    /// Positions below this are the prompt's, the others were generated. By this and the prompt's length a row is rounded wide or not
    /// (see [`kernels::activations`]), never by what it is computed with, so that an answer does not depend on the company.
    pub prompt_len: usize,
    /// Position p lies in `blocks[p / block_tokens]`.
    pub blocks: Vec<u32>,
}

impl BatchSequence {
    /// Positions below this are rounded wide.
    fn wide_end(&self) -> usize {
        if self.prompt_len < WIDE_FROM { 0 } else { self.prompt_len }
    }
}

impl Batch {
    /// Adds a sequence's next tokens, of whose positions those below `prompt_len` are the prompt's. `wants_logits` asks for the logits
    /// of its last row.
    pub fn push(
        &mut self,
        tokens: &[u32],
        first_position: usize,
        prompt_len: usize,
        blocks: &[u32],
        wants_logits: bool,
    ) {
        let start = self.tokens.len();
        self.tokens.extend_from_slice(tokens);
        let rows = start..self.tokens.len();
        if wants_logits {
            self.logit_rows.push(rows.end - 1);
        }
        self.sequences.push(BatchSequence { rows, first_position, prompt_len, blocks: blocks.to_vec() });
    }

    /// Of each row, whether it is rounded wide.
    pub(crate) fn wide_rows(&self) -> impl Iterator<Item = bool> {
        self.sequences.iter().flat_map(|sequence| {
            let positions = sequence.first_position..sequence.first_position + sequence.rows.len();
            positions.map(|position| position < sequence.wide_end())
        })
    }

    /// The sequences as attention wants them.
    pub(crate) fn attention_sequences(&self) -> Vec<AttentionSequence<'_>> {
        let sequences = self.sequences.iter().map(|sequence| AttentionSequence {
            rows: sequence.rows.clone(),
            wide: sequence.wide_end().saturating_sub(sequence.first_position),
            first_position: sequence.first_position,
            blocks: &sequence.blocks,
        });
        sequences.collect()
    }

    /// The same for a batch of only the rows that want logits, in their order.
    pub(crate) fn logit_sequences(&self) -> Vec<AttentionSequence<'_>> {
        let mut kept: Vec<AttentionSequence<'_>> = Vec::new();
        let mut previous = None;
        for (index, &row) in self.logit_rows.iter().enumerate() {
            let of = self.sequences.partition_point(|sequence| sequence.rows.end <= row);
            let sequence = &self.sequences[of];
            match kept.last_mut() {
                Some(last) if row > sequence.rows.start && previous == Some(row - 1) => {
                    last.rows.end = index + 1
                }
                _ => {
                    let first_position = sequence.first_position + row - sequence.rows.start;
                    kept.push(AttentionSequence {
                        rows: index..index + 1,
                        wide: sequence.wide_end().saturating_sub(first_position),
                        first_position,
                        blocks: &sequence.blocks,
                    });
                }
            }
            previous = Some(row);
        }
        kept
    }

    /// Panics where the batch breaks its invariant or points outside the model or the cache: the engine built it wrong.
    pub(crate) fn check(&self, config: &Config, kv: &KvCache) {
        let mut next = 0;
        for BatchSequence { rows, first_position, blocks, .. } in &self.sequences {
            assert_eq!(rows.start, next, "the rows of sequences follow each other");
            assert!(rows.end > rows.start, "a sequence has at least one row");
            next = rows.end;
            let positions = first_position + rows.len();
            let reached = blocks.len() * kv.block_tokens();
            assert!(positions <= reached, "{positions} positions in {reached} that have blocks");
            assert!(positions <= config.context, "{positions} positions in a context of {}", config.context);
            assert!(
                blocks.iter().all(|block| (*block as usize) < kv.blocks()),
                "a block beyond the {} of the cache in {blocks:?}",
                kv.blocks()
            );
        }
        assert_eq!(next, self.tokens.len(), "sequences cover all rows");
        assert!(
            self.tokens.iter().all(|token| (*token as usize) < config.vocabulary),
            "a token id beyond the vocabulary of {}",
            config.vocabulary
        );
        assert!(
            self.logit_rows.iter().all(|row| *row < self.tokens.len()),
            "logits wanted of a row that is not there"
        );
    }
}
