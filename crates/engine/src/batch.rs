//! Running sequences to the executor's input: token ids, positions, block tables, and the rows that want logits.

use models::Batch;

use crate::sequence::Running;

/// The rows of everyone who has a chunk in this step, in order; `None` if nobody has.
pub(crate) fn batch(running: &[Running]) -> Option<Batch> {
    let mut batch = Batch::default();
    for member in running.iter().filter(|running| running.chunk > 0) {
        let chunk = &member.sequence.tokens[member.computed..member.computed + member.chunk];
        let tokens: Vec<u32> = chunk.iter().map(|token| token.0).collect();
        let blocks: Vec<u32> = member.lease.blocks().iter().map(|block| block.0).collect();
        batch.push(&tokens, member.computed, member.sequence.prompt_tokens, &blocks, member.samples());
    }
    (!batch.tokens.is_empty()).then_some(batch)
}
