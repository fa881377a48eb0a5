//! Float products of one panel with rows of activations: 256 inputs at a time are dequantized into the first-level cache and
//! multiplied with all rows.
//!
//! **Invariant:** a row's sums are those of each 256 inputs, even and odd inputs apart, added up in order; so they do not
//! depend on the rows beside it.

use std::arch::x86_64::*;
use std::ops::Range;

use super::Avx512;
use super::unpack::for_each_unit;
use crate::format::Format;
use crate::format::typed::{Quantized, by_format};
use crate::matmul::{BLOCK, Tile};
use crate::pack::{GROUP, PANEL, PackedMatrix, Panel};

impl Avx512 {
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

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn product(panel: &Panel<'_>, x: &[f32], weights: &mut [f32], out: &mut [f32]) {
    for start in (0..panel.cols).step_by(BLOCK) {
        let weights = &mut weights[..BLOCK.min(panel.cols - start) * PANEL];
        unpack(panel, start, weights);
        all_rows(panel.cols, &x[start..], weights, out);
    }
}

/// The weights of the inputs from `start` on, `[inputs, 16]`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn unpack(panel: &Panel<'_>, start: usize, weights: &mut [f32]) {
    let weights = weights.as_chunks_mut::<PANEL>().0;
    match panel.format {
        Format::F32 => {
            for (from, to) in panel.codes[start * PANEL * 4..].as_chunks::<64>().0.iter().zip(weights) {
                // SAFETY: both have 64 bytes.
                unsafe { _mm512_storeu_ps(to.as_mut_ptr(), _mm512_loadu_ps(from.as_ptr().cast())) };
            }
        }
        Format::F16 => {
            for (from, to) in panel.codes[start * PANEL * 2..].as_chunks::<32>().0.iter().zip(weights) {
                // SAFETY: 32 bytes of halves become 16 floats.
                unsafe {
                    _mm512_storeu_ps(
                        to.as_mut_ptr(),
                        _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())),
                    )
                };
            }
        }
        Format::BF16 => {
            for (from, to) in panel.codes[start * PANEL * 2..].as_chunks::<32>().0.iter().zip(weights) {
                // SAFETY: 32 bytes of halves become 16 floats.
                unsafe {
                    let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()));
                    _mm512_storeu_si512(to.as_mut_ptr().cast(), _mm512_slli_epi32::<16>(wide));
                }
            }
        }
        format => by_format!(format, F => dequantize::<F>(panel, start, weights)),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn dequantize<F: Quantized>(panel: &Panel<'_>, start: usize, weights: &mut [[f32; PANEL]]) {
    let offset = _mm512_set1_epi32(i32::from(F::SPEC.offset));
    let byte = _mm512_set1_epi32(255);
    let first = start / GROUP;
    for_each_unit::<F>(panel, first..first + weights.len() / GROUP, |unit, codes, subs| {
        for (vector, codes) in codes.into_iter().enumerate() {
            let sub = subs[vector / 4];
            let shifted = [
                codes,
                _mm512_srli_epi32::<8>(codes),
                _mm512_srli_epi32::<16>(codes),
                _mm512_srli_epi32::<24>(codes),
            ];
            for (input, codes) in shifted.into_iter().enumerate() {
                let value = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_and_si512(codes, byte), offset));
                let weight = _mm512_fmsub_ps(value, sub.scale, sub.minimum);
                let to = &mut weights[(unit - first) * GROUP + vector * 4 + input];
                // SAFETY: it has 16 floats.
                unsafe { _mm512_storeu_ps(to.as_mut_ptr(), weight) };
            }
        }
    });
}

/// Adds the product with the `weights` of some inputs to the sums of every row; `x` begins at the first row's first of them.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn all_rows(stride: usize, x: &[f32], weights: &[f32], out: &mut [f32]) {
    let (weights, out) = (weights.as_chunks::<PANEL>().0, out.as_chunks_mut::<PANEL>().0);
    let mut row = 0;
    while row < out.len() {
        let (x, out) = (&x[row * stride..], &mut out[row..]);
        row += match out.len() {
            8.. => block::<8>(stride, x, weights, out),
            4.. => block::<4>(stride, x, weights, out),
            2.. => block::<2>(stride, x, weights, out),
            _ => block::<1>(stride, x, weights, out),
        };
    }
}

/// The first `ROWS` rows; returns their number.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn block<const ROWS: usize>(
    stride: usize,
    x: &[f32],
    weights: &[[f32; PANEL]],
    out: &mut [[f32; PANEL]],
) -> usize {
    let x: [&[f32]; ROWS] = std::array::from_fn(|row| &x[row * stride..][..weights.len()]);
    let mut even = [_mm512_setzero_ps(); ROWS];
    let mut odd = [_mm512_setzero_ps(); ROWS];
    for (input, weights) in weights.chunks(2).enumerate() {
        for (parity, weights) in weights.iter().enumerate() {
            // SAFETY: there are 16 weights.
            let weights = unsafe { _mm512_loadu_ps(weights.as_ptr()) };
            let sums = if parity == 0 { &mut even } else { &mut odd };
            for (sum, x) in sums.iter_mut().zip(x) {
                // SAFETY: `input * 2 + parity` counts the weights, and each row was cut to their number.
                let x = unsafe { *x.get_unchecked(input * 2 + parity) };
                *sum = _mm512_fmadd_ps(weights, _mm512_set1_ps(x), *sum);
            }
        }
    }
    for ((even, odd), out) in even.into_iter().zip(odd).zip(out) {
        // SAFETY: a row has 16 sums.
        unsafe {
            let sum = _mm512_add_ps(_mm512_loadu_ps(out.as_ptr()), _mm512_add_ps(even, odd));
            _mm512_storeu_ps(out.as_mut_ptr(), sum);
        }
    }
    ROWS
}
