//! Integer products of some panels with rows of quantized activations, by `vpdpbusd`.
//!
//! One row or two multiply units as they come out of the packed planes: they are bound by reading them. More rows first take
//! some units of some panels apart into a tile in the first-level cache, and go over it in blocks of rows.
//!
//! **Invariant:** both do the same float operations in the same order as the reference, so a row's bits are the same.

use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

use super::Avx512;
use super::unpack::{Sub, for_each_unit};
use crate::format::typed::{Quantized, by_format};
use crate::matmul::{FastRows, TOGETHER, Tile};
use crate::pack::{GROUP, PANEL, PackedMatrix};

/// Units taken apart at a time: those of four panels and their scales fill less than half a first-level cache of 48 KiB.
const UNITS: usize = 8;

/// Bytes of one unpacked unit.
const UNIT: usize = PANEL * GROUP;

impl Avx512 {
    /// `out` is `[panels, rows, 16]`.
    pub fn product_fast(
        self,
        w: &PackedMatrix,
        panels: Range<usize>,
        rows: FastRows<'_>,
        tile: &mut Tile,
        out: &mut [f32],
    ) {
        let spec = w.format().spec();
        let subs = w.cols() / spec.scales.sub_len();
        assert!(rows.x.groups == w.cols() / GROUP && out.len() == panels.len() * rows.x.rows * PANEL);
        assert!(rows.x.codes.len() == rows.x.rows * w.cols());
        assert!(rows.x.scales.len() == rows.x.rows * rows.x.groups);
        assert!(rows.starts.len() == rows.x.rows * subs);
        assert!(rows.sums.len() == if spec.scales.has_minimums() { rows.starts.len() } else { 0 });
        // SAFETY: `self` proves the features, and the lengths are checked.
        unsafe {
            match rows.x.rows {
                1 => by_format!(w.format(), F => few_rows::<F, 1>(w, panels, rows, out)),
                2 => by_format!(w.format(), F => few_rows::<F, 2>(w, panels, rows, out)),
                _ => many_rows(w, panels, rows, tile, out),
            }
        }
    }
}

/// # Safety
/// The lengths in `rows` fit the weights, as [`Avx512::product_fast`] checks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn many_rows(
    w: &PackedMatrix,
    panels: Range<usize>,
    rows: FastRows<'_>,
    tile: &mut Tile,
    out: &mut [f32],
) {
    let scales = w.format().spec().scales;
    out.fill(0.0);
    for first in (0..rows.x.groups).step_by(UNITS) {
        let units = first..rows.x.groups.min(first + UNITS);
        by_format!(w.format(), F => unpack::<F>(w, panels.clone(), units.clone(), tile));
        let ahead = Ahead::new(w, &panels, &units, rows.x.rows.div_ceil(8));
        // SAFETY: the caller's promise, and the tile now holds these units.
        unsafe {
            match (scales.sub_len(), scales.has_minimums()) {
                (GROUP, true) => all_rows::<1, true>(rows, units, tile, &ahead, out),
                (GROUP, false) => all_rows::<1, false>(rows, units, tile, &ahead, out),
                (_, true) => all_rows::<2, true>(rows, units, tile, &ahead, out),
                (_, false) => all_rows::<2, false>(rows, units, tile, &ahead, out),
            }
        }
    }
}

/// The packed units that will be taken apart after these. They are asked for a few lines at a time while these are multiplied:
/// all at once they would hold up everything else that waits for memory.
struct Ahead {
    panels: [[Lines; 2]; TOGETHER],
}

/// A stretch of memory that is asked for in steps.
#[derive(Clone, Copy)]
struct Lines {
    start: *const u8,
    count: usize,
    per_step: usize,
}

impl Ahead {
    fn new(w: &PackedMatrix, panels: &Range<usize>, units: &Range<usize>, steps: usize) -> Self {
        let groups = w.cols() / GROUP;
        let (first, units) = match units.end < groups {
            true => (panels.start, units.end..groups.min(units.end + UNITS)),
            false => (panels.end, 0..groups.min(UNITS)),
        };
        let lines = |bytes: &[u8]| {
            let bytes = &bytes[bytes.len() * units.start / groups..bytes.len() * units.end / groups];
            let count = bytes.len().div_ceil(64);
            Lines { start: bytes.as_ptr(), count, per_step: count.div_ceil(steps) }
        };
        let panels = std::array::from_fn(|panel| {
            let panel = (first + panel < w.panels()).then(|| w.panel(first + panel));
            panel.map_or([lines(&[]); 2], |panel| [lines(panel.codes), lines(panel.scales)])
        });
        Ahead { panels }
    }

    /// Asks for one step's share of one panel.
    #[inline]
    fn fetch(&self, panel: usize, step: usize) {
        for lines in &self.panels[panel] {
            let first = step * lines.per_step;
            for line in first..lines.count.min(first + lines.per_step) {
                // SAFETY: a prefetch has no effect that a program can see.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(lines.start.wrapping_add(line * 64).cast()) };
            }
        }
    }
}

/// Takes some units of some panels apart.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn unpack<F: Quantized>(w: &PackedMatrix, panels: Range<usize>, units: Range<usize>, tile: &mut Tile) {
    let subs = GROUP / F::SPEC.scales.sub_len();
    let codes = tile.codes.at_least(panels.len() * UNITS * UNIT);
    let scales = tile.scales.at_least(panels.len() * UNITS * subs * PANEL);
    let minimums = tile.minimums.at_least(panels.len() * UNITS * subs * PANEL);
    for (index, panel) in panels.enumerate() {
        for_each_unit::<F>(&w.panel(panel), units.clone(), |unit, codes_of, subs_of| {
            let unit = index * UNITS + unit - units.start;
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

/// The place of one unit for the rows from `row` on.
fn place(rows: &FastRows<'_>, row: usize, unit: usize, subs: usize) -> Place {
    let place = rows.x.place(row, unit);
    Place {
        codes: rows.x.codes[place * GROUP..].as_ptr(),
        scales: rows.x.scales[place..].as_ptr(),
        starts: rows.starts[place * subs..].as_ptr(),
        sums: rows.sums.as_ptr().wrapping_add(place * subs),
    }
}

impl Place {
    /// The same place. The compiler cannot see that, so it addresses with this pointer alone: seeing through, it would add the
    /// loop's counter in every instruction, which costs a dot product from memory a second slot of the front end.
    #[inline]
    #[expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is executed")]
    fn opaque(mut self) -> Place {
        // SAFETY: no instruction at all.
        unsafe {
            asm!("/* {} {} {} {} */", inout(reg) self.codes, inout(reg) self.scales, inout(reg) self.starts,
                inout(reg) self.sums, options(pure, nomem, nostack, preserves_flags));
        }
        self
    }

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
/// There are `ROWS` rows, and the lengths in them fit the weights, as [`Avx512::product_fast`] checks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn few_rows<F: Quantized, const ROWS: usize>(
    w: &PackedMatrix,
    panels: Range<usize>,
    rows: FastRows<'_>,
    out: &mut [f32],
) {
    let subs = const { GROUP / F::SPEC.scales.sub_len() };
    let start = place(&rows, 0, 0, subs);
    for (panel, out) in panels.zip(out.chunks_exact_mut(ROWS * PANEL)) {
        let mut sums = [_mm512_setzero_ps(); ROWS];
        for_each_unit::<F>(&w.panel(panel), 0..rows.x.groups, |unit, codes, subs_of| {
            let place = start.skip(unit * ROWS, subs);
            // SAFETY: a panel has as many units as each row has groups.
            unsafe {
                match (subs, F::SPEC.scales.has_minimums()) {
                    (2, true) => add_unit::<ROWS, 2, true>(&mut sums, codes, subs_of, place),
                    (2, false) => add_unit::<ROWS, 2, false>(&mut sums, codes, subs_of, place),
                    (_, true) => add_unit::<ROWS, 1, true>(&mut sums, codes, subs_of, place),
                    (_, false) => add_unit::<ROWS, 1, false>(&mut sums, codes, subs_of, place),
                }
            }
        });
        for (sum, out) in sums.into_iter().zip(out.chunks_exact_mut(PANEL)) {
            store(out, sum);
        }
    }
}

/// # Safety
/// The lengths in `rows` fit the weights, as [`Avx512::product_fast`] checks, and `tile` holds these `units` of all panels.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn all_rows<const SUBS: usize, const MIN: bool>(
    rows: FastRows<'_>,
    units: Range<usize>,
    tile: &Tile,
    ahead: &Ahead,
    out: &mut [f32],
) {
    let mut row = 0;
    while row < rows.x.rows {
        let (left, units) = (rows.x.rows - row, units.clone());
        // SAFETY: so many rows are left.
        row += unsafe {
            match left {
                8.. => block::<8, SUBS, MIN>(&rows, row, units, tile, ahead, out),
                4.. => block::<4, SUBS, MIN>(&rows, row, units, tile, ahead, out),
                2.. => block::<2, SUBS, MIN>(&rows, row, units, tile, ahead, out),
                _ => block::<1, SUBS, MIN>(&rows, row, units, tile, ahead, out),
            }
        };
    }
}

/// `ROWS` rows from `first` on, with all panels; returns their number.
///
/// # Safety
/// As for [`all_rows`], and there are so many rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn block<const ROWS: usize, const SUBS: usize, const MIN: bool>(
    rows: &FastRows<'_>,
    first: usize,
    units: Range<usize>,
    tile: &Tile,
    ahead: &Ahead,
    out: &mut [f32],
) -> usize {
    let (start, block_rows) = (place(rows, first, units.start, SUBS), rows.x.block_rows(first));
    let next = if first + ROWS < rows.x.rows { first + ROWS } else { first };
    let next = place(rows, next, units.start, SUBS);
    for (panel, out) in out.chunks_exact_mut(rows.x.rows * PANEL).enumerate() {
        ahead.fetch(panel, first / 8);
        let out = &mut out.as_chunks_mut::<PANEL>().0[first..][..ROWS];
        // SAFETY: each row has 16 sums.
        let mut sums: [__m512; ROWS] =
            std::array::from_fn(|row| unsafe { _mm512_loadu_ps(out[row].as_ptr()) });
        let mut place = start;
        // The next rows' inputs are four lines a unit, and each panel asks for its share of them.
        let mut next_codes = next.codes.wrapping_add(panel * 4 / TOGETHER * 64);
        let (mut next_floats, width) = match panel {
            0 => (next.scales, 1),
            1 => (next.starts.cast(), SUBS),
            _ => (next.sums, SUBS),
        };
        for unit in panel * UNITS..panel * UNITS + units.len() {
            // SAFETY: the tile holds these units of each panel, and each row has them.
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
                for line in 0..4 / TOGETHER {
                    _mm_prefetch::<_MM_HINT_T0>(next_codes.wrapping_add(line * 64));
                }
                _mm_prefetch::<_MM_HINT_T0>(next_floats.cast());
                add_unit::<ROWS, SUBS, MIN>(&mut sums, codes, subs, place.opaque());
            }
            place = place.skip(block_rows, SUBS);
            next_codes = next_codes.wrapping_add(block_rows * GROUP);
            next_floats = next_floats.wrapping_add(block_rows * width);
        }
        for (sum, out) in sums.into_iter().zip(out) {
            store(out, sum);
        }
    }
    ROWS
}
