//! Byte-pair merging: the neighbouring pair of best rank becomes one token, the leftmost first among equals, until no
//! pair merges.
//!
//! **Invariant:** time is O(n log n) in the symbols of a piece, whatever they are. Short pieces take a plain scan, which
//! is quadratic but quicker below [`SCAN_MAX`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::RandomState;

use crate::vocabulary::Merge;

/// A token in the making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub token: u32,
    /// Where its text begins.
    pub start: usize,
}

/// Merges by the pair of tokens that they join. Encoding looks up a few pairs for each byte, so that the hash counts; its
/// random seed keeps files from choosing pairs that collide.
pub type Merges = HashMap<(u32, u32), Merge, RandomState>;

/// Symbols up to which a plain scan is quicker than a heap.
const SCAN_MAX: usize = 48;

/// Merges `symbols` in place.
pub fn merge(merges: &Merges, symbols: &mut Vec<Symbol>) {
    debug_assert!(symbols.len() < NONE as usize, "a request's body is far smaller");
    if symbols.len() <= SCAN_MAX { by_scan(merges, symbols) } else { by_heap(merges, symbols) }
}

fn by_scan(merges: &Merges, symbols: &mut Vec<Symbol>) {
    let pair = |symbols: &[Symbol], at: usize| Some((symbols.get(at)?.token, symbols.get(at + 1)?.token));
    let merge_at = |symbols: &[Symbol], at: usize| merges.get(&pair(symbols, at)?).copied();
    let mut candidates: Vec<Option<Merge>> = (0..symbols.len()).map(|at| merge_at(symbols, at)).collect();
    loop {
        let ranked = candidates.iter().enumerate().filter_map(|(at, merge)| Some((merge.as_ref()?.rank, at)));
        let Some((_, at)) = ranked.min() else { return };
        let Some(best) = candidates[at] else { return };
        symbols[at].token = best.token;
        symbols.remove(at + 1);
        candidates.remove(at + 1);
        candidates[at] = merge_at(symbols, at);
        if let Some(before) = at.checked_sub(1) {
            candidates[before] = merge_at(symbols, before);
        }
    }
}

/// A doubly linked list laid over the symbols; the dead ones keep their place.
struct Links {
    previous: Vec<u32>,
    next: Vec<u32>,
    alive: Vec<bool>,
}

/// Past either end of the list.
const NONE: u32 = u32::MAX;

fn by_heap(merges: &Merges, symbols: &mut Vec<Symbol>) {
    let count = symbols.len() as u32;
    let mut links = Links {
        previous: (0..count).map(|at| at.checked_sub(1).unwrap_or(NONE)).collect(),
        next: (1..count).chain([NONE]).collect(),
        alive: vec![true; symbols.len()],
    };
    let merge_of = |symbols: &[Symbol], left: u32, right: u32| {
        let (left, right) = (symbols.get(left as usize)?, symbols.get(right as usize)?);
        merges.get(&(left.token, right.token)).copied()
    };
    // Ordered by rank, then by position: both in one word, the rank above.
    let mut heap: BinaryHeap<Reverse<u64>> = BinaryHeap::with_capacity(symbols.len());
    let push = |heap: &mut BinaryHeap<_>, symbols: &[Symbol], left: u32, right: u32| {
        if let Some(merge) = merge_of(symbols, left, right) {
            heap.push(Reverse(u64::from(merge.rank) << 32 | u64::from(left)));
        }
    };
    (1..count).for_each(|right| push(&mut heap, symbols, right - 1, right));
    while let Some(Reverse(entry)) = heap.pop() {
        let (rank, left) = ((entry >> 32) as u32, entry as u32);
        let right = links.next[left as usize];
        // An entry is stale if either of its two symbols has changed since; then the pair's rank is another.
        let current =
            merge_of(symbols, left, right).filter(|merge| links.alive[left as usize] && merge.rank == rank);
        let Some(merge) = current else { continue };
        symbols[left as usize].token = merge.token;
        links.alive[right as usize] = false;
        let after = links.next[right as usize];
        links.next[left as usize] = after;
        if after != NONE {
            links.previous[after as usize] = left;
        }
        push(&mut heap, symbols, links.previous[left as usize], left);
        push(&mut heap, symbols, left, after);
    }
    let mut alive = links.alive.into_iter();
    symbols.retain(|_| alive.next().unwrap_or(false));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tokens 0..4 are letters; every merge has its own rank and token.
    fn table(pairs: &[(u32, u32)]) -> Merges {
        let ranked = pairs.iter().enumerate();
        ranked.map(|(rank, pair)| (*pair, Merge { rank: rank as u32, token: 4 + rank as u32 })).collect()
    }

    fn symbols(tokens: &[u32]) -> Vec<Symbol> {
        tokens.iter().enumerate().map(|(start, token)| Symbol { token: *token, start }).collect()
    }

    #[test]
    fn equal_ranks_merge_from_the_left() {
        let merges = table(&[(0, 0)]);
        let mut odd = symbols(&[0, 0, 0]);
        merge(&merges, &mut odd);
        assert_eq!(odd, [Symbol { token: 4, start: 0 }, Symbol { token: 0, start: 2 }]);
    }

    proptest! {
        #[test]
        fn the_heap_gives_what_the_scan_gives(
            tokens in prop::collection::vec(0u32..4, 0..200),
            pairs in prop::collection::vec((0u32..20, 0u32..20), 0..40),
        ) {
            let merges = table(&pairs);
            let (mut scanned, mut heaped) = (symbols(&tokens), symbols(&tokens));
            by_scan(&merges, &mut scanned);
            by_heap(&merges, &mut heaped);
            prop_assert_eq!(scanned, heaped);
        }
    }
}
