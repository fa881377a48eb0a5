//! Sixteen `f32` lanes in one 512-bit register.

use std::arch::x86_64::*;

use half::f16;

use super::Avx512;
use crate::vector::{LANES, Simd, VectorKernel};

/// An intrinsic of this folder's instruction set.
macro_rules! intrinsic {
    ($($call:tt)*) => {
        // SAFETY: an `Avx512` exists only where the machine has these instructions, and every method that uses this has one;
        // where a pointer is passed, it comes from a reference to at least as many bytes as the instruction touches.
        unsafe { $($call)* }
    };
}

impl Simd for Avx512 {
    type F = __m512;

    const MANY_REGISTERS: bool = true;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        intrinsic!(_mm512_set1_ps(value))
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m512 {
        intrinsic!(_mm512_loadu_ps(from.as_ptr()))
    }

    #[inline(always)]
    fn load_f16(self, from: &[f16; LANES]) -> __m512 {
        intrinsic!(_mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())))
    }

    #[inline(always)]
    fn store(self, value: __m512, to: &mut [f32; LANES]) {
        intrinsic!(_mm512_storeu_ps(to.as_mut_ptr(), value))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        intrinsic!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn scale_by_power(self, value: __m512, exponent: __m512) -> __m512 {
        intrinsic!(_mm512_scalef_ps(value, exponent))
    }

    #[inline(always)]
    fn select_less(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        intrinsic!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes))
    }

    #[inline(always)]
    fn zero_where_less(self, a: __m512, b: __m512, value: __m512) -> __m512 {
        intrinsic!(_mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(a, b), value))
    }

    #[inline(always)]
    fn sum(self, value: __m512) -> f32 {
        intrinsic!(_mm512_reduce_add_ps(value))
    }

    #[inline(always)]
    fn greatest(self, value: __m512) -> f32 {
        intrinsic!(_mm512_reduce_max_ps(value))
    }

    #[inline(always)]
    fn prefetch<T>(self, at: *const T) {
        intrinsic!(_mm_prefetch::<_MM_HINT_T0>(at.cast()))
    }

    #[inline(always)]
    fn load_some(self, from: &[f32]) -> __m512 {
        let mask = (1u32 << from.len().min(LANES)) - 1; // one bit per lane that is there
        intrinsic!(_mm512_maskz_loadu_ps(mask as u16, from.as_ptr()))
    }

    #[inline(always)]
    fn store_some(self, value: __m512, to: &mut [f32]) {
        let mask = (1u32 << to.len().min(LANES)) - 1;
        intrinsic!(_mm512_mask_storeu_ps(to.as_mut_ptr(), mask as u16, value))
    }

    #[inline(always)]
    fn run<K: VectorKernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
        fn compiled<K: VectorKernel>(simd: Avx512, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: `self` proves that the machine has these features.
        unsafe { compiled(self, kernel) }
    }
}
