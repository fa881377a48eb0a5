//! Products of one panel with rows of activations.

use super::Avx2;
use crate::matmul::{FastRows, Tile};
use crate::pack::Panel;
use crate::reference::Reference;

impl Avx2 {
    pub fn product_fast(self, panel: &Panel<'_>, rows: FastRows<'_>, tile: &mut Tile, out: &mut [f32]) {
        Reference.product_fast(panel, rows, tile, out);
    }

    pub fn product_exact(self, panel: &Panel<'_>, x: &[f32], tile: &mut Tile, out: &mut [f32]) {
        Reference.product_exact(panel, x, tile, out);
    }
}
