//! Integer products of one panel with rows of quantized activations, by `vpdpbusd`.
//!
//! A single row multiplies units as they come out of the packed planes: it is bound by reading them. More rows first take
//! the panel apart into a tile in cache and then go over it in blocks of rows, each block loading a unit once.
//!
//! **Invariant:** both do the same float operations in the same order as the reference, so a row's bits are the same.

use std::arch::x86_64::*;

use super::Avx512;
use super::unpack::{Sub, for_each_unit};
use crate::format::typed::{Quantized, by_format};
use crate::matmul::{FastRows, Tile};
use crate::pack::{GROUP, PANEL, Panel};

/// Bytes of one unpacked unit.
const UNIT: usize = PANEL * GROUP;

impl Avx512 {
    /// `out` is `[rows, 16]`.
    pub fn product_fast(self, panel: &Panel<'_>, rows: FastRows<'_>, tile: &mut Tile, out: &mut [f32]) {
        let subs = panel.cols / panel.spec.scales.sub_len();
        assert!(rows.x.groups == panel.cols / GROUP && out.len() == rows.x.rows * PANEL);
        assert!(rows.x.codes.len() == rows.x.rows * panel.cols);
        assert!(rows.x.scales.len() == rows.x.rows * rows.x.groups);
        assert!(rows.starts.len() == rows.x.rows * subs);
        assert!(rows.sums.len() == if panel.spec.scales.has_minimums() { rows.starts.len() } else { 0 });
        // SAFETY: `self` proves the features, and the lengths are checked.
        unsafe { product(panel, rows, tile, out) }
    }
}

/// # Safety
/// The lengths in `rows` fit the panel, as [`Avx512::product_fast`] checks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn product(panel: &Panel<'_>, rows: FastRows<'_>, tile: &mut Tile, out: &mut [f32]) {
    if rows.x.rows == 1 {
        // SAFETY: the caller's promise.
        return unsafe { by_format!(panel.format, F => one_row::<F>(panel, rows, out)) };
    }
    by_format!(panel.format, F => unpack::<F>(panel, tile));
    // SAFETY: the caller's promise, and the tile now holds the whole panel.
    unsafe {
        match (panel.spec.scales.sub_len(), panel.spec.scales.has_minimums()) {
            (GROUP, true) => all_rows::<1, true>(rows, tile, out),
            (GROUP, false) => all_rows::<1, false>(rows, tile, out),
            (_, true) => all_rows::<2, true>(rows, tile, out),
            (_, false) => all_rows::<2, false>(rows, tile, out),
        }
    }
}

/// Takes a panel apart.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn unpack<F: Quantized>(panel: &Panel<'_>, tile: &mut Tile) {
    let (units, subs) = (panel.cols / GROUP, GROUP / F::SPEC.scales.sub_len());
    let codes = tile.codes.at_least(units * UNIT);
    let scales = tile.scales.at_least(units * subs * PANEL);
    let minimums = tile.minimums.at_least(units * subs * PANEL);
    for_each_unit::<F>(panel, |unit, codes_of, subs_of| {
        for (vector, to) in codes_of.iter().zip(codes[unit * UNIT..][..UNIT].chunks_exact_mut(64)) {
            // SAFETY: the chunk has 64 bytes.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), *vector) };
        }
        for (sub, of) in subs_of.iter().enumerate().take(subs) {
            let at = (unit * subs + sub) * PANEL;
            store(&mut scales[at..][..PANEL], of.scale);
            if F::SPEC.scales.has_minimums() {
                store(&mut minimums[at..][..PANEL], of.minimum);
            }
        }
    });
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn store(to: &mut [f32], value: __m512) {
    assert_eq!(to.len(), PANEL);
    // SAFETY: the slice has 16 floats.
    unsafe { _mm512_storeu_ps(to.as_mut_ptr(), value) };
}

/// One unit's place in one row of activations.
#[derive(Clone, Copy)]
struct Place {
    codes: *const i8,   // [32]
    scale: *const f32,  // [1]
    starts: *const i32, // [SUBS]
    sums: *const f32,   // [SUBS] where there are minimums
}

/// The place of a row's first unit.
fn place(rows: &FastRows<'_>, row: usize, subs: usize) -> Place {
    Place {
        codes: rows.x.codes[row * rows.x.groups * GROUP..].as_ptr(),
        scale: rows.x.scales[row * rows.x.groups..].as_ptr(),
        starts: rows.starts[row * rows.x.groups * subs..].as_ptr(),
        sums: rows.sums.as_ptr().wrapping_add(row * rows.x.groups * subs),
    }
}

impl Place {
    /// # Safety
    /// The row has such a unit.
    #[inline]
    unsafe fn unit(self, unit: usize, subs: usize) -> Place {
        // SAFETY: in bounds as the caller promises; `sums` may be empty and is not read then.
        unsafe {
            Place {
                codes: self.codes.add(unit * GROUP),
                scale: self.scale.add(unit),
                starts: self.starts.add(unit * subs),
                sums: self.sums.wrapping_add(unit * subs),
            }
        }
    }
}

/// Adds one unit's product with one row to the sums of 16 outputs.
///
/// # Safety
/// `place` is a unit of a row whose format has `SUBS` sub-blocks in a unit, and minimums as `MIN` says.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn add_unit<const SUBS: usize, const MIN: bool>(
    mut sum: __m512,
    codes: &[__m512i; 8],
    subs: &[Sub; 2],
    place: Place,
) -> __m512 {
    // SAFETY: all reads lie inside the unit's place, which the caller vouches for; inputs are read four at a time.
    unsafe {
        let x_scale = _mm512_set1_ps(*place.scale);
        for (sub, of) in subs.iter().enumerate().take(SUBS) {
            let mut dots = _mm512_set1_epi32(*place.starts.add(sub));
            for (vector, codes) in codes.iter().enumerate().skip(sub * 8 / SUBS).take(8 / SUBS) {
                let x = place.codes.cast::<i32>().add(vector).read_unaligned();
                dots = _mm512_dpbusd_epi32(dots, *codes, _mm512_set1_epi32(x));
            }
            sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_mul_ps(of.scale, x_scale), sum);
            if MIN {
                sum = _mm512_fnmadd_ps(of.minimum, _mm512_set1_ps(*place.sums.add(sub)), sum);
            }
        }
    }
    sum
}

/// # Safety
/// The lengths in `rows` fit the panel, as [`Avx512::product_fast`] checks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn one_row<F: Quantized>(panel: &Panel<'_>, rows: FastRows<'_>, out: &mut [f32]) {
    let subs = const { GROUP / F::SPEC.scales.sub_len() };
    let start = place(&rows, 0, subs);
    let mut sum = _mm512_setzero_ps();
    for_each_unit::<F>(panel, |unit, codes, subs_of| {
        // SAFETY: a panel has as many units as the row has groups.
        unsafe {
            let place = start.unit(unit, subs);
            sum = match (subs, F::SPEC.scales.has_minimums()) {
                (2, true) => add_unit::<2, true>(sum, &codes, &subs_of, place),
                (2, false) => add_unit::<2, false>(sum, &codes, &subs_of, place),
                (_, true) => add_unit::<1, true>(sum, &codes, &subs_of, place),
                (_, false) => add_unit::<1, false>(sum, &codes, &subs_of, place),
            };
        }
    });
    store(out, sum);
}

/// # Safety
/// The lengths in `rows` fit the panel that `tile` holds, as [`Avx512::product_fast`] checks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn all_rows<const SUBS: usize, const MIN: bool>(rows: FastRows<'_>, tile: &Tile, out: &mut [f32]) {
    let mut row = 0;
    while row < rows.x.rows {
        let (left, out) = (rows.x.rows - row, &mut out[row * PANEL..]);
        // SAFETY: so many rows are left.
        row += unsafe {
            match left {
                8.. => block::<8, SUBS, MIN>(&rows, row, tile, out),
                4.. => block::<4, SUBS, MIN>(&rows, row, tile, out),
                2.. => block::<2, SUBS, MIN>(&rows, row, tile, out),
                _ => block::<1, SUBS, MIN>(&rows, row, tile, out),
            }
        };
    }
}

/// `ROWS` rows from `first` on; returns their number.
///
/// # Safety
/// As for [`all_rows`], and there are so many rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn block<const ROWS: usize, const SUBS: usize, const MIN: bool>(
    rows: &FastRows<'_>,
    first: usize,
    tile: &Tile,
    out: &mut [f32],
) -> usize {
    let start: [Place; ROWS] = std::array::from_fn(|row| place(rows, first + row, SUBS));
    let mut sums = [_mm512_setzero_ps(); ROWS];
    for unit in 0..rows.x.groups {
        // SAFETY: the tile holds all units of the panel, and each row has as many groups.
        unsafe {
            let codes: *const __m512i = tile.codes.as_ptr().add(unit * UNIT).cast();
            let codes: [__m512i; 8] = std::array::from_fn(|vector| _mm512_load_si512(codes.add(vector)));
            let subs: [Sub; 2] = std::array::from_fn(|sub| {
                let at = (unit * SUBS + sub.min(SUBS - 1)) * PANEL;
                Sub {
                    scale: _mm512_load_ps(tile.scales.as_ptr().add(at)),
                    minimum: _mm512_load_ps(tile.minimums.as_ptr().add(at)),
                }
            });
            for (sum, start) in sums.iter_mut().zip(start) {
                *sum = add_unit::<SUBS, MIN>(*sum, &codes, &subs, start.unit(unit, SUBS));
            }
        }
    }
    for (sum, out) in sums.into_iter().zip(out.chunks_exact_mut(PANEL)) {
        store(out, sum);
    }
    ROWS
}
