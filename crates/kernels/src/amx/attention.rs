//! A tile of queries against one span of keys and values, by tiles of bf16.
//!
//! Queries, keys, weights and values are each rounded to bf16; sums, and the softmax between the two products, are floats. (Queries and
//! keys as sums of two bf16 numbers each would be as exact as 16 bits, for three products instead of one: it halves the error of the
//! logits, which is a small part of other engines' either way, and takes twice as long.)
//!
//! **Invariant:** a lane's numbers are summed over dimensions and over positions in one order, from fixed absolute positions on,
//! whatever other lanes there are.

use std::arch::x86_64::*;
use std::ops::Range;

use half::bf16;

use super::Amx;
use super::product::{Product, ROWS, shapes};
use super::quantize::store_paired;
use super::tile::Tiles;
use crate::attention::{SPAN, SpanAttention, SpanScratch};
use crate::avx512::Avx512;
use crate::kv::{KvView, TILE, Tiles as Stored};
use crate::pack::GROUP;
use crate::vector::attention::{SCORES_STRIDE, columns_seen, weights};
use crate::vector::{Element, LANES};

/// Numbers in a tile: 16 rows of 32.
const UNIT: usize = ROWS * GROUP;

impl Amx {
    /// As the vector kernel, for lanes whose rows are wide. The result's values have room for whole tiles of lanes.
    pub fn attend(self, job: SpanAttention<'_>) {
        // SAFETY: `self` proves the features and the permission.
        unsafe {
            match job.tile.kv.view() {
                KvView::F16(stored) => attend(self.avx512(), job, stored),
                KvView::F32(stored) => attend(self.avx512(), job, stored),
            }
        }
    }
}

/// # Safety
/// The process may use tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,avx2,fma,f16c")]
unsafe fn attend<E: Element>(simd: Avx512, job: SpanAttention<'_>, stored: Stored<'_, E>) {
    let SpanAttention { tile, queries, span, scratch: SpanScratch { scores, wide, .. }, result } = job;
    let (head_dim, value_dim, lanes) = (tile.kv.head_dim(), tile.kv.shape().value_dim(), tile.lanes());
    let seen = tile.seen();
    let seen = seen.start.max(span * SPAN)..seen.end.min((span + 1) * SPAN); // positions
    let units = seen.start / GROUP..seen.end.div_ceil(GROUP); // of 32 positions
    let first = units.start * GROUP; // the position of column 0
    let (blocks, dims) = (lanes.div_ceil(ROWS), head_dim.div_ceil(GROUP));
    let (columns, values_tiles) = (units.len() * GROUP, value_dim / TILE);
    let in_tiles = seen.start / TILE..seen.end.div_ceil(TILE);

    let sizes = [
        blocks * dims * UNIT,
        columns / TILE * dims * UNIT,
        blocks * units.len() * UNIT,
        values_tiles * units.len() * UNIT,
    ];
    let wide = wide.at_least(sizes.iter().sum());
    let (q, wide) = wide.split_at_mut(sizes[0]); // [blocks, dims, 16 lanes, 32]
    let (k, wide) = wide.split_at_mut(sizes[1]); // [columns / 16, dims, 16 pairs, 16, 2]
    let (p, v) = wide.split_at_mut(sizes[2]); // [blocks, units, 16 lanes, 32] and [value tiles, units, 16 pairs, 16, 2]
    let scores = scores.slice(blocks * ROWS * SCORES_STRIDE);
    result.reset(&tile);
    let values = result.values.slice(blocks * ROWS * value_dim);

    round_queries(queries, head_dim, q);
    for (index, to) in k.chunks_exact_mut(dims * UNIT).enumerate() {
        let at = first / TILE + index;
        let keys = in_tiles.contains(&at).then(|| {
            let (block, in_block) = tile.block_of(at * TILE);
            stored.keys(block, tile.kv_head, in_block)
        });
        pair_keys::<E>(simd, keys.unwrap_or_default(), to);
    }
    // The columns that some lane of a block sees end here.
    let end_of = |block: usize| {
        let last = (block * ROWS + ROWS - 1).min(lanes - 1);
        tile.seen_by(last).end.saturating_sub(first).min(columns)
    };
    let grid = Grid { blocks, x: (q, dims * UNIT), w: (k, dims * UNIT), sums: (scores, SCORES_STRIDE) };
    // SAFETY: the caller vouches for the permission, and there are so many blocks, panels and units.
    unsafe { grid.multiply(|block| (end_of(block).div_ceil(TILE), dims)) };

    for (lane, scores) in scores.chunks_exact_mut(SCORES_STRIDE).enumerate() {
        let scores = &mut scores[..columns];
        if lane < lanes {
            let seen = columns_seen(&tile, lane, &(2 * units.start..2 * units.end));
            (result.greatest[lane], result.sum[lane]) = weights(simd, scores, seen, tile.softcap);
        } else {
            scores.fill(0.0);
        }
        let (block, row) = (lane / ROWS, lane % ROWS);
        for (unit, scores) in scores.as_chunks::<GROUP>().0.iter().enumerate() {
            round(scores, &mut p[(block * units.len() + unit) * UNIT + row * GROUP..][..GROUP]);
        }
    }

    for unit in units.clone() {
        let rows = [unit * 2, unit * 2 + 1].map(|at| {
            let rows = in_tiles.contains(&at).then(|| {
                let (block, in_block) = tile.block_of(at * TILE);
                stored.values(block, tile.kv_head, in_block)
            });
            rows.unwrap_or_default()
        });
        let there = seen.start.saturating_sub(unit * GROUP)..(seen.end - unit * GROUP).min(GROUP);
        pair_values::<E>(
            simd,
            rows,
            there,
            |values_tile| (values_tile * units.len() + unit - units.start) * UNIT,
            v,
        );
    }
    let grid =
        Grid { blocks, x: (p, units.len() * UNIT), w: (v, units.len() * UNIT), sums: (values, value_dim) };
    // SAFETY: as above.
    unsafe { grid.multiply(|block| (values_tiles, end_of(block).div_ceil(GROUP))) };
}

/// Products of blocks of 16 lanes with panels of 16 columns.
struct Grid<'a> {
    blocks: usize,
    x: (&'a [bf16], usize),       // and what lies between blocks
    w: (&'a [bf16], usize),       // and what lies between panels
    sums: (&'a mut [f32], usize), // and what lies between lanes
}

impl Grid<'_> {
    /// Multiplies two blocks at a time with so many panels over so many units of 32, as `extent` says by the second block. Sums
    /// over no units are zeros.
    ///
    /// # Safety
    /// The process may use tiles, and the panels and units are there.
    unsafe fn multiply(self, extent: impl Fn(usize) -> (usize, usize)) {
        let ((x, x_step), (w, w_step), (sums, lane_step)) = (self.x, self.w, self.sums);
        assert!(x.len() >= self.blocks * x_step && sums.len() >= self.blocks * ROWS * lane_step);
        // SAFETY: the caller vouches for the permission.
        let _tiles = unsafe { Tiles::shape(&shapes(ROWS, ROWS)) };
        for block in (0..self.blocks).step_by(2) {
            let next = (block + 1).min(self.blocks - 1);
            let (panels, units) = extent(next);
            assert!(
                w.len() >= panels * w_step
                    && x_step.min(w_step) >= units * UNIT
                    && panels * TILE <= lane_step
            );
            if units == 0 {
                sums[block * ROWS * lane_step..(next + 1) * ROWS * lane_step].fill(0.0);
                continue;
            }
            for panel in (0..panels).step_by(2) {
                let beside = (panel + 1).min(panels - 1);
                let place = |block: usize, panel: usize| block * ROWS * lane_step + panel * TILE;
                let places =
                    [place(block, panel), place(block, beside), place(next, panel), place(next, beside)];
                let product = Product {
                    units,
                    x: [block, next].map(|block| x[block * x_step..].as_ptr()),
                    steps: [UNIT * size_of::<bf16>(); 2],
                    w: [panel, beside].map(|panel| w[panel * w_step..].as_ptr()),
                    sums: places.map(|place| sums[place..].as_mut_ptr()),
                    sums_step: lane_step * size_of::<f32>(),
                };
                // SAFETY: the assertions above.
                unsafe { product.run((next - block + 1, beside - panel + 1), true) };
            }
        }
    }
}

/// Queries `[lanes, head_dim]` to tiles. Lanes and dimensions that are not there are zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
fn round_queries(queries: &[f32], head_dim: usize, to: &mut [bf16]) {
    let dims = head_dim.div_ceil(GROUP);
    for (block, to) in to.chunks_exact_mut(dims * UNIT).enumerate() {
        for row in 0..ROWS {
            let lane = block * ROWS + row;
            let query = queries.get(lane * head_dim..(lane + 1) * head_dim).unwrap_or_default();
            for unit in 0..dims {
                let x = query.get(unit * GROUP..).unwrap_or_default();
                let x = &x[..x.len().min(GROUP)];
                let there = if x.len() == GROUP { u32::MAX } else { (1 << x.len()) - 1 };
                // SAFETY: the masks let through only the numbers that `x` has.
                let (first, second) = unsafe {
                    let start = x.as_ptr();
                    (
                        _mm512_maskz_loadu_ps(there as u16, start),
                        _mm512_maskz_loadu_ps((there >> 16) as u16, start.wrapping_add(LANES)),
                    )
                };
                store(_mm512_cvtne2ps_pbh(second, first), &mut to[unit * UNIT + row * GROUP..][..GROUP]);
            }
        }
    }
}

/// Sixteen keys `[head_dim, 16]` to tiles of pairs of dimensions. Without keys they are zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
fn pair_keys<E: Element>(simd: Avx512, keys: &[[E; LANES]], to: &mut [bf16]) {
    let key = |dim: usize| keys.get(dim).map_or(_mm512_setzero_ps(), |key| E::load(simd, key));
    for (index, to) in to.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
        store_paired(key(2 * index), key(2 * index + 1), to);
    }
}

/// Two times sixteen rows of values to tiles of pairs of positions; rows outside of `there` are zeros, whatever stands in them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
fn pair_values<E: Element>(
    simd: Avx512,
    halves: [&[[E; LANES]]; 2], // each [16, value tiles]
    there: Range<usize>,
    place: impl Fn(usize) -> usize,
    to: &mut [bf16],
) {
    let tiles = halves.iter().map(|half| half.len()).max().unwrap_or(0) / TILE;
    for tile in 0..tiles {
        let to = &mut to[place(tile)..][..UNIT];
        let value = |row: usize| match there.contains(&row) {
            true => E::load(simd, &halves[row / TILE][row % TILE * tiles + tile]),
            false => _mm512_setzero_ps(),
        };
        for (pair, to) in to.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
            store_paired(value(2 * pair), value(2 * pair + 1), to);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn round(x: &[f32; GROUP], to: &mut [bf16]) {
    // SAFETY: there are 32 numbers.
    let (first, second) = unsafe { (_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(LANES))) };
    store(_mm512_cvtne2ps_pbh(second, first), to);
}

#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn store(x: __m512bh, to: &mut [bf16]) {
    assert_eq!(to.len(), GROUP);
    // SAFETY: both are 512 bits, and the place has 64 bytes.
    unsafe {
        let x = std::mem::transmute::<__m512bh, __m512i>(x);
        _mm512_storeu_si512(to.as_mut_ptr().cast(), x);
    }
}
