//! Activations to `i8`, 32 inputs at a time.

use std::arch::x86_64::*;

use super::Avx512;
use crate::activations::{BlockMut, TINY};
use crate::pack::GROUP;

impl Avx512 {
    /// One row of a block: codes of 32 inputs under one scale, and the codes' sums by 16. Inputs beyond the row's end count
    /// as zeros.
    pub fn quantize_row(self, x: &[f32], row: usize, to: &mut BlockMut<'_>) {
        // SAFETY: `self` proves the features.
        unsafe { quantize_row(x, row, to) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn quantize_row(x: &[f32], row: usize, to: &mut BlockMut<'_>) {
    for (group, x) in x.chunks(GROUP).enumerate() {
        let place = group * to.rows + row;
        let inputs = if x.len() == GROUP { u32::MAX } else { (1 << x.len()) - 1 };
        // SAFETY: the masks let through only the inputs that `x` has.
        let (low, high) = unsafe {
            let start = x.as_ptr();
            (
                _mm512_maskz_loadu_ps(inputs as u16, start),
                _mm512_maskz_loadu_ps((inputs >> 16) as u16, start.wrapping_add(16)),
            )
        };
        let (scale, inverse) = scales_of(low, high);
        to.scales[place] = scale;
        let low = _mm512_cvtps_epi32(_mm512_mul_ps(low, _mm512_set1_ps(inverse)));
        let high = _mm512_cvtps_epi32(_mm512_mul_ps(high, _mm512_set1_ps(inverse)));
        let both = if inverse == 0.0 { _mm256_setzero_si256() } else { narrow(low, high) };
        let codes = &mut to.codes.as_chunks_mut::<GROUP>().0[place];
        // SAFETY: a group is 32 bytes.
        unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), both) };
        to.sums.as_chunks_mut::<2>().0[place] = sums_of(both);
    }
}

/// The scale of a group and its reciprocal, which is zero where the codes are to be zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales_of(low: __m512, high: __m512) -> (f32, f32) {
    // As integers the magnitudes keep their order, and NaN and infinity stand above all others.
    let magnitude = _mm512_set1_epi32(i32::MAX);
    let low = _mm512_and_si512(_mm512_castps_si512(low), magnitude);
    let high = _mm512_and_si512(_mm512_castps_si512(high), magnitude);
    let largest = f32::from_bits(_mm512_reduce_max_epi32(_mm512_max_epi32(low, high)) as u32);
    if !largest.is_finite() {
        (f32::NAN, 0.0)
    } else if largest < TINY {
        (0.0, 0.0)
    } else {
        (largest / 127.0, 127.0 / largest)
    }
}

/// Small integers to bytes, in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn narrow(low: __m512i, high: __m512i) -> __m256i {
    _mm256_set_m128i(_mm512_cvtsepi32_epi8(high), _mm512_cvtsepi32_epi8(low))
}

/// The sums of the first and the last 16 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn sums_of(codes: __m256i) -> [i32; 2] {
    let by_4 = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), codes);
    let by_8 = _mm256_add_epi32(by_4, _mm256_shuffle_epi32::<0b10_11_00_01>(by_4));
    let by_16 = _mm256_add_epi32(by_8, _mm256_shuffle_epi32::<0b01_00_11_10>(by_8));
    [_mm256_extract_epi32::<0>(by_16), _mm256_extract_epi32::<4>(by_16)]
}
