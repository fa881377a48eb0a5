//! Activations to `i8`.

use super::Avx2;
use crate::reference::Reference;

impl Avx2 {
    pub fn quantize_row(self, x: &[f32], codes: &mut [i8], scales: &mut [f32], sums: &mut [i32]) {
        Reference.quantize_row(x, codes, scales, sums);
    }
}
