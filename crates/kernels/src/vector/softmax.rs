//! Softmax of one row, and the step of it that attention shares.

use super::{LANES, Simd, VectorKernel, exp};
use crate::reference::softmax::Softmax;

impl VectorKernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let greatest = greatest(simd, self.row);
        let sum = exponentiate(simd, self.row, greatest);
        let scale = 1.0 / sum;
        self.row.iter_mut().for_each(|x| *x *= scale);
    }
}

/// The greatest number of a row, minus infinity where there is none.
#[inline(always)]
pub(crate) fn greatest<S: Simd>(simd: S, row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut greatest = simd.splat(f32::NEG_INFINITY);
    for lanes in chunks {
        greatest = simd.max(greatest, simd.load(lanes));
    }
    rest.iter().copied().fold(simd.greatest(greatest), f32::max)
}

/// Replaces each x by `e^(x - greatest)` and returns their sum.
#[inline(always)]
pub(crate) fn exponentiate<S: Simd>(simd: S, row: &mut [f32], greatest: f32) -> f32 {
    let greatest = simd.splat(greatest);
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    let mut sum = simd.splat(0.0);
    for lanes in chunks {
        let weights = exp::exp_below_overflow(simd, simd.sub(simd.load(lanes), greatest));
        sum = simd.add(sum, weights);
        simd.store(weights, lanes);
    }
    let weights = exp::exp_below_overflow(simd, simd.sub(simd.load_some(rest), greatest));
    simd.store_some(weights, rest);
    simd.sum(sum) + rest.iter().sum::<f32>()
}
