//! Activations to `i8`, 32 inputs at a time.

use std::arch::x86_64::*;

use super::Avx2;
use crate::activations::{BlockMut, TINY};
use crate::pack::GROUP;

impl Avx2 {
    /// One row of a block: codes of 32 inputs under one scale, and the codes' sums by 16. Inputs beyond the row's end count
    /// as zeros.
    pub fn quantize_row(self, x: &[f32], row: usize, to: &mut BlockMut<'_>) {
        // SAFETY: `self` proves the features.
        unsafe { quantize_row(x, row, to) }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn quantize_row(x: &[f32], row: usize, to: &mut BlockMut<'_>) {
    let (groups, rest) = x.as_chunks::<GROUP>();
    let mut last = [0.0; GROUP];
    last[..rest.len()].copy_from_slice(rest);
    let last = (!rest.is_empty()).then_some(&last);
    for (group, x) in groups.iter().chain(last).enumerate() {
        let place = group * to.rows + row;
        let x: [__m256; 4] = std::array::from_fn(|part| {
            // SAFETY: a group has 32 floats.
            unsafe { _mm256_loadu_ps(x.as_ptr().add(part * 8)) }
        });
        let (scale, inverse) = scales_of(x);
        to.scales[place] = scale;
        let codes = if inverse == 0.0 { _mm256_setzero_si256() } else { codes_of(x, inverse) };
        to.sums.as_chunks_mut::<2>().0[place] = sums_of(codes);
        let to = &mut to.codes.as_chunks_mut::<GROUP>().0[place];
        // SAFETY: a group is 32 bytes.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), codes) };
    }
}

/// The scale of a group and its reciprocal, which is zero where the codes are to be zeros.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scales_of(x: [__m256; 4]) -> (f32, f32) {
    // As integers the magnitudes keep their order, and NaN and infinity stand above all others.
    let [a, b, c, d] = x.map(|x| _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(i32::MAX)));
    let by_8 = _mm256_max_epi32(_mm256_max_epi32(a, b), _mm256_max_epi32(c, d));
    let by_4 = _mm_max_epi32(_mm256_castsi256_si128(by_8), _mm256_extracti128_si256::<1>(by_8));
    let by_2 = _mm_max_epi32(by_4, _mm_shuffle_epi32::<0b01_00_11_10>(by_4));
    let by_1 = _mm_max_epi32(by_2, _mm_shuffle_epi32::<0b10_11_00_01>(by_2));
    let largest = f32::from_bits(_mm_cvtsi128_si32(by_1) as u32);
    if !largest.is_finite() {
        (f32::NAN, 0.0)
    } else if largest < TINY {
        (0.0, 0.0)
    } else {
        (largest / 127.0, 127.0 / largest)
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn codes_of(x: [__m256; 4], inverse: f32) -> __m256i {
    let inverse = _mm256_set1_ps(inverse);
    let [a, b, c, d] = x.map(|x| _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse)));
    // Packing works within halves of a register, so four codes at a time are put in order afterwards.
    let mixed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

/// The sums of the first and the last 16 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sums_of(codes: __m256i) -> [i32; 2] {
    let by_2 = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    let by_4 = _mm256_madd_epi16(by_2, _mm256_set1_epi16(1));
    let by_8 = _mm256_add_epi32(by_4, _mm256_shuffle_epi32::<0b10_11_00_01>(by_4));
    let by_16 = _mm256_add_epi32(by_8, _mm256_shuffle_epi32::<0b01_00_11_10>(by_8));
    [_mm256_extract_epi32::<0>(by_16), _mm256_extract_epi32::<4>(by_16)]
}
