//! Integer products of some panels with rows of quantized activations, by `vpmaddubsw`.
//!
//! A single row multiplies units as they come out of the packed planes. More rows first take some units of a panel apart into
//! a tile in the first-level cache, and go over it two rows at a time: more do not fit sixteen registers.
//!
//! **Invariant:** both do the same float operations in the same order as the reference, so a row's bits are the same.

use std::arch::x86_64::*;
use std::ops::Range;

use super::Avx2;
use super::unpack::{Sub, Unit, for_each_unit, is_signed};
use crate::format::Codes;
use crate::format::typed::{Quantized, by_format};
use crate::matmul::{FastRows, Tile};
use crate::pack::{GROUP, PANEL, PackedMatrix, Panel};

/// Units taken apart at a time: with their scales they fill half a first-level cache of 32 KiB.
const UNITS: usize = 24;

/// Bytes of one unpacked unit.
const UNIT: usize = PANEL * GROUP;

impl Avx2 {
    /// `out` is `[panels, rows, 16]`.
    pub fn product_fast(
        self,
        w: &PackedMatrix,
        panels: Range<usize>,
        rows: FastRows<'_>,
        tile: &mut Tile,
        out: &mut [f32],
    ) {
        assert!(rows.x.groups == w.cols() / GROUP && out.len() == panels.len() * rows.x.rows * PANEL);
        for (panel, out) in panels.zip(out.chunks_exact_mut(rows.x.rows * PANEL)) {
            let panel = w.panel(panel);
            // SAFETY: `self` proves the features.
            unsafe { by_format!(w.format(), F => product::<F>(&panel, rows, tile, out)) }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn product<F: Quantized>(panel: &Panel<'_>, rows: FastRows<'_>, tile: &mut Tile, out: &mut [f32]) {
    let sums = out.as_chunks_mut::<PANEL>().0;
    sums.fill([0.0; PANEL]);
    if let [sums] = sums {
        return for_each_unit::<F>(panel, 0..rows.x.groups, |unit, codes, subs| {
            add_unit::<F, 1>([sums], codes, subs, &rows, unit);
        });
    }
    for first in (0..rows.x.groups).step_by(UNITS) {
        let units = first..rows.x.groups.min(first + UNITS);
        unpack::<F>(panel, units.clone(), tile);
        for (pair, sums) in sums.chunks_mut(2).enumerate() {
            for unit in units.clone() {
                let (codes, subs) = unpacked::<F>(tile, unit - units.start);
                let place = rows.x.place(pair * 2, unit);
                match sums {
                    [first, second] => add_unit::<F, 2>([first, second], codes, subs, &rows, place),
                    [last] => add_unit::<F, 1>([last], codes, subs, &rows, place),
                    _ => unreachable!("rows go in pairs, and the last may be alone"),
                }
            }
        }
    }
}

/// Takes some units of a panel apart.
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack<F: Quantized>(panel: &Panel<'_>, units: Range<usize>, tile: &mut Tile) {
    let subs = GROUP / F::SPEC.scales.sub_len();
    let codes = tile.codes.at_least(UNITS * UNIT);
    let scales = tile.scales.at_least(UNITS * subs * PANEL);
    let minimums = tile.minimums.at_least(UNITS * subs * PANEL);
    for_each_unit::<F>(panel, units.clone(), |unit, codes_of, subs_of| {
        let unit = unit - units.start;
        let codes: *mut Unit = codes[unit * UNIT..][..UNIT].as_mut_ptr().cast();
        // SAFETY: the slice has the size of a unit, and at a multiple of it in the tile it has its alignment.
        unsafe { *codes = *codes_of };
        for (sub, of) in subs_of.iter().enumerate().take(subs) {
            let at = (unit * subs + sub) * PANEL;
            store(&mut scales[at..], of.scale);
            store(&mut minimums[at..], of.minimum);
        }
    });
}

/// A unit of the tile.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn unpacked<F: Quantized>(tile: &Tile, unit: usize) -> (&Unit, [Sub; 2]) {
    let codes: *const Unit = tile.codes[unit * UNIT..][..UNIT].as_ptr().cast();
    // SAFETY: the slice has the size of a unit, and at a multiple of it in the tile it has its alignment.
    let codes = unsafe { &*codes };
    let subs = GROUP / F::SPEC.scales.sub_len();
    let sub = |sub: usize| {
        let at = (unit * subs + sub) * PANEL;
        Sub { scale: load(&tile.scales[at..]), minimum: load(&tile.minimums[at..]) }
    };
    (codes, [sub(0), sub(subs - 1)])
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load(from: &[f32]) -> [__m256; 2] {
    let from = &from[..PANEL];
    // SAFETY: the slice has 16 floats.
    unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn store(to: &mut [f32], value: [__m256; 2]) {
    let to = &mut to[..PANEL];
    // SAFETY: the slice has 16 floats.
    unsafe {
        _mm256_storeu_ps(to.as_mut_ptr(), value[0]);
        _mm256_storeu_ps(to.as_mut_ptr().add(8), value[1]);
    }
}

/// How many products of code pairs with input pairs a signed 16-bit sum can hold.
const fn depth<F: Quantized>() -> usize {
    let largest = match (F::SPEC.codes, F::SPEC.table) {
        _ if is_signed::<F>() => 128,
        (_, Some(_)) => 28, // the largest in the table of MXFP4
        (Codes::Two, _) => 3,
        (Codes::Three, _) => 7,
        (Codes::Four, _) => 15,
        (Codes::Five, _) => 31,
        _ => 63,
    };
    let pairs = i16::MAX as usize / (2 * 127 * largest);
    if pairs < 4 { pairs } else { 4 } // so many vectors has the shorter kind of sub-block
}

/// Adds one unit's products with some rows to their sums of 16 outputs; the rows' inputs stand from `place` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_unit<F: Quantized, const ROWS: usize>(
    sums: [&mut [f32; PANEL]; ROWS],
    codes: &Unit,
    subs: [Sub; 2],
    rows: &FastRows<'_>,
    place: usize,
) {
    let count = const { GROUP / F::SPEC.scales.sub_len() };
    for (row, sums) in sums.into_iter().enumerate() {
        let place = place + row;
        let x = rows.x.codes[place * GROUP..][..GROUP].as_chunks::<4>().0;
        let x_scale = _mm256_set1_ps(rows.x.scales[place]);
        let mut all = load(sums);
        for (sub, of) in subs.iter().enumerate().take(count) {
            let vectors = sub * 8 / count..(sub + 1) * 8 / count;
            // Signed codes have their offset in them.
            let start = if is_signed::<F>() { 0 } else { rows.starts[place * count + sub] };
            let dots = dots::<F>(&codes[vectors.clone()], &x[vectors], start);
            for (half, sum) in all.iter_mut().enumerate() {
                let scale = _mm256_mul_ps(of.scale[half], x_scale);
                *sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[half]), scale, *sum);
                if F::SPEC.scales.has_minimums() {
                    let x_sum = _mm256_set1_ps(rows.sums[place * count + sub]);
                    *sum = _mm256_fnmadd_ps(of.minimum[half], x_sum, *sum);
                }
            }
        }
        store(sums, all);
    }
}

/// `start` plus the dot product of 16 outputs' codes with one row's, in integers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dots<F: Quantized>(codes: &[[__m256i; 2]], x: &[[i8; 4]], start: i32) -> [__m256i; 2] {
    let mut dots = [_mm256_set1_epi32(start); 2];
    let depth = const { depth::<F>() };
    for (codes, x) in codes.chunks(depth).zip(x.chunks(depth)) {
        let mut pairs = [_mm256_setzero_si256(); 2];
        for (codes, x) in codes.iter().zip(x) {
            let x = _mm256_set1_epi32(i32::from_le_bytes(x.map(|x| x as u8)));
            for (pairs, codes) in pairs.iter_mut().zip(codes) {
                let product = match is_signed::<F>() {
                    // The one operand is unsigned, so the codes' signs go to the inputs.
                    true => _mm256_maddubs_epi16(_mm256_abs_epi8(*codes), _mm256_sign_epi8(x, *codes)),
                    false => _mm256_maddubs_epi16(*codes, x),
                };
                *pairs = _mm256_add_epi16(*pairs, product);
            }
        }
        for (dots, pairs) in dots.iter_mut().zip(pairs) {
            *dots = _mm256_add_epi32(*dots, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
    }
    dots
}
