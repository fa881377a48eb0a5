//! KV blocks: numbered places for a fixed count of tokens each, leased to sequences.
//!
//! **Invariant:** `free + leased == total`, since a lease returns its blocks when it is dropped.

use std::cell::RefCell;
use std::rc::Rc;

/// One block's number; an index into the executor's KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// All blocks of one engine, which is one thread.
#[derive(Clone, Debug)]
pub struct BlockPool {
    free: Rc<RefCell<Vec<BlockId>>>,
    total: usize,
}

impl BlockPool {
    /// A pool whose blocks are all free.
    pub fn new(total: usize) -> Self {
        // The last one in is the first one out: low numbers first, and a block just returned is still in the cache.
        let free = (0..total as u32).rev().map(BlockId).collect();
        BlockPool { free: Rc::new(RefCell::new(free)), total }
    }

    /// Blocks that nobody holds.
    pub fn free(&self) -> usize {
        self.free.borrow().len()
    }

    /// All blocks.
    pub fn total(&self) -> usize {
        self.total
    }

    /// A lease on `count` blocks, or `None` if there are not so many.
    pub fn lease(&self, count: usize) -> Option<Lease> {
        let mut lease = Lease { pool: self.clone(), blocks: Vec::new() };
        lease.extend(count).then_some(lease)
    }
}

/// Blocks held by one sequence, in the order of its tokens.
#[derive(Debug)]
pub struct Lease {
    pool: BlockPool,
    blocks: Vec<BlockId>,
}

impl Lease {
    /// Takes `count` more blocks; false, and nothing taken, if there are not so many.
    pub fn extend(&mut self, count: usize) -> bool {
        let mut free = self.pool.free.borrow_mut();
        let Some(kept) = free.len().checked_sub(count) else { return false };
        self.blocks.extend(free.drain(kept..).rev());
        true
    }

    /// Returns all blocks.
    pub fn release(&mut self) {
        let mut free = self.pool.free.borrow_mut();
        free.extend(self.blocks.drain(..).rev());
        debug_assert!(free.len() <= self.pool.total, "a block was returned twice");
    }

    /// The blocks, in the order of the sequence's tokens.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_block_is_free_or_leased_once(
            operations in prop::collection::vec((0usize..3, 0usize..12, 0usize..8), 0..200),
        ) {
            let pool = BlockPool::new(40);
            let mut leases: Vec<Lease> = Vec::new();
            for (operation, count, which) in operations {
                let free = pool.free();
                match operation {
                    0 => {
                        let lease = pool.lease(count);
                        prop_assert_eq!(lease.is_some(), count <= free);
                        leases.extend(lease);
                    }
                    1 if !leases.is_empty() => {
                        let index = which % leases.len();
                        prop_assert_eq!(leases[index].extend(count), count <= free);
                    }
                    _ if !leases.is_empty() => drop(leases.swap_remove(which % leases.len())),
                    _ => {}
                }
                let leased: usize = leases.iter().map(|lease| lease.blocks().len()).sum();
                prop_assert_eq!(pool.free() + leased, pool.total());
                let blocks = leases.iter().flat_map(|lease| lease.blocks());
                let distinct: HashSet<_> = blocks.chain(pool.free.borrow().iter()).copied().collect();
                prop_assert_eq!(distinct.len(), pool.total());
            }
        }
    }
}
