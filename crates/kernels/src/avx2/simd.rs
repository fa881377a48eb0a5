//! Sixteen `f32` lanes in two 256-bit registers.

use std::arch::x86_64::*;

use half::f16;

use super::Avx2;
use crate::vector::{LANES, Simd, VectorKernel};

/// An intrinsic of this folder's instruction set.
macro_rules! intrinsic {
    ($($call:tt)*) => {
        // SAFETY: an `Avx2` exists only where the machine has these instructions, and every method that uses this has one;
        // where a pointer is passed, it comes from a reference to at least as many bytes as the instruction touches.
        unsafe { $($call)* }
    };
}

/// Lanes 0 to 7, and 8 to 15.
#[derive(Clone, Copy)]
pub(crate) struct Pair(__m256, __m256);

/// The same intrinsic on both halves.
macro_rules! both {
    ($intrinsic:ident($($operand:ident),*)) => {
        intrinsic!(Pair($intrinsic($($operand.0),*), $intrinsic($($operand.1),*)))
    };
}

impl Simd for Avx2 {
    type F = Pair;

    const MANY_REGISTERS: bool = false;

    #[inline(always)]
    fn splat(self, value: f32) -> Pair {
        intrinsic!(Pair(_mm256_set1_ps(value), _mm256_set1_ps(value)))
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Pair {
        intrinsic!(Pair(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))))
    }

    #[inline(always)]
    fn load_f16(self, from: &[f16; LANES]) -> Pair {
        let from = from.as_ptr();
        intrinsic!(Pair(
            _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(from.add(8).cast())),
        ))
    }

    #[inline(always)]
    fn store(self, value: Pair, to: &mut [f32; LANES]) {
        intrinsic!(_mm256_storeu_ps(to.as_mut_ptr(), value.0));
        intrinsic!(_mm256_storeu_ps(to.as_mut_ptr().add(8), value.1));
    }

    #[inline(always)]
    fn add(self, a: Pair, b: Pair) -> Pair {
        both!(_mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: Pair, b: Pair) -> Pair {
        both!(_mm256_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: Pair, b: Pair) -> Pair {
        both!(_mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: Pair, b: Pair) -> Pair {
        both!(_mm256_div_ps(a, b))
    }

    #[inline(always)]
    fn mul_add(self, a: Pair, b: Pair, c: Pair) -> Pair {
        both!(_mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: Pair, b: Pair) -> Pair {
        both!(_mm256_max_ps(a, b))
    }

    #[inline(always)]
    fn scale_by_power(self, value: Pair, exponent: Pair) -> Pair {
        intrinsic!(Pair(scale_by_power(value.0, exponent.0), scale_by_power(value.1, exponent.1)))
    }

    #[inline(always)]
    fn select_less(self, a: Pair, b: Pair, yes: Pair, no: Pair) -> Pair {
        intrinsic!(Pair(
            _mm256_blendv_ps(no.0, yes.0, _mm256_cmp_ps::<_CMP_LT_OQ>(a.0, b.0)),
            _mm256_blendv_ps(no.1, yes.1, _mm256_cmp_ps::<_CMP_LT_OQ>(a.1, b.1)),
        ))
    }

    #[inline(always)]
    fn zero_where_less(self, a: Pair, b: Pair, value: Pair) -> Pair {
        intrinsic!(Pair(
            _mm256_and_ps(_mm256_cmp_ps::<_CMP_NLT_UQ>(a.0, b.0), value.0),
            _mm256_and_ps(_mm256_cmp_ps::<_CMP_NLT_UQ>(a.1, b.1), value.1),
        ))
    }

    #[inline(always)]
    fn sum(self, value: Pair) -> f32 {
        let mut lanes = [0.0; 8];
        intrinsic!(_mm256_storeu_ps(lanes.as_mut_ptr(), _mm256_add_ps(value.0, value.1)));
        let [a, b, c, d, e, f, g, h] = lanes;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }

    #[inline(always)]
    fn greatest(self, value: Pair) -> f32 {
        let mut lanes = [0.0; 8];
        intrinsic!(_mm256_storeu_ps(lanes.as_mut_ptr(), _mm256_max_ps(value.0, value.1)));
        lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    fn prefetch<T>(self, at: *const T) {
        intrinsic!(_mm_prefetch::<_MM_HINT_T0>(at.cast()))
    }

    #[inline(always)]
    fn run<K: VectorKernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn compiled<K: VectorKernel>(simd: Avx2, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: `self` proves that the machine has these features.
        unsafe { compiled(self, kernel) }
    }
}

/// Adds `exponent` to the exponent bits, which multiplies by that power of two while the result is normal.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn scale_by_power(value: __m256, exponent: __m256) -> __m256 {
    const MANTISSA_BITS: i32 = 23;
    intrinsic!({
        let shifted = _mm256_slli_epi32::<MANTISSA_BITS>(_mm256_cvtps_epi32(exponent));
        _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value), shifted))
    })
}
