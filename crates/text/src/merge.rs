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

/// A symbol in a doubly linked list; what belongs together lies together, since long pieces do not fit a cache.
#[derive(Clone, Copy)]
struct Node {
    /// [`NONE`] once it is part of the symbol to its left.
    token: u32,
    previous: u32,
    next: u32,
}

/// No token, and past either end of the list.
const NONE: u32 = u32::MAX;

fn by_heap(merges: &Merges, symbols: &mut Vec<Symbol>) {
    let Some(last) = (symbols.len() as u32).checked_sub(1) else { return };
    let link = |(at, symbol): (usize, &Symbol)| {
        let at = at as u32;
        let next = if at == last { NONE } else { at + 1 };
        Node { token: symbol.token, previous: at.checked_sub(1).unwrap_or(NONE), next }
    };
    let mut nodes: Vec<Node> = symbols.iter().enumerate().map(link).collect();
    // A pair that merges, ordered by rank and then by position: both in one word, the rank above.
    let entry = |nodes: &[Node], left: u32, right: u32| {
        let (left_token, right_token) = (nodes.get(left as usize)?.token, nodes.get(right as usize)?.token);
        let merge = merges.get(&(left_token, right_token))?;
        Some((u64::from(merge.rank) << 32 | u64::from(left), merge.token))
    };
    let pairs = (0..last).filter_map(|left| Some(Reverse(entry(&nodes, left, left + 1)?.0)));
    let mut heap: BinaryHeap<Reverse<u64>> = pairs.collect::<Vec<_>>().into();
    while let Some(Reverse(candidate)) = heap.pop() {
        let left = candidate as u32;
        let Node { previous, next: right, .. } = nodes[left as usize];
        // An entry is stale if either of its two symbols has changed since; then the pair's rank is another.
        let Some((_, token)) = entry(&nodes, left, right).filter(|(current, _)| *current == candidate) else {
            continue;
        };
        let after = nodes[right as usize].next;
        nodes[right as usize].token = NONE;
        nodes[left as usize].token = token;
        nodes[left as usize].next = after;
        if let Some(after) = nodes.get_mut(after as usize) {
            after.previous = left;
        }
        heap.extend(entry(&nodes, previous, left).map(|(pair, _)| Reverse(pair)));
        heap.extend(entry(&nodes, left, after).map(|(pair, _)| Reverse(pair)));
    }
    symbols.iter_mut().zip(&nodes).for_each(|(symbol, node)| symbol.token = node.token);
    symbols.retain(|symbol| symbol.token != NONE);
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
