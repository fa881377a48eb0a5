//! Float products of one panel with rows of activations: 256 inputs at a time are dequantized into the first-level cache and
//! multiplied with all rows.
//!
//! **Invariant:** a row's sums are those of each 256 inputs, even and odd inputs apart, added up in order; so they do not
//! depend on the rows beside it.

use std::arch::x86_64::*;
use std::ops::Range;

use super::Avx2;
use super::unpack::{for_each_unit, is_signed};
use crate::format::Format;
use crate::format::typed::{Quantized, by_format};
use crate::matmul::{BLOCK, Tile};
use crate::pack::{GROUP, PANEL, PackedMatrix, Panel};

impl Avx2 {
    /// `x` is `[rows, cols]`, `out` `[panels, rows, 16]`.
    pub fn product_exact(
        self,
        w: &PackedMatrix,
        panels: Range<usize>,
        x: &[f32],
        tile: &mut Tile,
        out: &mut [f32],
    ) {
        let rows = x.len() / w.cols();
        assert!(x.len() == rows * w.cols() && out.len() == panels.len() * rows * PANEL);
        let weights = tile.weights.at_least(BLOCK * PANEL);
        out.fill(0.0);
        for (panel, out) in panels.zip(out.chunks_exact_mut(rows * PANEL)) {
            // SAFETY: `self` proves the features.
            unsafe { product(&w.panel(panel), x, weights, out) };
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn product(panel: &Panel<'_>, x: &[f32], weights: &mut [f32], out: &mut [f32]) {
    for start in (0..panel.cols).step_by(BLOCK) {
        let weights = &mut weights[..BLOCK.min(panel.cols - start) * PANEL];
        unpack(panel, start, weights);
        all_rows(panel.cols, &x[start..], weights, out);
    }
}

/// The weights of the inputs from `start` on, `[inputs, 16]`.
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack(panel: &Panel<'_>, start: usize, weights: &mut [f32]) {
    let eights = weights.as_chunks_mut::<8>().0;
    match panel.format {
        Format::F32 => {
            for (from, to) in panel.codes[start * PANEL * 4..].as_chunks::<32>().0.iter().zip(eights) {
                // SAFETY: both have 32 bytes.
                unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_loadu_ps(from.as_ptr().cast())) };
            }
        }
        Format::F16 => {
            for (from, to) in panel.codes[start * PANEL * 2..].as_chunks::<16>().0.iter().zip(eights) {
                // SAFETY: 16 bytes of halves become eight floats.
                unsafe {
                    _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())))
                };
            }
        }
        Format::BF16 => {
            for (from, to) in panel.codes[start * PANEL * 2..].as_chunks::<16>().0.iter().zip(eights) {
                // SAFETY: 16 bytes of halves become eight floats.
                unsafe {
                    let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast()));
                    _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm256_slli_epi32::<16>(wide));
                }
            }
        }
        format => by_format!(format, F => dequantize::<F>(panel, start, weights.as_chunks_mut::<PANEL>().0)),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn dequantize<F: Quantized>(panel: &Panel<'_>, start: usize, weights: &mut [[f32; PANEL]]) {
    let first = start / GROUP;
    for_each_unit::<F>(panel, first..first + weights.len() / GROUP, |unit, codes, subs| {
        for (vector, codes) in codes.iter().enumerate() {
            let sub = subs[vector / 4];
            for (half, codes) in codes.iter().enumerate() {
                let shifted = [
                    *codes,
                    _mm256_srli_epi32::<8>(*codes),
                    _mm256_srli_epi32::<16>(*codes),
                    _mm256_srli_epi32::<24>(*codes),
                ];
                for (input, codes) in shifted.into_iter().enumerate() {
                    let value = _mm256_cvtepi32_ps(value_of::<F>(codes));
                    let weight = _mm256_fmsub_ps(value, sub.scale[half], sub.minimum[half]);
                    let to = &mut weights[(unit - first) * GROUP + vector * 4 + input][half * 8..][..8];
                    // SAFETY: the slice has eight floats.
                    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), weight) };
                }
            }
        }
    });
}

/// What the lowest byte of each lane stands for.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn value_of<F: Quantized>(codes: __m256i) -> __m256i {
    if is_signed::<F>() {
        return _mm256_srai_epi32::<24>(_mm256_slli_epi32::<24>(codes));
    }
    let code = _mm256_and_si256(codes, _mm256_set1_epi32(255));
    _mm256_sub_epi32(code, _mm256_set1_epi32(i32::from(F::SPEC.offset)))
}

/// Adds the product with the `weights` of some inputs to the sums of every row; `x` begins at the first row's first of them.
#[target_feature(enable = "avx2,fma,f16c")]
fn all_rows(stride: usize, x: &[f32], weights: &[f32], out: &mut [f32]) {
    let (weights, out) = (weights.as_chunks::<PANEL>().0, out.as_chunks_mut::<PANEL>().0);
    let mut row = 0;
    while row < out.len() {
        let (x, out) = (&x[row * stride..], &mut out[row..]);
        row += match out.len() {
            2.. => block::<2>(stride, x, weights, out),
            _ => block::<1>(stride, x, weights, out),
        };
    }
}

/// The first `ROWS` rows; returns their number.
#[target_feature(enable = "avx2,fma,f16c")]
fn block<const ROWS: usize>(
    stride: usize,
    x: &[f32],
    weights: &[[f32; PANEL]],
    out: &mut [[f32; PANEL]],
) -> usize {
    let x: [&[f32]; ROWS] = std::array::from_fn(|row| &x[row * stride..][..weights.len()]);
    let mut sums = [[[_mm256_setzero_ps(); 2]; 2]; ROWS]; // [row, even or odd, half]
    for (pair, weights) in weights.chunks(2).enumerate() {
        for (parity, weights) in weights.iter().enumerate() {
            // SAFETY: there are 16 weights.
            let weights =
                unsafe { [_mm256_loadu_ps(weights.as_ptr()), _mm256_loadu_ps(weights.as_ptr().add(8))] };
            for (sums, x) in sums.iter_mut().zip(x) {
                // SAFETY: `pair * 2 + parity` counts the weights, and each row was cut to their number.
                let x = _mm256_set1_ps(unsafe { *x.get_unchecked(pair * 2 + parity) });
                for (sum, weights) in sums[parity].iter_mut().zip(weights) {
                    *sum = _mm256_fmadd_ps(weights, x, *sum);
                }
            }
        }
    }
    for ([even, odd], out) in sums.into_iter().zip(out) {
        for ((even, odd), out) in even.into_iter().zip(odd).zip(out.as_chunks_mut::<8>().0) {
            // SAFETY: the array has eight sums.
            unsafe {
                let sum = _mm256_add_ps(_mm256_loadu_ps(out.as_ptr()), _mm256_add_ps(even, odd));
                _mm256_storeu_ps(out.as_mut_ptr(), sum);
            }
        }
    }
    ROWS
}
