//! Activations to `i8`.

use super::Avx2;
use crate::activations::BlockMut;
use crate::reference::Reference;

impl Avx2 {
    pub fn quantize_row(self, x: &[f32], row: usize, to: &mut BlockMut<'_>) {
        Reference.quantize_row(x, row, to);
    }
}
