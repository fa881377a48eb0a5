//! Products of some panels with wide rows, by tiles of bf16.
//!
//! Weights are taken apart a stretch of inputs at a time, to bf16 in the order that tiles want, and stay in the second-level cache while
//! all rows of the chunk go over them: two blocks of rows with two panels at once, so that a tile that is loaded is used twice.
//! The sums are floats and stay in the tile registers for the whole stretch.
//!
//! **Invariant:** an output's sum takes its inputs in one order, 32 at a time, whatever other rows and panels there are.

use std::arch::x86_64::*;
use std::ops::Range;

use half::bf16;

use super::Amx;
use super::product::{Product, ROWS, shapes};
use super::quantize::store_paired;
use super::tile::Tiles;
use crate::activations::WideRows;
use crate::avx512::unpack::for_each_unit;
use crate::format::typed::{Quantized, by_format};
use crate::matmul::{Sums, Tile};
use crate::pack::{GROUP, PANEL, PackedMatrix};

/// Units taken apart at a time: so many of eight panels are 256 KiB, and the inputs of 512 rows to them 1 MiB.
const UNITS: usize = 32;

/// Numbers that the unpacked weights are given room for, at least: that many are on one huge page.
const ROOM: usize = 1 << 20;

/// Numbers in one unpacked unit, which is one tile: `[16 pairs of inputs, 16 outputs, 2]`.
const UNIT: usize = PANEL * GROUP;

impl Amx {
    /// Writes the products of the panels with all rows.
    ///
    /// # Safety
    /// `sums` has a place for each of the rows with each of the panels, which nobody else uses.
    pub unsafe fn product_wide(
        self,
        w: &PackedMatrix,
        panels: Range<usize>,
        x: WideRows<'_>,
        tile: &mut Tile,
        sums: Sums,
    ) {
        assert!(x.groups * GROUP == w.cols() && x.halves.len() == x.rows * w.cols());
        if x.rows == 0 {
            return;
        }
        let pairs = x.rows / ROWS / 2 * 2;
        let last = (x.rows - 1) % ROWS + 1;
        for first in (0..x.groups).step_by(UNITS) {
            let units = first..x.groups.min(first + UNITS);
            // SAFETY: `self` proves the features.
            unsafe { unpack(w, panels.clone(), units.clone(), tile) };
            let stretch = Stretch { x, units, weights: &tile.halves, panels: panels.len(), sums };
            // SAFETY: `self` proves the permission, the registers are shaped for the blocks that follow, and the caller vouches for
            // the places of the sums.
            unsafe {
                if pairs > 0 {
                    let _tiles = Tiles::shape(&shapes(ROWS, ROWS));
                    (0..pairs).step_by(2).for_each(|block| stretch.blocks::<2>(block));
                }
                match x.rows.div_ceil(ROWS) - pairs {
                    0 => {}
                    1 => {
                        let _tiles = Tiles::shape(&shapes(last, last));
                        stretch.blocks::<1>(pairs);
                    }
                    _ => {
                        let _tiles = Tiles::shape(&shapes(ROWS, last));
                        stretch.blocks::<2>(pairs);
                    }
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")]
fn unpack(w: &PackedMatrix, panels: Range<usize>, units: Range<usize>, tile: &mut Tile) {
    by_format!(w.format(), F => unpack_format::<F>(w, panels, units, tile));
}

/// Takes some units of some panels apart, `[panel, unit]` without gaps.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")]
fn unpack_format<F: Quantized>(w: &PackedMatrix, panels: Range<usize>, units: Range<usize>, tile: &mut Tile) {
    let subs = const { GROUP / F::SPEC.scales.sub_len() };
    let halves = tile.halves.at_least(ROOM.max(panels.len() * units.len() * UNIT));
    let offset = _mm512_set1_ps(f32::from(F::SPEC.offset));
    let byte = _mm512_set1_epi32(0xff);
    for (index, panel) in panels.enumerate() {
        for_each_unit::<F>(&w.panel(panel), units.clone(), |unit, codes, subs_of| {
            let unit = index * units.len() + unit - units.start;
            let (to, _) = halves[unit * UNIT..][..UNIT].as_chunks_mut::<{ 2 * PANEL }>();
            for (vector, codes) in codes.into_iter().enumerate() {
                let sub = subs_of[vector * subs / 8];
                // What a code of zero stands for.
                let zero = if F::SPEC.scales.has_minimums() {
                    _mm512_fnmsub_ps(offset, sub.scale, sub.minimum)
                } else {
                    _mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(offset, sub.scale))
                };
                let value = |code: __m512i| _mm512_fmadd_ps(_mm512_cvtepi32_ps(code), sub.scale, zero);
                let values = [
                    value(_mm512_and_si512(codes, byte)),
                    value(_mm512_and_si512(_mm512_srli_epi32::<8>(codes), byte)),
                    value(_mm512_and_si512(_mm512_srli_epi32::<16>(codes), byte)),
                    value(_mm512_srli_epi32::<24>(codes)),
                ];
                for (pair, to) in to[2 * vector..][..2].iter_mut().enumerate() {
                    store_paired(values[2 * pair], values[2 * pair + 1], to);
                }
            }
        });
    }
}

/// A stretch of inputs: some units, with the weights of all panels to them.
struct Stretch<'a> {
    x: WideRows<'a>,
    units: Range<usize>,
    weights: &'a [bf16], // [panels, units, 16, 16, 2]
    panels: usize,
    sums: Sums,
}

impl Stretch<'_> {
    /// Adds the products of `BLOCKS` blocks of rows, from `block` on, with all panels to their sums, which begin with the first
    /// stretch.
    ///
    /// # Safety
    /// The registers are shaped for these blocks, and the sums have their places.
    unsafe fn blocks<const BLOCKS: usize>(&self, block: usize) {
        let WideRows { rows, groups, halves } = self.x;
        let rows_in = |block: usize| ROWS.min(rows - block * ROWS);
        let blocks = [block, block + BLOCKS - 1];
        let x = blocks.map(|block| {
            let at = block * ROWS * groups + self.units.start * rows_in(block);
            halves[at * GROUP..][..self.units.len() * rows_in(block) * GROUP].as_ptr()
        });
        let steps = blocks.map(|block| rows_in(block) * GROUP * size_of::<bf16>());
        let weights = |panel: usize| {
            self.weights[panel * self.units.len() * UNIT..][..self.units.len() * UNIT].as_ptr()
        };
        for panel in (0..self.panels).step_by(2) {
            let next = (panel + 1).min(self.panels - 1);
            let Sums { start, row_step, panel_step } = self.sums;
            let sums =
                |panel: usize, block: usize| start.wrapping_add(panel * panel_step + block * ROWS * row_step);
            let product = Product {
                units: self.units.len(),
                x,
                steps,
                w: [weights(panel), weights(next)],
                sums: [
                    sums(panel, blocks[0]),
                    sums(next, blocks[0]),
                    sums(panel, blocks[1]),
                    sums(next, blocks[1]),
                ],
                sums_step: row_step * size_of::<f32>(),
            };
            // SAFETY: the slices above hold what the shapes let be read, and the caller vouches for the sums.
            unsafe { product.run((BLOCKS, next - panel + 1), self.units.start == 0) };
        }
    }
}
