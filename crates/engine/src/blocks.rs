//! KV blocks: numbered places for a fixed count of tokens each, leased to sequences and kept afterwards for whoever begins alike.
//!
//! A block is free, or held by one or more leases, or idle: held by nobody, but full of tokens that can be found again. Full blocks
//! of a lease are published, so that others may hold them too. When blocks are needed and none is free, the one that has been
//! idle longest goes, the end of a chain before its beginning.
//!
//! **Invariant:** `free + idle + held == total`. A published block's whole chain is in every lease that holds the block; so an idle
//! block is followed by idle ones only, all of which became idle before it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use ledger::clock::Ns;
use ledger::{Miss, RequestId};
use protocol::TokenId;

use crate::prefix::{Key, NodeId, Rounding, Tree};

/// One block's number; an index into the executor's KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// All blocks of one engine, which is one thread.
#[derive(Clone, Debug)]
pub struct BlockPool {
    state: Rc<RefCell<State>>,
    total: usize,
}

/// How blocks are found again.
#[derive(Clone, Copy, Debug)]
pub struct Caching {
    pub block_tokens: usize,
    /// Prompts of so many tokens are rounded in another way than the rest, if there is another.
    pub wide_from: Option<usize>,
}

/// A sequence's tokens, as far as they say what its blocks hold.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    pub tokens: &'a [TokenId],
    /// How many of them are the prompt.
    pub prompt: usize,
    pub salt: Option<&'a Arc<str>>,
}

/// The blocks that hold the beginning of a sequence. It pins nothing: what it found may be gone when it is used, and
/// [`BlockPool::look`] brings it up to date.
#[derive(Clone, Debug, Default)]
pub struct Found {
    chain: Vec<NodeId>,
}

/// What a sequence would take from the cache now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Blocks that need not be computed.
    pub blocks: usize,
    /// Those of them that nobody holds: taking one is as good as taking a free block.
    pub idle: usize,
    /// The next block that would be computed, as a number that is the same for whoever would compute the same; `None` if that
    /// block is not full.
    pub next: Option<u64>,
}

#[derive(Debug)]
struct State {
    free: Vec<BlockId>,
    holders: Vec<u32>,            // [blocks]
    nodes: Vec<Option<NodeId>>,   // [blocks]
    idle: BTreeMap<u64, BlockId>, // by when they became so
    idle_since: Vec<u64>,         // [blocks]: their keys in `idle`
    turns: u64,
    tree: Tree,
    caching: Option<Caching>,
    now: Ns,
}

/// Evictions that are remembered, so that a miss can be explained.
const EVICTIONS_KEPT: usize = 8192;

impl BlockPool {
    /// A pool whose blocks are all free. Without `caching` no block is ever idle.
    pub fn new(total: usize, caching: Option<Caching>) -> Self {
        let state = State {
            // The last one in is the first one out: low numbers first, and a block just returned is still in the cache.
            free: (0..total as u32).rev().map(BlockId).collect(),
            holders: vec![0; total],
            nodes: vec![None; total],
            idle: BTreeMap::new(),
            idle_since: vec![0; total],
            turns: 0,
            tree: Tree::new(EVICTIONS_KEPT),
            caching,
            now: 0,
        };
        BlockPool { state: Rc::new(RefCell::new(state)), total }
    }

    /// Blocks that can be leased: free ones, and idle ones, which are given up for it.
    pub fn available(&self) -> usize {
        self.state.borrow().available()
    }

    /// Blocks that nobody holds and that can still be found.
    pub fn idle(&self) -> usize {
        self.state.borrow().idle.len()
    }

    /// All blocks.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Tells the time, for the explanations of misses.
    pub fn tell_time(&self, now: Ns) {
        self.state.borrow_mut().now = now;
    }

    /// Brings up to date what is there of a sequence's beginning. One token at least is left to be computed. `exactly` asks for
    /// what the sequence itself would compute; else a prompt also takes blocks that were an earlier answer.
    pub fn look(&self, found: &mut Found, content: &Content<'_>, exactly: bool) -> Look {
        self.state.borrow().look(found, content, exactly)
    }

    /// Why the sequence's beginning ends where it was found to; `None` if that is all that could be.
    pub fn miss(&self, found: &Found, content: &Content<'_>) -> Option<Miss> {
        let state = self.state.borrow();
        let caching = state.caching?;
        let index = found.chain.len();
        let tokens = caching.usable(content);
        let key = caching.key(content, index, found.chain.last().copied())?;
        let first = index * caching.block_tokens;
        (first + caching.block_tokens <= tokens).then(|| state.tree.miss(&key, first, state.now))
    }

    /// A lease for `owner` that begins with what was found just now.
    pub fn adopt(&self, owner: RequestId, found: &Found) -> Lease {
        let mut state = self.state.borrow_mut();
        let blocks: Vec<BlockId> = found.chain.iter().map(|node| state.tree.block(*node)).collect();
        blocks.iter().for_each(|block| state.hold(*block));
        drop(state);
        Lease { pool: self.clone(), owner, blocks, chain: found.chain.clone() }
    }

    /// Checks the invariants against all leases there are.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check<'a>(&self, leases: impl Iterator<Item = &'a Lease>) -> Result<(), String> {
        let state = self.state.borrow();
        let mut holders = vec![0; self.total];
        for lease in leases {
            for (block, node) in lease.blocks.iter().zip(&lease.chain) {
                let known = state.nodes[block.0 as usize] == Some(*node) && state.tree.has(*node);
                if !known || state.tree.block(*node) != *block {
                    return Err(format!("block {} of a lease is not its node's", block.0));
                }
            }
            let distinct: HashSet<_> = lease.blocks.iter().collect();
            if distinct.len() < lease.blocks.len() {
                return Err("a lease holds a block twice".into());
            }
            lease.blocks.iter().for_each(|block| holders[block.0 as usize] += 1);
        }
        if holders != state.holders {
            return Err("blocks have other holders than the leases there are".into());
        }
        let held = holders.iter().filter(|holders| **holders > 0).count();
        let apart: HashSet<_> = state.free.iter().chain(state.idle.values()).collect();
        let (free, idle, total) = (state.free.len(), state.idle.len(), self.total);
        if free + idle + held != total || apart.len() != free + idle {
            return Err(format!("{free} free, {idle} idle and {held} held of {total} blocks"));
        }
        let nodes = state.nodes.iter().flatten().count();
        if nodes != state.tree.len()
            || state.idle.values().any(|block| state.nodes[block.0 as usize].is_none())
        {
            return Err(format!("{nodes} blocks can be found, {} are", state.tree.len()));
        }
        Ok(())
    }
}

impl Caching {
    /// The key of a sequence's block; `None` if its tokens do not fill it.
    fn key<'a>(&self, content: &Content<'a>, index: usize, parent: Option<NodeId>) -> Option<Key<'a>> {
        let first = index * self.block_tokens;
        let tokens = content.tokens.get(first..first + self.block_tokens)?;
        let rounding = Rounding::of(first, self.block_tokens, content.prompt, self.wide_from);
        Some(Key { parent, salt: content.salt, tokens, rounding })
    }

    /// Tokens that may come from the cache: the last one's logits are wanted, so it is computed.
    fn usable(&self, content: &Content<'_>) -> usize {
        content.tokens.len().saturating_sub(1)
    }
}

impl State {
    fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    fn look(&self, found: &mut Found, content: &Content<'_>, exactly: bool) -> Look {
        let Some(caching) = self.caching else { return Look::default() };
        while found.chain.pop_if(|node| !self.tree.has(*node)).is_some() {}
        let mut next = None;
        while (found.chain.len() + 1) * caching.block_tokens <= caching.usable(content) {
            let Some(key) = caching.key(content, found.chain.len(), found.chain.last().copied()) else {
                break;
            };
            let node = if exactly { self.tree.find(&key) } else { self.tree.find_for_prompt(&key) };
            let Some(node) = node else {
                next = Some(self.tree.digest(&key));
                break;
            };
            found.chain.push(node);
        }
        // Blocks that nobody holds are at a chain's end.
        let idle = |node: &&NodeId| self.holders[self.tree.block(**node).0 as usize] == 0;
        let idle = found.chain.iter().rev().take_while(idle).count();
        Look { blocks: found.chain.len(), idle, next }
    }

    fn hold(&mut self, block: BlockId) {
        let at = block.0 as usize;
        if self.holders[at] == 0 && self.nodes[at].is_some() {
            let idle = self.idle.remove(&self.idle_since[at]);
            debug_assert_eq!(idle, Some(block), "a block that can be found and that nobody holds is idle");
        }
        self.holders[at] += 1;
    }

    fn let_go(&mut self, block: BlockId) {
        let at = block.0 as usize;
        self.holders[at] -= 1;
        if self.holders[at] > 0 {
            return;
        }
        if self.nodes[at].is_some() {
            self.turns += 1;
            self.idle_since[at] = self.turns;
            self.idle.insert(self.turns, block);
        } else {
            self.free.push(block);
        }
    }

    /// A block that holds nothing: a free one, or else the one that was idle longest.
    fn take(&mut self, by: RequestId) -> Option<BlockId> {
        self.free.pop().or_else(|| {
            let (_, block) = self.idle.pop_first()?;
            let node = self.nodes[block.0 as usize].take().expect("idle blocks can be found");
            self.tree.evict(node, by, self.now);
            Some(block)
        })
    }
}

/// Blocks held by one sequence, in the order of its tokens.
#[derive(Debug)]
pub struct Lease {
    pool: BlockPool,
    owner: RequestId,
    blocks: Vec<BlockId>,
    /// Nodes of the first blocks: those that are published.
    chain: Vec<NodeId>,
}

impl Lease {
    /// Takes `count` more blocks; false, and nothing taken, if there are not so many.
    pub fn extend(&mut self, count: usize) -> bool {
        let mut state = self.pool.state.borrow_mut();
        if state.available() < count {
            return false;
        }
        for _ in 0..count {
            let block = state.take(self.owner).expect("so many are available");
            state.hold(block);
            self.blocks.push(block);
        }
        true
    }

    /// Lets others find the full blocks among those that hold the first `computed` tokens. Where another sequence has computed the
    /// same meanwhile, its block takes the place of the own one, which holds the same numbers.
    pub fn publish(&mut self, content: &Content<'_>, computed: usize) {
        let mut state = self.pool.state.borrow_mut();
        let state = &mut *state;
        let Some(caching) = state.caching else { return };
        while (self.chain.len() + 1) * caching.block_tokens <= computed {
            let index = self.chain.len();
            let Some(key) = caching.key(content, index, self.chain.last().copied()) else { return };
            let own = self.blocks[index];
            let node = match state.tree.find(&key) {
                Some(node) => {
                    let block = state.tree.block(node);
                    state.hold(block);
                    self.blocks[index] = block;
                    state.let_go(own);
                    node
                }
                None => {
                    let node = state.tree.insert(&key, own);
                    state.nodes[own.0 as usize] = Some(node);
                    node
                }
            };
            self.chain.push(node);
        }
    }

    /// What the sequence computes next, if others might wait for it.
    pub fn next(&self, content: &Content<'_>) -> Option<u64> {
        let state = self.pool.state.borrow();
        let key = state.caching?.key(content, self.chain.len(), self.chain.last().copied())?;
        Some(state.tree.digest(&key))
    }

    /// Blocks that nobody else holds.
    pub fn own(&self) -> usize {
        let state = self.pool.state.borrow();
        // Others share beginnings, so the shared ones are the first of those that are published.
        let shared = |block: &&BlockId| state.holders[block.0 as usize] > 1;
        self.blocks.len() - self.blocks[..self.chain.len()].iter().take_while(shared).count()
    }

    /// Takes back what was published and that nobody else holds or goes on from: it is not to be trusted.
    pub fn withdraw(&mut self) {
        let mut state = self.pool.state.borrow_mut();
        while let Some(node) = self.chain.last() {
            let block = self.blocks[self.chain.len() - 1].0 as usize;
            if state.holders[block] > 1 || state.tree.has_children(*node) {
                return;
            }
            state.tree.remove(*node);
            state.nodes[block] = None;
            self.chain.pop();
        }
    }

    /// Returns all blocks.
    pub fn release(&mut self) {
        let mut state = self.pool.state.borrow_mut();
        // The end of the chain first, so that it is given up first.
        self.chain.clear();
        self.blocks.drain(..).rev().for_each(|block| state.let_go(block));
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
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::simulate::Dice;

    const BLOCKS: usize = 24;
    const BLOCK_TOKENS: usize = 2;
    const WIDE_FROM: usize = 7;

    /// A sequence as the engine would keep it.
    struct Sequence {
        tokens: Vec<TokenId>,
        prompt: usize,
        salt: Option<Arc<str>>,
        lease: Lease,
        computed: usize,
    }

    impl Sequence {
        fn content(&self) -> Content<'_> {
            Content { tokens: &self.tokens, prompt: self.prompt, salt: self.salt.as_ref() }
        }
    }

    /// What was computed into each block: the sequence up to its end, the salt, and how each of its tokens was rounded.
    type Written = HashMap<BlockId, (Vec<TokenId>, Option<Arc<str>>, Vec<bool>)>;

    /// How each of the tokens is rounded that a sequence computes itself.
    fn wide(prompt: usize, tokens: usize) -> Vec<bool> {
        (0..tokens).map(|position| prompt >= WIDE_FROM && position < prompt).collect()
    }

    /// A pool, its sequences, and what their blocks hold; every operation is followed by all checks.
    struct House {
        pool: BlockPool,
        sequences: Vec<Sequence>,
        written: Written,
        dice: Dice,
        found_tokens: usize,
    }

    impl House {
        fn new(seed: u64) -> House {
            let caching = Caching { block_tokens: BLOCK_TOKENS, wide_from: Some(WIDE_FROM) };
            House {
                pool: BlockPool::new(BLOCKS, Some(caching)),
                sequences: Vec::new(),
                written: HashMap::new(),
                dice: Dice::new(seed),
                found_tokens: 0,
            }
        }

        /// A new sequence of few different tokens, or one that goes on from another.
        fn arrive(&mut self, exactly: bool) {
            let dice = &mut self.dice;
            let length = dice.between(1, 12);
            let mut tokens: Vec<TokenId> = (0..length).map(|_| TokenId(dice.between(0, 1) as u32)).collect();
            if !self.sequences.is_empty() && dice.chance(0.3) {
                let other = dice.between(0, self.sequences.len() - 1);
                tokens.splice(0..0, self.sequences[other].tokens.iter().copied());
            }
            let salt = dice.chance(0.3).then(|| Arc::from("salt"));
            let content = Content { tokens: &tokens, prompt: tokens.len(), salt: salt.as_ref() };
            let mut found = Found::default();
            let look = self.pool.look(&mut found, &content, exactly);
            assert_eq!(self.pool.look(&mut found, &content, exactly), look, "a second look sees the same");
            let lacking = (tokens.len() + 1).div_ceil(BLOCK_TOKENS) - look.blocks;
            if lacking + look.idle > self.pool.available() {
                return;
            }
            assert_eq!(self.pool.miss(&found, &content).is_none(), look.next.is_none());
            let mut lease = self.pool.adopt(RequestId(length as u64), &found);
            assert!(lease.extend(lacking), "so many were available");
            let computed = look.blocks * BLOCK_TOKENS;
            assert!(computed < tokens.len(), "a token is left to be computed");
            for (index, block) in lease.blocks().iter().enumerate().take(look.blocks) {
                let end = (index + 1) * BLOCK_TOKENS;
                let (held, of, rounded) = &self.written[block];
                assert_eq!(
                    (held.as_slice(), of),
                    (&tokens[..end], &salt),
                    "a found block holds what was looked for"
                );
                // An earlier answer's block, and what follows it, may have been rounded otherwise.
                let own = wide(tokens.len(), end);
                assert!(!exactly || *rounded == own, "exactly the same was looked for");
                assert!(rounded.iter().zip(&own).all(|(found, own)| found <= own));
            }
            self.found_tokens += computed;
            self.sequences.push(Sequence { prompt: tokens.len(), tokens, salt, lease, computed });
        }

        /// The next tokens of a sequence are computed.
        fn compute(&mut self, index: usize) {
            let sequence = &mut self.sequences[index];
            let count = self.dice.between(1, 4).min(sequence.tokens.len() - sequence.computed);
            sequence.computed += count;
            let first = (sequence.computed - count) / BLOCK_TOKENS;
            for index in first..sequence.computed.div_ceil(BLOCK_TOKENS) {
                let end = sequence.computed.min((index + 1) * BLOCK_TOKENS);
                // What a sequence goes on from keeps its rounding.
                let mut rounded = match index {
                    0 => Vec::new(),
                    _ => self.written[&sequence.lease.blocks()[index - 1]].2.clone(),
                };
                rounded.extend(&wide(sequence.prompt, end)[index * BLOCK_TOKENS..]);
                let written = (sequence.tokens[..end].to_vec(), sequence.salt.clone(), rounded);
                self.written.insert(sequence.lease.blocks()[index], written);
            }
            let computed = sequence.computed;
            let Sequence { tokens, prompt, salt, lease, .. } = sequence;
            lease.publish(&Content { tokens, prompt: *prompt, salt: salt.as_ref() }, computed);
            for (index, block) in sequence.lease.blocks().iter().enumerate().take(computed / BLOCK_TOKENS) {
                let end = (index + 1) * BLOCK_TOKENS;
                assert_eq!(self.written[block].0, sequence.tokens[..end], "its blocks hold its own tokens");
            }
        }

        fn generate(&mut self, index: usize) {
            let sequence = &mut self.sequences[index];
            let token = TokenId(self.dice.between(0, 1) as u32);
            if sequence.computed == sequence.tokens.len() {
                let lacking = (sequence.tokens.len() + 1)
                    .div_ceil(BLOCK_TOKENS)
                    .saturating_sub(sequence.lease.blocks().len());
                if sequence.lease.extend(lacking) {
                    sequence.tokens.push(token);
                }
            }
        }

        fn step(&mut self) {
            let any = self.dice.between(0, self.sequences.len().max(1) - 1);
            match self.dice.between(0, 9) {
                0..2 => self.arrive(true),
                2 => self.arrive(false),
                _ if self.sequences.is_empty() => {}
                3..6 => self.compute_if_left(any),
                6..8 => self.generate(any),
                8 => drop(self.sequences.swap_remove(any)),
                _ => {
                    let mut broken = self.sequences.swap_remove(any);
                    broken.lease.withdraw();
                }
            }
            self.check();
        }

        fn compute_if_left(&mut self, index: usize) {
            if self.sequences[index].computed < self.sequences[index].tokens.len() {
                self.compute(index);
            }
        }

        fn check(&self) {
            self.pool.check(self.sequences.iter().map(|sequence| &sequence.lease)).unwrap();
            for (index, sequence) in self.sequences.iter().enumerate() {
                let others = self.sequences.iter().enumerate().filter(|(other, _)| *other != index);
                let held: HashSet<_> = others.flat_map(|(_, other)| other.lease.blocks()).collect();
                let own = sequence.lease.blocks().iter().filter(|block| !held.contains(block)).count();
                assert_eq!(sequence.lease.own(), own, "blocks that nobody else holds");
                let key = sequence.lease.next(&sequence.content());
                assert!(key.is_none() || sequence.lease.blocks().len() * BLOCK_TOKENS >= sequence.computed);
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_was_computed_and_no_block_is_lost(seed in any::<u64>()) {
            let mut house = House::new(seed);
            (0..300).for_each(|_| house.step());
            house.sequences.clear();
            house.check();
            prop_assert_eq!(house.pool.available(), BLOCKS);
        }
    }

    fn tokens(text: &str) -> Vec<TokenId> {
        text.bytes().map(|byte| TokenId(u32::from(byte))).collect()
    }

    fn content(tokens: &[TokenId]) -> Content<'_> {
        Content { tokens, prompt: tokens.len(), salt: None }
    }

    fn pool(blocks: usize) -> BlockPool {
        BlockPool::new(blocks, Some(Caching { block_tokens: 2, wide_from: None }))
    }

    /// Computes a whole prompt; `None` where its blocks are not to be had.
    fn computed(pool: &BlockPool, request: u64, text: &str) -> Option<Lease> {
        let tokens = tokens(text);
        let mut found = Found::default();
        let look = pool.look(&mut found, &content(&tokens), true);
        let mut lease = pool.adopt(RequestId(request), &found);
        lease.extend(tokens.len().div_ceil(2) - look.blocks).then_some(())?;
        lease.publish(&content(&tokens), tokens.len());
        Some(lease)
    }

    fn found(pool: &BlockPool, text: &str) -> (usize, Option<Miss>) {
        let (tokens, mut found) = (tokens(text), Found::default());
        let look = pool.look(&mut found, &content(&tokens), true);
        (look.blocks, pool.miss(&found, &content(&tokens)))
    }

    #[test]
    fn a_miss_says_why() {
        let pool = pool(8);
        assert_eq!(found(&pool, "abcdef"), (0, Some(Miss::NeverSeen { from: 0 })));
        drop(computed(&pool, 1, "abcdef"));
        assert_eq!(found(&pool, "abcdef."), (3, None));
        assert_eq!(found(&pool, "abcdefgh."), (3, Some(Miss::NeverSeen { from: 6 })));
        assert_eq!(found(&pool, "abcx.."), (1, Some(Miss::Diverged { from: 3 })));
        assert_eq!(found(&pool, "ax...."), (0, Some(Miss::Diverged { from: 1 })));
        assert_eq!(found(&pool, "xbcdef"), (0, Some(Miss::NeverSeen { from: 0 })));
        // The last token is never taken from the cache: its logits are wanted.
        assert_eq!(found(&pool, "abcdef"), (2, None));
    }

    #[test]
    fn the_longest_idle_goes_first_and_a_chain_from_its_end() {
        let pool = pool(8);
        drop(computed(&pool, 1, "aabbcc"));
        drop(computed(&pool, 2, "xxyyzz"));
        pool.tell_time(7_000);
        // Two blocks are free; two more are needed.
        let held = computed(&pool, 3, "11223344").unwrap();
        pool.tell_time(9_000);
        let gone = Miss::Evicted { from: 2, by: RequestId(3), ago_ns: 2_000 };
        assert_eq!(found(&pool, "aabbcc."), (1, Some(gone)));
        assert_eq!(found(&pool, "xxyyzz."), (3, None));
        // What is used again is not the longest idle any more.
        drop(computed(&pool, 4, "aabb"));
        drop(computed(&pool, 5, "xx"));
        drop(held);
        let _held = computed(&pool, 6, "556677").unwrap();
        assert_eq!(found(&pool, "aabb."), (0, Some(Miss::Evicted { from: 0, by: RequestId(6), ago_ns: 0 })));
        assert_eq!(found(&pool, "xxyy.").0, 1);
    }

    #[test]
    fn what_others_hold_is_never_given_up() {
        let pool = pool(4);
        let held = computed(&pool, 1, "aabbcc").unwrap();
        assert!(computed(&pool, 2, "xxyy").is_none());
        assert_eq!((pool.available(), found(&pool, "aabbcc.").0), (1, 3));
        drop(held);
        assert_eq!(pool.available(), 4);
    }

    #[test]
    fn without_caching_nothing_is_found_and_everything_is_free_again() {
        let pool = BlockPool::new(4, None);
        drop(computed(&pool, 1, "aabbcc").unwrap());
        assert_eq!((found(&pool, "aabbcc."), pool.idle(), pool.available()), ((0, None), 0, 4));
    }
}
