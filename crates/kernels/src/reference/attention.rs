//! A tile of queries against one span of keys and values, one query after the other.

use half::f16;

use super::activation::softcap;
use crate::attention::{Partial, QueryTile, SPAN, SpanAttention};
use crate::kv::{KvView, TILE, Tiles};

impl SpanAttention<'_> {
    pub fn apply(self) {
        let (queries, result) = (self.queries, self.result);
        match self.tile.kv.view() {
            KvView::F16(tiles) => attend(&self.tile, self.span, queries, tiles, f16::to_f32, result),
            KvView::F32(tiles) => attend(&self.tile, self.span, queries, tiles, |number| number, result),
        }
    }
}

fn attend<E: Copy>(
    tile: &QueryTile<'_>,
    span: usize,
    queries: &[f32], // [lanes, head_dim]
    tiles: Tiles<'_, E>,
    f32_of: impl Fn(E) -> f32,
    result: &mut Partial,
) {
    let (head_dim, value_dim) = (tile.kv.head_dim(), tile.kv.shape().value_dim());
    result.reset(tile);
    let values = result.values.slice(tile.lanes() * value_dim).chunks_exact_mut(value_dim);
    for (lane, (query, values)) in queries.chunks_exact(head_dim).zip(values).enumerate() {
        let seen = tile.seen_by(lane);
        let seen = seen.start.max(span * SPAN)..seen.end.min((span + 1) * SPAN);
        let score = |position: usize| {
            let (block, in_block) = tile.block_of(position);
            let keys = tiles.keys(block, tile.kv_head, in_block);
            let products =
                query.iter().zip(keys).map(|(q, k)| f64::from(*q) * f64::from(f32_of(k[position % TILE])));
            let score = products.sum::<f64>() as f32;
            tile.softcap.map_or(score, |cap| softcap(score, cap))
        };
        let scores: Vec<f32> = seen.clone().map(score).collect();
        let greatest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sums = vec![0.0; value_dim];
        let mut sum = 0.0;
        for (position, score) in seen.zip(scores) {
            let weight = f64::from(score - greatest).exp();
            sum += weight;
            let (block, in_block) = tile.block_of(position);
            let rows = tiles.values(block, tile.kv_head, in_block).as_flattened();
            let row = &rows[position % TILE * value_dim..][..value_dim];
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * f64::from(f32_of(*value)));
        }
        (result.greatest[lane], result.sum[lane]) = (greatest, sum as f32);
        values.iter_mut().zip(sums).for_each(|(value, sum)| *value = sum as f32);
    }
}
