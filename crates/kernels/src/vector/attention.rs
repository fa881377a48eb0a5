//! A tile of queries against one span of keys and values, in blocks of accumulators that stay in registers.
//!
//! Three passes: scores of all keys of the span, softmax, weighted sum of the values. The first and the last go through the
//! span in panels of 64 tokens; with many lanes a panel is converted to `f32` once and then multiplied with all of them,
//! with few lanes the conversion happens in registers as the panel streams by.
//!
//! **Invariant:** per lane, a score sums over dimensions in order and a value over positions in order, whatever the blocking;
//! a key that a lane does not see has the weight zero exactly, and what was never written is never multiplied.

use std::ops::Range;

use super::softmax::{exponentiate, greatest};
use super::{Element, LANES, Simd, VectorKernel, exp};
use crate::attention::{QueryTile, SPAN, SpanAttention, SpanScratch};
use crate::kv::{KvView, TILE, Tiles};

/// Tiles of sixteen tokens that are worked on together.
const PANEL: usize = 4;

/// Lanes that share one pass over a panel: with four vectors each, they fill 24 of 32 registers.
const LANES_WIDE: usize = 6;

/// Lanes that share one pass if that spares a second one: with two vectors each, they fill half of the registers.
const LANES_MAX: usize = 8;

/// From this many lanes on, a panel is read often enough to be converted first.
const CONVERT_FROM: usize = 2 * LANES_MAX + 1;

/// Bytes that are fetched together.
const CACHE_LINE: usize = 64;

/// Scores of one lane, with a gap after it so that the lanes do not compete for the same cache sets.
pub(crate) const SCORES_STRIDE: usize = SPAN + TILE;

/// A tile's numbers in vectors of sixteen.
type Vectors<'a, E> = &'a [[E; LANES]];

/// Up to four tiles of keys, each `[head_dim][16]`, or of values, each `[16][value_dim]` in vectors of sixteen.
struct Panel<'a, E> {
    tiles: [Vectors<'a, E>; PANEL],
    count: usize,
    /// What will be read after each tile, to be fetched meanwhile: without that, waiting for memory and multiplying add up.
    ahead: [Vectors<'a, E>; PANEL],
}

/// Calls a function generic over the number of lanes.
macro_rules! with_lanes {
    ($lanes:expr, $function:ident($($argument:expr),*)) => {
        match $lanes {
            1 => $function::<S, E, 1>($($argument),*),
            2 => $function::<S, E, 2>($($argument),*),
            3 => $function::<S, E, 3>($($argument),*),
            4 => $function::<S, E, 4>($($argument),*),
            5 => $function::<S, E, 5>($($argument),*),
            6 => $function::<S, E, 6>($($argument),*),
            7 => $function::<S, E, 7>($($argument),*),
            8 => $function::<S, E, 8>($($argument),*),
            lanes => unreachable!("lanes are taken at most {LANES_MAX} at once, not {lanes}"),
        }
    };
}

impl VectorKernel for SpanAttention<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.tile.kv.view() {
            KvView::F16(tiles) => attend(simd, self, tiles),
            KvView::F32(tiles) => attend(simd, self, tiles),
        }
    }
}

#[inline(always)]
fn attend<S: Simd, E: Element>(simd: S, job: SpanAttention<'_>, stored: Tiles<'_, E>) {
    let SpanAttention { tile, queries, span, scratch: SpanScratch { scores, panel: scratch, .. }, result } =
        job;
    let (head_dim, value_dim, lanes) = (tile.kv.head_dim(), tile.kv.shape().value_dim(), tile.lanes());
    let seen = tile.seen();
    let seen = seen.start.max(span * SPAN)..seen.end.min((span + 1) * SPAN); // positions
    let tiles = seen.start / TILE..seen.end.div_ceil(TILE);
    let scores = scores.slice(lanes * SCORES_STRIDE); // column 0 is the first position of the first tile
    let scratch = scratch.slice(PANEL * TILE * value_dim);
    result.reset(&tile);
    let convert = lanes >= CONVERT_FROM;

    let keys_at = |index: usize| {
        let (block, in_block) = tile.block_of(index * TILE);
        stored.keys(block, tile.kv_head, in_block)
    };
    let values_at = |index: usize| {
        let (block, in_block) = tile.block_of(index * TILE);
        stored.values(block, tile.kv_head, in_block)
    };

    for first in tiles.clone().step_by(PANEL) {
        let columns = (first - tiles.start) * TILE;
        let then = |slot: usize| values_at((tiles.start + slot).min(tiles.end - 1)); // after the last keys
        let keys = Panel::new(first..tiles.end, keys_at, then);
        if convert {
            score_panel(simd, queries, head_dim, &keys.converted(simd, scratch), &mut scores[columns..]);
        } else {
            score_panel(simd, queries, head_dim, &keys, &mut scores[columns..]);
        }
    }

    for (lane, scores) in scores.chunks_exact_mut(SCORES_STRIDE).enumerate() {
        let seen_by_lane = columns_seen(&tile, lane, &tiles);
        let scores = &mut scores[..tiles.len() * TILE];
        (result.greatest[lane], result.sum[lane]) = weights(simd, scores, seen_by_lane, tile.softcap);
    }

    let values = result.values.slice(lanes * value_dim);
    values.fill(0.0);
    let last_tile = tile.seen().end.div_ceil(TILE) - 1;
    for first in tiles.clone().step_by(PANEL) {
        let columns = (first - tiles.start) * TILE;
        let tokens = seen.start.saturating_sub(first * TILE)..(seen.end - first * TILE).min(PANEL * TILE);
        let then = |slot: usize| keys_at((tiles.end + slot).min(last_tile)); // the next span's, after the last values
        let rows = Panel::new(first..tiles.end, values_at, then);
        if convert {
            weigh_panel(simd, &scores[columns..], &rows.converted(simd, scratch), tokens, (lanes, values));
        } else {
            weigh_panel(simd, &scores[columns..], &rows, tokens, (lanes, values));
        }
    }
}

/// The columns of a lane's scores that it sees, where column 0 is the first position of the first tile.
#[inline(always)]
pub(crate) fn columns_seen(tile: &QueryTile<'_>, lane: usize, tiles: &Range<usize>) -> Range<usize> {
    let (seen, first, columns) = (tile.seen_by(lane), tiles.start * TILE, tiles.len() * TILE);
    seen.start.saturating_sub(first).min(columns)..seen.end.saturating_sub(first).min(columns)
}

/// Turns a lane's scores into softmax weights relative to the greatest; returns that and the weights' sum.
#[inline(always)]
pub(crate) fn weights<S: Simd>(
    simd: S,
    scores: &mut [f32],
    seen: Range<usize>,
    softcap: Option<f32>,
) -> (f32, f32) {
    if seen.is_empty() {
        scores.fill(0.0);
        return (f32::NEG_INFINITY, 0.0);
    }
    if let Some(cap) = softcap {
        for lanes in scores.as_chunks_mut::<LANES>().0 {
            simd.store(exp::softcap(simd, simd.load(lanes), cap), lanes);
        }
    }
    scores[..seen.start].fill(f32::NEG_INFINITY);
    scores[seen.end..].fill(f32::NEG_INFINITY);
    let greatest = greatest(simd, scores);
    (greatest, exponentiate(simd, scores, greatest))
}

impl<'a, E: Element> Panel<'a, E> {
    /// The first four tiles of `indices`, or as many as there are; `then` says what follows after the last of them.
    #[inline(always)]
    fn new(
        indices: Range<usize>,
        tile: impl Fn(usize) -> Vectors<'a, E>,
        then: impl Fn(usize) -> Vectors<'a, E>,
    ) -> Self {
        let count = indices.len().min(PANEL);
        let mut tiles: [Vectors<'_, E>; PANEL] = [&[]; PANEL];
        for (slot, index) in tiles.iter_mut().zip(indices.clone()) {
            *slot = tile(index);
        }
        let mut ahead = tiles;
        let next = indices.start + PANEL..indices.end;
        for (slot, tile_ahead) in ahead[..count].iter_mut().enumerate() {
            let index = next.start + slot;
            *tile_ahead = if index < next.end { tile(index) } else { then(slot) };
        }
        Panel { tiles, count, ahead }
    }

    #[inline(always)]
    fn converted<'b, S: Simd>(&self, simd: S, into: &'b mut [f32]) -> Panel<'b, f32> {
        let mut rest = into.as_chunks_mut::<LANES>().0;
        let mut tiles: [Vectors<'_, f32>; PANEL] = [&[]; PANEL];
        for (slot, tile) in tiles.iter_mut().zip(&self.tiles[..self.count]) {
            let (converted, others) = rest.split_at_mut(tile.len());
            rest = others;
            for (to, from) in converted.iter_mut().zip(*tile) {
                simd.store(E::load(simd, from), to);
            }
            *slot = converted;
        }
        Panel { tiles, count: self.count, ahead: tiles }
    }
}

/// Scores of all lanes for a panel of keys; `scores` begins at the first lane's first column of the panel.
#[inline(always)]
fn score_panel<S: Simd, E: Element>(
    simd: S,
    queries: &[f32], // [lanes, head_dim]
    head_dim: usize,
    keys: &Panel<'_, E>,
    scores: &mut [f32],
) {
    let lanes = queries.len() / head_dim;
    for (lane, size) in lane_groups::<S>(lanes) {
        let queries = &queries[lane * head_dim..(lane + size) * head_dim];
        let scores = &mut scores[lane * SCORES_STRIDE..];
        with_lanes!(size, score_lanes(simd, queries, keys, scores));
    }
}

#[inline(always)]
fn score_lanes<S: Simd, E: Element, const L: usize>(
    simd: S,
    queries: &[f32], // [L, head_dim]
    keys: &Panel<'_, E>,
    scores: &mut [f32],
) {
    if S::MANY_REGISTERS && keys.count == PANEL {
        let ([a, b, c, d], [e, f, g, h]) = (keys.tiles, keys.ahead);
        if L <= LANES_WIDE {
            return score_block::<S, E, L, 4>(simd, queries, ([a, b, c, d], [e, f, g, h]), scores);
        }
        score_block::<S, E, L, 2>(simd, queries, ([a, b], [e, f]), scores);
        return score_block::<S, E, L, 2>(simd, queries, ([c, d], [g, h]), &mut scores[2 * TILE..]);
    }
    for (index, (tile, ahead)) in keys.tiles[..keys.count].iter().zip(keys.ahead).enumerate() {
        score_block::<S, E, L, 1>(simd, queries, ([tile], [ahead]), &mut scores[index * TILE..]);
    }
}

/// Scores of L lanes for T tiles of keys, summed over dimensions in registers.
#[expect(clippy::needless_range_loop, reason = "over iterators, the accumulators leave their registers")]
#[inline(always)]
fn score_block<S: Simd, E: Element, const L: usize, const T: usize>(
    simd: S,
    queries: &[f32],                                           // [L, head_dim]
    (keys, ahead): ([Vectors<'_, E>; T], [Vectors<'_, E>; T]), // each [head_dim][16]
    scores: &mut [f32],
) {
    let head_dim = queries.len() / L;
    assert!(queries.len() >= L * head_dim && keys.iter().all(|tile| tile.len() == head_dim));
    let mut sums = [[simd.splat(0.0); T]; L];
    for d in 0..head_dim {
        let mut key = [simd.splat(0.0); T];
        for t in 0..T {
            // SAFETY: every tile has `head_dim` elements, as asserted above.
            key[t] = E::load(simd, unsafe { keys[t].get_unchecked(d) });
            simd.prefetch(ahead[t].as_ptr().wrapping_add(d));
        }
        for l in 0..L {
            // SAFETY: `l < L` and `d < head_dim`, and there are at least their product, as asserted above.
            let query = simd.splat(unsafe { *queries.get_unchecked(l * head_dim + d) });
            for t in 0..T {
                sums[l][t] = simd.mul_add(query, key[t], sums[l][t]);
            }
        }
    }
    for (l, sums) in sums.into_iter().enumerate() {
        let row = scores[l * SCORES_STRIDE..][..T * TILE].as_chunks_mut::<LANES>().0;
        for (sum, to) in sums.into_iter().zip(row) {
            simd.store(sum, to);
        }
    }
}

/// Adds a panel's values, times the lanes' weights, to the lanes' sums `[lanes, value_dim]`. Of the panel only `tokens` are
/// touched; `weights` begins at the first lane's first column of the panel.
#[inline(always)]
fn weigh_panel<S: Simd, E: Element>(
    simd: S,
    weights: &[f32],
    rows: &Panel<'_, E>,
    tokens: Range<usize>,
    (lanes, sums): (usize, &mut [f32]),
) {
    let value_dim = sums.len() / lanes;
    for (lane, size) in lane_groups::<S>(lanes) {
        let sums = &mut sums[lane * value_dim..(lane + size) * value_dim];
        let weights = &weights[lane * SCORES_STRIDE..];
        with_lanes!(size, weigh_lanes(simd, weights, rows, tokens.clone(), sums));
    }
}

#[inline(always)]
fn weigh_lanes<S: Simd, E: Element, const L: usize>(
    simd: S,
    weights: &[f32],
    rows: &Panel<'_, E>,
    tokens: Range<usize>,
    sums: &mut [f32], // [L, value_dim]
) {
    let vectors = sums.len() / L / LANES; // of sixteen dimensions
    let mut vector = 0;
    while S::MANY_REGISTERS && L <= LANES_WIDE && vector + 4 <= vectors {
        weigh_block::<S, E, L, 4>(simd, weights, rows, tokens.clone(), (vector, vectors), sums);
        vector += 4;
    }
    while S::MANY_REGISTERS && L > LANES_WIDE && vector + 2 <= vectors {
        weigh_block::<S, E, L, 2>(simd, weights, rows, tokens.clone(), (vector, vectors), sums);
        vector += 2;
    }
    while vector < vectors {
        weigh_block::<S, E, L, 1>(simd, weights, rows, tokens.clone(), (vector, vectors), sums);
        vector += 1;
    }
}

/// Sums of L lanes for W of the vectors that make up a row of values, over positions in registers.
#[expect(clippy::needless_range_loop, reason = "over iterators, the accumulators leave their registers")]
#[inline(always)]
fn weigh_block<S: Simd, E: Element, const L: usize, const W: usize>(
    simd: S,
    weights: &[f32],
    rows: &Panel<'_, E>,
    tokens: Range<usize>,
    (vector, vectors): (usize, usize),
    sums: &mut [f32], // [L, value_dim]
) {
    let sums = sums.as_chunks_mut::<LANES>().0;
    let mut accumulators = [[simd.splat(0.0); W]; L];
    for l in 0..L {
        for w in 0..W {
            accumulators[l][w] = simd.load(&sums[l * vectors + vector + w]);
        }
    }
    for (index, (tile, ahead)) in rows.tiles[..rows.count].iter().zip(rows.ahead).enumerate() {
        let within = tokens.start.saturating_sub(index * TILE).min(TILE)
            ..(tokens.end.saturating_sub(index * TILE)).min(TILE);
        let weights = &weights[index * TILE..][..(L - 1) * SCORES_STRIDE + TILE];
        assert!(tile.len() == TILE * vectors && vector + W <= vectors);
        for token in within {
            let mut value = [simd.splat(0.0); W];
            let ahead = ahead.as_ptr().wrapping_add(token * vectors + vector);
            for w in 0..W {
                if W == 1 || (w * size_of::<[E; LANES]>()).is_multiple_of(CACHE_LINE) {
                    simd.prefetch(ahead.wrapping_add(w));
                }
                // SAFETY: `token < TILE` and `vector + w < vectors`, and the tile has their product, as asserted above.
                value[w] = E::load(simd, unsafe { tile.get_unchecked(token * vectors + vector + w) });
            }
            for l in 0..L {
                // SAFETY: `l < L` and `token < TILE`, for which the slice above was cut.
                let weight = simd.splat(unsafe { *weights.get_unchecked(l * SCORES_STRIDE + token) });
                for w in 0..W {
                    accumulators[l][w] = simd.mul_add(weight, value[w], accumulators[l][w]);
                }
            }
        }
    }
    for l in 0..L {
        for w in 0..W {
            simd.store(accumulators[l][w], &mut sums[l * vectors + vector + w]);
        }
    }
}

/// Cuts lanes into groups of nearly equal size: first lane and size of each.
#[inline(always)]
fn lane_groups<S: Simd>(lanes: usize) -> impl Iterator<Item = (usize, usize)> {
    let one_is_enough = S::MANY_REGISTERS && lanes <= LANES_MAX;
    let groups = if one_is_enough { 1 } else { lanes.div_ceil(LANES_WIDE) };
    (0..groups).map(move |group| {
        let (first, end) = (group * lanes / groups, (group + 1) * lanes / groups);
        (first, end - first)
    })
}
