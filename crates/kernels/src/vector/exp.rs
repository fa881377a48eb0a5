//! The exponential function, and what is made of it: the logistic function and the hyperbolic tangent.
//!
//! **Invariant:** `exp(0)` is exactly 1, and no result is denormal, because products with denormal numbers are slow.

use super::Simd;

/// Below this, `exp` is zero: its result would be within a whisker of the smallest normal number, 1.18e-38.
pub(crate) const EXP_UNDERFLOW: f32 = -87.3;
/// Above this, `exp` is infinite: 128 ln 2, where `f32` ends.
const EXP_OVERFLOW: f32 = 88.722_8;

/// `e^x` within [`EXP_ERROR`] relative error for `x` from [`EXP_UNDERFLOW`] to [`EXP_OVERFLOW`]; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::F) -> S::F {
    simd.select_less(simd.splat(EXP_OVERFLOW), x, simd.splat(f32::INFINITY), exp_below_overflow(simd, x))
}

/// [`exp`] for numbers that are known not to overflow, such as the differences from a maximum.
///
/// x = n ln 2 + r with a whole n and |r| <= ln 2 / 2, so e^x = 2^n e^r. For e^r stands 1 + r (1 + r p(r)), p of degree 4
/// fitted to the least relative error over that interval (3.1e-9 before rounding). ln 2 comes in two parts, the first with
/// so few bits that its product with n is exact.
#[inline(always)]
pub(crate) fn exp_below_overflow<S: Simd>(simd: S, x: S::F) -> S::F {
    /// Added to a number, this leaves no room for binary places: 1.5 * 2^23.
    const TO_WHOLE: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4; // 355 / 512
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const P: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_71, 0.001_381_461_3];

    let to_whole = simd.splat(TO_WHOLE);
    let n = simd.sub(simd.mul_add(x, simd.splat(std::f32::consts::LOG2_E), to_whole), to_whole);
    let r = simd.mul_add(n, simd.splat(-LN2_HIGH), x);
    let r = simd.mul_add(n, simd.splat(-LN2_LOW), r);
    let mut fraction = simd.splat(P[4]);
    for coefficient in [P[3], P[2], P[1], P[0], 1.0, 1.0] {
        fraction = simd.mul_add(fraction, r, simd.splat(coefficient));
    }
    simd.zero_where_less(x, simd.splat(EXP_UNDERFLOW), simd.scale_by_power(fraction, n))
}

/// The relative error of [`exp`] that the tests hold it to: less than two units in the last place of `f32`.
#[cfg(test)]
pub(crate) const EXP_ERROR: f64 = 1.5e-7;

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn logistic<S: Simd>(simd: S, x: S::F) -> S::F {
    let one = simd.splat(1.0);
    let negative = simd.sub(simd.splat(0.0), x);
    simd.div(one, simd.add(one, exp(simd, negative)))
}

/// The hyperbolic tangent as `2 logistic(2x) - 1`: within 3e-7 absolutely, not relatively near zero.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(simd: S, x: S::F) -> S::F {
    simd.mul_add(simd.splat(2.0), logistic(simd, simd.add(x, x)), simd.splat(-1.0))
}

/// `cap * tanh(x / cap)`: keeps a score within `-cap ..= cap`, nearly unchanged where it is small.
#[inline(always)]
pub(crate) fn softcap<S: Simd>(simd: S, x: S::F, cap: f32) -> S::F {
    simd.mul(simd.splat(cap), tanh(simd, simd.mul(x, simd.splat(1.0 / cap))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::{LANES, VectorKernel};
    use crate::{avx2::Avx2, avx512::Avx512};

    struct Apply<'a>(&'a mut [[f32; LANES]], Function);

    #[derive(Clone, Copy)]
    enum Function {
        Exp,
        Tanh,
    }

    impl VectorKernel for Apply<'_> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            for lanes in self.0 {
                let x = simd.load(lanes);
                let y = match self.1 {
                    Function::Exp => exp(simd, x),
                    Function::Tanh => tanh(simd, x),
                };
                simd.store(y, lanes);
            }
        }
    }

    /// Results of every available instruction set.
    fn apply(x: &[f32], function: Function) -> Vec<Vec<f32>> {
        let mut results = Vec::new();
        let mut padded = x.to_vec();
        padded.resize(x.len().next_multiple_of(LANES), 0.0);
        let mut collect = |run: &dyn Fn(Apply<'_>)| {
            let mut numbers = padded.clone();
            run(Apply(numbers.as_chunks_mut().0, function));
            numbers.truncate(x.len());
            results.push(numbers);
        };
        if let Some(isa) = Avx2::new() {
            collect(&|kernel| isa.run(kernel));
        }
        if let Some(isa) = Avx512::new() {
            collect(&|kernel| isa.run(kernel));
        }
        results
    }

    #[test]
    fn exp_stays_within_its_error_over_its_whole_range() {
        // Every 997th float between the limits, on both sides of zero.
        let bits = |from: f32, to: f32| (from.to_bits()..to.to_bits()).step_by(997).map(f32::from_bits);
        let x: Vec<f32> = bits(-1e-8, EXP_UNDERFLOW).chain(bits(1e-8, EXP_OVERFLOW)).collect();
        for results in apply(&x, Function::Exp) {
            for (&x, got) in x.iter().zip(results) {
                let expected = f64::from(x).exp();
                assert!(
                    (f64::from(got) / expected - 1.0).abs() < EXP_ERROR,
                    "exp({x}) is {expected}, not {got}"
                );
            }
        }
    }

    #[test]
    fn exp_is_exact_at_zero_and_well_behaved_beyond_its_range() {
        let x = [0.0, -0.0, -87.4, -1e30, f32::NEG_INFINITY, 88.8, 1e30, f32::INFINITY, f32::NAN];
        let infinity = f32::INFINITY;
        for results in apply(&x, Function::Exp) {
            assert_eq!(results[..8], [1.0, 1.0, 0.0, 0.0, 0.0, infinity, infinity, infinity]);
            assert!(results[8].is_nan());
        }
    }

    #[test]
    fn tanh_stays_within_its_absolute_error() {
        let x: Vec<f32> = (-20_000..=20_000).map(|i| i as f32 / 1000.0).collect();
        for results in apply(&x, Function::Tanh) {
            for (&x, got) in x.iter().zip(results) {
                assert!((f64::from(got) - f64::from(x).tanh()).abs() < 3e-7, "tanh({x}) is not {got}");
            }
        }
    }
}
