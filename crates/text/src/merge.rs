//! Byte-pair merging: the neighbouring pair of best rank becomes one token, the leftmost first among equals, until no
//! pair merges.
//!
//! **Invariant:** time is O(n log n) in the symbols of a piece, whatever they are. Short pieces take a plain scan, which
//! is quadratic but quicker below [`SCAN_MAX`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::vocabulary::Merge;

/// A token in the making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub token: u32,
    /// Where its text begins.
    pub start: usize,
}

/// Merges by the pair of tokens that they join.
pub type Merges = HashMap<(u32, u32), Merge>;

/// Symbols up to which a plain scan is quicker than a heap.
const SCAN_MAX: usize = 48;

/// Merges `symbols` in place.
pub fn merge(merges: &Merges, symbols: &mut Vec<Symbol>) {
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
    previous: Vec<usize>,
    next: Vec<usize>,
    alive: Vec<bool>,
}

fn by_heap(merges: &Merges, symbols: &mut Vec<Symbol>) {
    let count = symbols.len();
    let mut links = Links {
        previous: (0..count).map(|at| at.wrapping_sub(1)).collect(), // out of range for the first
        next: (1..=count).collect(),                                 // out of range for the last
        alive: vec![true; count],
    };
    let merge_of = |symbols: &[Symbol], left: usize, right: usize| {
        let (left, right) = (symbols.get(left)?, symbols.get(right)?);
        merges.get(&(left.token, right.token)).copied()
    };
    // Ordered by rank, then by position.
    let mut heap: BinaryHeap<Reverse<(u32, usize)>> = BinaryHeap::with_capacity(count);
    let push = |heap: &mut BinaryHeap<_>, symbols: &[Symbol], left: usize, right: usize| {
        if let Some(merge) = merge_of(symbols, left, right) {
            heap.push(Reverse((merge.rank, left)));
        }
    };
    (1..count).for_each(|right| push(&mut heap, symbols, right - 1, right));
    while let Some(Reverse((rank, left))) = heap.pop() {
        let right = links.next[left];
        // An entry is stale if either of its two symbols has changed since; then the pair's rank is another.
        let current = merge_of(symbols, left, right).filter(|merge| links.alive[left] && merge.rank == rank);
        let Some(merge) = current else { continue };
        symbols[left].token = merge.token;
        links.alive[right] = false;
        let after = links.next[right];
        links.next[left] = after;
        if after < count {
            links.previous[after] = left;
        }
        push(&mut heap, symbols, links.previous[left], left);
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
