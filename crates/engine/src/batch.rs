//! Running sequences to the executor's input: token ids, positions, block tables, and the rows that want logits.

use models::{Batch, BatchSequence};

use crate::sequence::Running;

/// The rows of everyone who has a chunk in this step, in order; `None` if nobody has.
pub(crate) fn batch(running: &[Running]) -> Option<Batch> {
    let mut batch = Batch::default();
    for member in running.iter().filter(|running| running.chunk > 0) {
        let end = member.computed + member.chunk;
        let first_row = batch.tokens.len();
        batch.tokens.extend(member.sequence.tokens[member.computed..end].iter().map(|token| token.0));
        batch.sequences.push(BatchSequence {
            rows: first_row..batch.tokens.len(),
            first_position: member.computed,
            blocks: member.lease.blocks().iter().map(|block| block.0).collect(),
        });
        if member.samples() {
            batch.logit_rows.push(batch.tokens.len() - 1);
        }
    }
    (!batch.tokens.is_empty()).then_some(batch)
}
