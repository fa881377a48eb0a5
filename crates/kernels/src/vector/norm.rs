//! Root-mean-square normalization of one row.

use super::{LANES, Simd, VectorKernel};
use crate::reference::norm::RmsNorm;

impl VectorKernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mean = sum_of_squares(simd, self.x) / self.x.len() as f32;
        let scale = simd.splat(1.0 / (mean + self.eps).sqrt());
        let (x, x_rest) = self.x.as_chunks::<LANES>();
        let (weight, weight_rest) = self.weight.as_chunks::<LANES>();
        let (out, out_rest) = self.out.as_chunks_mut::<LANES>();
        for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
            simd.store(simd.mul(simd.mul(simd.load(x), scale), simd.load(weight)), out);
        }
        let rest = simd.mul(simd.mul(simd.load_some(x_rest), scale), simd.load_some(weight_rest));
        simd.store_some(rest, out_rest);
    }
}

/// In four partial sums, so that an addition need not wait for the one before it.
#[inline(always)]
fn sum_of_squares<S: Simd>(simd: S, x: &[f32]) -> f32 {
    let mut sums = [simd.splat(0.0); 4];
    let (fours, rest) = x.as_chunks::<{ 4 * LANES }>();
    for four in fours {
        for (sum, lanes) in sums.iter_mut().zip(four.as_chunks::<LANES>().0) {
            let lanes = simd.load(lanes);
            *sum = simd.mul_add(lanes, lanes, *sum);
        }
    }
    for (sum, lanes) in sums.iter_mut().zip(rest.chunks(LANES)) {
        let lanes = simd.load_some(lanes);
        *sum = simd.mul_add(lanes, lanes, *sum);
    }
    simd.sum(simd.add(simd.add(sums[0], sums[1]), simd.add(sums[2], sums[3])))
}
