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

/// Where some rows' inputs to one unit stand, one row's beside the next.
#[derive(Clone, Copy)]
struct Place {
    codes: *const i8,   // [ROWS, 32]
    scales: *const f32, // [ROWS]
    starts: *const i32, // [ROWS, SUBS]
    sums: *const f32,   // [ROWS, SUBS] where there are minimums
}

/// The place of the first unit for the rows from `row` on.
fn place(rows: &FastRows<'_>, row: usize, subs: usize) -> Place {
    let place = rows.x.place(row, 0);
    Place {
        codes: rows.x.codes[place * GROUP..].as_ptr(),
        scales: rows.x.scales[place..].as_ptr(),
        starts: rows.starts[place * subs..].as_ptr(),
        sums: rows.sums.as_ptr().wrapping_add(place * subs),
    }
}

impl Place {
    /// The place `groups` further on, one past the end at most.
    #[inline]
    fn skip(self, groups: usize, subs: usize) -> Place {
        Place {
            codes: self.codes.wrapping_add(groups * GROUP),
            scales: self.scales.wrapping_add(groups),
            starts: self.starts.wrapping_add(groups * subs),
            sums: self.sums.wrapping_add(groups * subs),
        }
    }
}

/// Adds one unit's products with some rows to their sums of 16 outputs.
///
/// Dot products of different rows alternate: each one waits for the last of its own, and the others fill the wait.
///
/// # Safety
/// `place` has so many rows, of a format with `SUBS` sub-blocks in a unit and minimums as `MIN` says.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn add_unit<const ROWS: usize, const SUBS: usize, const MIN: bool>(
    sums: &mut [__m512; ROWS],
    codes: [__m512i; 8],
    subs: [Sub; 2],
    place: Place,
) {
    // SAFETY: all reads lie inside the place, which the caller vouches for; inputs are read four at a time.
    unsafe {
        let x = place.codes.cast::<i32>();
        for (sub, of) in subs.into_iter().enumerate().take(SUBS) {
            let mut dots: [__m512i; ROWS] =
                std::array::from_fn(|row| _mm512_set1_epi32(*place.starts.add(row * SUBS + sub)));
            for (vector, codes) in codes.into_iter().enumerate().skip(sub * 8 / SUBS).take(8 / SUBS) {
                for (row, dots) in dots.iter_mut().enumerate() {
                    let x = x.add(row * GROUP / 4 + vector).read_unaligned();
                    *dots = _mm512_dpbusd_epi32(*dots, codes, _mm512_set1_epi32(x));
                }
            }
            for (row, (sum, dots)) in sums.iter_mut().zip(dots).enumerate() {
                let scale = _mm512_mul_ps(of.scale, _mm512_set1_ps(*place.scales.add(row)));
                *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scale, *sum);
                if MIN {
                    let x_sum = _mm512_set1_ps(*place.sums.add(row * SUBS + sub));
                    *sum = _mm512_fnmadd_ps(of.minimum, x_sum, *sum);
                }
            }
        }
    }
}

/// # Safety
/// The lengths in `rows` fit the panel, as [`Avx512::product_fast`] checks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn one_row<F: Quantized>(panel: &Panel<'_>, rows: FastRows<'_>, out: &mut [f32]) {
    let subs = const { GROUP / F::SPEC.scales.sub_len() };
    let start = place(&rows, 0, subs);
    let mut sums = [_mm512_setzero_ps()];
    for_each_unit::<F>(panel, |unit, codes, subs_of| {
        // SAFETY: a panel has as many units as the row has groups.
        unsafe {
            let place = start.skip(unit, subs);
            match (subs, F::SPEC.scales.has_minimums()) {
                (2, true) => add_unit::<1, 2, true>(&mut sums, codes, subs_of, place),
                (2, false) => add_unit::<1, 2, false>(&mut sums, codes, subs_of, place),
                (_, true) => add_unit::<1, 1, true>(&mut sums, codes, subs_of, place),
                (_, false) => add_unit::<1, 1, false>(&mut sums, codes, subs_of, place),
            }
        }
    });
    store(out, sums[0]);
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
    let (mut place, block_rows) = (place(rows, first, SUBS), rows.x.block_rows(first));
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
            add_unit::<ROWS, SUBS, MIN>(&mut sums, codes, subs, place);
        }
        place = place.skip(block_rows, SUBS);
    }
    for (sum, out) in sums.into_iter().zip(out.chunks_exact_mut(PANEL)) {
        store(out, sum);
    }
    ROWS
}
