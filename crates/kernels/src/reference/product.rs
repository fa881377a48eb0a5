//! Products of one panel with rows of activations: what both precisions mean.

use std::ops::Range;

use super::Reference;
use crate::matmul::{BLOCK, FastRows, Tile};
use crate::pack::{GROUP, PANEL, PackedMatrix, Panel, VECTOR};

impl Reference {
    /// Integer products: for each sub-block, in order, the exact integer dot product of codes, then one fused
    /// multiply-add with both scales, and another one for the minimum.
    pub fn product_fast(
        self,
        w: &PackedMatrix,
        panels: Range<usize>,
        rows: FastRows<'_>,
        tile: &mut Tile,
        out: &mut [f32],
    ) {
        for (panel, out) in panels.zip(out.chunks_exact_mut(rows.x.rows * PANEL)) {
            self.panel_fast(&w.panel(panel), rows, tile, out);
        }
    }

    /// Float products, [`BLOCK`] inputs at a time.
    pub fn product_exact(
        self,
        w: &PackedMatrix,
        panels: Range<usize>,
        x: &[f32],
        tile: &mut Tile,
        out: &mut [f32],
    ) {
        for (panel, out) in panels.zip(out.chunks_exact_mut(x.len() / w.cols() * PANEL)) {
            self.panel_exact(&w.panel(panel), x, tile, out);
        }
    }

    fn panel_fast(self, panel: &Panel<'_>, rows: FastRows<'_>, tile: &mut Tile, out: &mut [f32]) {
        self.unpack(panel, tile);
        let sub_len = panel.spec.scales.sub_len();
        let (subs, subs_in_group) = (panel.cols / sub_len, GROUP / sub_len);
        for (row, out) in out.as_chunks_mut::<PANEL>().0[..rows.x.rows].iter_mut().enumerate() {
            out.fill(0.0);
            for sub in 0..subs {
                let place = rows.x.place(row, sub / subs_in_group);
                let x = &rows.x.codes[place * GROUP + sub % subs_in_group * sub_len..][..sub_len];
                let codes = &tile.codes[sub * sub_len * PANEL..][..sub_len * PANEL];
                let correction = place * subs_in_group + sub % subs_in_group;
                let dots = dots(codes, x, rows.starts[correction]);
                let x_scale = rows.x.scales[place];
                let (scales, minimums) = (&tile.scales[sub * PANEL..], &tile.minimums[sub * PANEL..]);
                for lane in 0..PANEL {
                    out[lane] = (dots[lane] as f32).mul_add(scales[lane] * x_scale, out[lane]);
                    if let Some(sum) = rows.sums.get(correction) {
                        out[lane] = (-minimums[lane]).mul_add(*sum, out[lane]);
                    }
                }
            }
        }
    }

    fn panel_exact(self, panel: &Panel<'_>, x: &[f32], tile: &mut Tile, out: &mut [f32]) {
        out.fill(0.0);
        for start in (0..panel.cols).step_by(BLOCK) {
            let inputs = BLOCK.min(panel.cols - start);
            let weights = &mut tile.weights.at_least(BLOCK * PANEL)[..inputs * PANEL];
            self.unpack_weights(panel, start, weights);
            for (x, out) in x.chunks_exact(panel.cols).zip(out.as_chunks_mut::<PANEL>().0) {
                let mut sums = [0.0; PANEL];
                for (x, weights) in x[start..][..inputs].iter().zip(weights.as_chunks::<PANEL>().0) {
                    for (sum, weight) in sums.iter_mut().zip(weights) {
                        *sum += x * weight;
                    }
                }
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out += sum;
                }
            }
        }
    }
}

/// `start` plus the dot product of 16 outputs' codes with one row's, in integers.
fn dots(codes: &[u8], x: &[i8], start: i32) -> [i32; PANEL] {
    let mut dots = [start; PANEL];
    for (vector, x) in codes.as_chunks::<VECTOR>().0.iter().zip(x.as_chunks::<4>().0) {
        for (dot, codes) in dots.iter_mut().zip(vector.as_chunks::<4>().0) {
            *dot += codes.iter().zip(x).map(|(&code, &x)| i32::from(code) * i32::from(x)).sum::<i32>();
        }
    }
    dots
}
