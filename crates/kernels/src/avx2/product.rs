//! Products of one panel with rows of activations.

use std::ops::Range;

use super::Avx2;
use crate::matmul::{FastRows, Tile};
use crate::pack::PackedMatrix;
use crate::reference::Reference;

impl Avx2 {
    pub fn product_fast(
        self,
        w: &PackedMatrix,
        panels: Range<usize>,
        rows: FastRows<'_>,
        tile: &mut Tile,
        out: &mut [f32],
    ) {
        Reference.product_fast(w, panels, rows, tile, out);
    }

    pub fn product_exact(
        self,
        w: &PackedMatrix,
        panels: Range<usize>,
        x: &[f32],
        tile: &mut Tile,
        out: &mut [f32],
    ) {
        Reference.product_exact(w, panels, x, tile, out);
    }
}
