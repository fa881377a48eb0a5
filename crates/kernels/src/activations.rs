//! The inputs of a product, prepared once and used by several products over the same input.
//!
//! In [`Precision::Fast`] each row is rounded to `i8` in groups of 32 inputs, `x ~ scale * code` with `scale = max|x| / 127`,
//! so that an input's error is at most half a scale: 1/254 of the largest magnitude in its group. In [`Precision::Exact`] the
//! floats are kept as they are.
//!
//! On a machine with matrix tiles a row can also be rounded *wide*, to bf16: tiles multiply those at half the speed of bytes, but
//! bytes need a scale for every 32 inputs and bf16 needs none, and its error is a fraction of theirs. Which rows are wide is
//! the caller's to say, row by row, so that a row's result never depends on the rows it is computed with.
//!
//! Rows stand together in blocks of [`ROWS`]: within a block the groups follow each other, and for each group its rows. So a
//! product that takes several rows at once reads one stream, and a last block of fewer rows, a single row above all, has no gaps.
//!
//! **Invariant:** a group that holds a NaN or an infinity has a NaN scale, so that it shows in every output of its row and is
//! never rounded away. A group of nothing but zeros, or of magnitudes under [`TINY`], is zero.

use std::ops::Range;

use half::bf16;

use crate::detect::dispatch;
use crate::disjoint::Disjoint;
use crate::kernels::{Kernels, Precision};
use crate::memory::Memory;
use crate::pack::GROUP;

/// Below this a group counts as zero; the reciprocal of its scale would overflow. It is 2^-100.
pub(crate) const TINY: f32 = f32::from_bits((127 - 100) << 23);

/// Inputs under one sum of codes: sums correct for offsets and minimums, whose sub-blocks may be as short as this.
pub(crate) const SUM: usize = 16;

/// Rows in one block; the last block may have fewer.
pub(crate) const ROWS: usize = 16;

/// Rows are quantized in parallel from this many inputs on; below that waking the threads costs more.
const PARALLEL_FROM: usize = 16 * 1024;

/// Prepared inputs, `[rows, cols]`. The buffers are kept from one use to the next.
#[derive(Debug, Default)]
pub struct Activations {
    rows: usize,
    cols: usize,
    keep_floats: bool,
    has_codes: bool,
    has_floats: bool,
    narrow: Vec<usize>,   // the rows that are rounded to bytes, in order
    codes: Vec<i8>,       // [block, group, row, 32], of the narrow rows; zeros beyond `cols`
    scales: Vec<f32>,     // [block, group, row]
    sums: Vec<i32>,       // [block, group, row, 2]
    wide: Vec<usize>,     // the rows that are rounded to bf16, in order
    halves: Memory<bf16>, // [block, group, row, 32], of the wide rows; zeros beyond `cols`
    floats: Vec<f32>,     // [rows, cols]
}

/// Some rows, from the first row of a block on, in the form that the integer products read.
#[derive(Clone, Copy)]
pub(crate) struct CodeRows<'a> {
    pub rows: usize,
    pub groups: usize,
    pub codes: &'a [i8],   // [block, group, row, 32]
    pub scales: &'a [f32], // [block, group, row]
    pub sums: &'a [i32],   // [block, group, row, 2]
}

/// Some wide rows, from the first row of a block on.
#[derive(Clone, Copy)]
pub(crate) struct WideRows<'a> {
    pub rows: usize,
    pub groups: usize,
    pub halves: &'a [bf16], // [block, group, row, 32]
}

/// One block of rows, to be written.
pub(crate) struct BlockMut<'a> {
    pub rows: usize,
    pub codes: &'a mut [i8],   // [group, row, 32]
    pub scales: &'a mut [f32], // [group, row]
    pub sums: &'a mut [i32],   // [group, row, 2]
}

impl CodeRows<'_> {
    /// Rows in the block that `row` is in.
    pub fn block_rows(&self, row: usize) -> usize {
        ROWS.min(self.rows - row / ROWS * ROWS)
    }

    /// Where a row's `group` stands, counted in groups.
    pub fn place(&self, row: usize, group: usize) -> usize {
        row / ROWS * ROWS * self.groups + group * self.block_rows(row) + row % ROWS
    }
}

impl Activations {
    pub fn new() -> Activations {
        Activations::default()
    }

    /// Keeps the floats beside the codes also in [`Precision::Fast`], for products with weights that are floats themselves.
    /// Without them such products take the rounded inputs, as all others do.
    pub fn with_floats() -> Activations {
        Activations { keep_floats: true, ..Activations::default() }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub(crate) fn code_rows(&self, rows: Range<usize>) -> CodeRows<'_> {
        assert!(self.has_codes, "the activations were prepared by a handle of another precision");
        let whole = rows.end.is_multiple_of(ROWS) || rows.end == self.narrow.len();
        assert!(rows.start.is_multiple_of(ROWS) && whole, "rows are taken in whole blocks");
        let groups = self.cols.div_ceil(GROUP);
        CodeRows {
            rows: rows.len(),
            groups,
            codes: &self.codes[rows.start * groups * GROUP..rows.end * groups * GROUP],
            scales: &self.scales[rows.start * groups..rows.end * groups],
            sums: &self.sums[rows.start * groups * 2..rows.end * groups * 2],
        }
    }

    pub(crate) fn wide_rows(&self, rows: Range<usize>) -> WideRows<'_> {
        let whole = rows.end.is_multiple_of(ROWS) || rows.end == self.wide.len();
        assert!(rows.start.is_multiple_of(ROWS) && whole, "rows are taken in whole blocks");
        let groups = self.cols.div_ceil(GROUP);
        let halves = &self.halves[rows.start * groups * GROUP..rows.end * groups * GROUP];
        WideRows { rows: rows.len(), groups, halves }
    }

    /// The rows that are rounded to bytes.
    pub(crate) fn narrow(&self) -> &[usize] {
        &self.narrow
    }

    /// The rows that are rounded to bf16.
    pub(crate) fn wide(&self) -> &[usize] {
        &self.wide
    }

    /// `[rows, cols]`, `None` where only the codes were kept.
    pub(crate) fn float_rows(&self, rows: Range<usize>) -> Option<&[f32]> {
        self.has_floats.then(|| &self.floats[rows.start * self.cols..rows.end * self.cols])
    }
}

impl Activations {
    /// What rounding took from each of the rows: `x` less what the codes stand for, to `residue`, `[rows, cols]`.
    fn residue_of(&self, x: &[f32], residue: &mut [f32]) {
        let codes = self.code_rows(0..self.rows);
        for row in 0..self.rows {
            let row_of = row * self.cols..(row + 1) * self.cols;
            let groups = x[row_of.clone()].chunks(GROUP).zip(residue[row_of].chunks_mut(GROUP));
            for (group, (x, residue)) in groups.enumerate() {
                let place = codes.place(row, group);
                let scale = codes.scales[place];
                let rounded = &codes.codes[place * GROUP..][..x.len()];
                for ((residue, x), code) in residue.iter_mut().zip(x).zip(rounded) {
                    *residue = x - scale * f32::from(*code);
                }
            }
        }
    }
}

impl Kernels {
    /// Prepares `x`, `[rows, cols]`, as `2 * rows` rows: each row, then for each what rounding took from it. The product of a
    /// row is then the sum of two rows of the result, and as exact as 15 bits make it. Where nothing is rounded, the second
    /// half is zero.
    pub fn quantize_finely(&self, x: &[f32], rows: usize, cols: usize, into: &mut Activations) {
        let mut doubled = vec![0.0; 2 * x.len()]; // [2 * rows, cols]
        doubled[..x.len()].copy_from_slice(x);
        if self.precision == Precision::Fast {
            self.quantize(x, rows, cols, into);
            into.residue_of(x, &mut doubled[x.len()..]);
        }
        self.quantize(&doubled, 2 * rows, cols, into);
    }

    /// Prepares `x`, `[rows, cols]`, for products. Panics when its length is another.
    pub fn quantize(&self, x: &[f32], rows: usize, cols: usize, into: &mut Activations) {
        self.prepare(x, (rows, cols), |_| false, into);
    }

    /// The same, where the rows with true in `wide` are rounded to bf16 if this handle's products can use that.
    pub fn quantize_as(&self, x: &[f32], cols: usize, wide: &[bool], into: &mut Activations) {
        let tiles = self.has_wide_rows();
        self.prepare(x, (wide.len(), cols), |row| tiles && wide[row], into);
    }

    /// Whether rows can be wide at all.
    pub fn has_wide_rows(&self) -> bool {
        self.precision == Precision::Fast && self.backend.has_wide_products()
    }

    fn prepare(
        &self,
        x: &[f32],
        (rows, cols): (usize, usize),
        is_wide: impl Fn(usize) -> bool,
        into: &mut Activations,
    ) {
        assert_eq!(x.len(), rows * cols, "activations are [{rows}, {cols}]");
        (into.rows, into.cols) = (rows, cols);
        into.has_codes = self.precision == Precision::Fast;
        into.has_floats = into.keep_floats || !into.has_codes;
        into.narrow.clear();
        into.wide.clear();
        if into.has_floats {
            into.floats.clear();
            into.floats.extend_from_slice(x);
        }
        if into.has_codes && cols > 0 {
            into.narrow.extend((0..rows).filter(|row| !is_wide(*row)));
            into.wide.extend((0..rows).filter(|row| is_wide(*row)));
            self.quantize_narrow(x, into);
            self.quantize_wide(x, into);
        }
    }

    fn quantize_narrow(&self, x: &[f32], into: &mut Activations) {
        let (rows, cols) = (into.narrow.len(), into.cols);
        let groups = cols.div_ceil(GROUP);
        into.codes.resize(rows * groups * GROUP, 0);
        into.scales.resize(rows * groups, 0.0);
        into.sums.resize(rows * groups * 2, 0);
        let codes = Disjoint::new(&mut into.codes);
        let (scales, sums) = (Disjoint::new(&mut into.scales), Disjoint::new(&mut into.sums));
        let from = &into.narrow;
        self.for_each_block(rows, cols, &|block_rows| {
            let places = block_rows.start * groups..block_rows.end * groups;
            // SAFETY: each block is claimed once, and blocks do not overlap.
            let mut to = unsafe {
                BlockMut {
                    rows: block_rows.len(),
                    codes: codes.part(places.start * GROUP..places.end * GROUP),
                    scales: scales.part(places.clone()),
                    sums: sums.part(places.start * 2..places.end * 2),
                }
            };
            for (index, row) in from[block_rows].iter().enumerate() {
                let x = &x[row * cols..(row + 1) * cols];
                dispatch!(self.backend, isa => isa.quantize_row(x, index, &mut to));
            }
        });
    }

    fn quantize_wide(&self, x: &[f32], into: &mut Activations) {
        let (rows, cols) = (into.wide.len(), into.cols);
        let groups = cols.div_ceil(GROUP);
        let halves = Disjoint::new(into.halves.at_least(rows * groups * GROUP));
        let from = &into.wide;
        self.for_each_block(rows, cols, &|block_rows| {
            // SAFETY: each block is claimed once, and blocks do not overlap.
            let to =
                unsafe { halves.part(block_rows.start * groups * GROUP..block_rows.end * groups * GROUP) };
            let count = block_rows.len();
            for (index, row) in from[block_rows].iter().enumerate() {
                self.backend.round_wide(&x[row * cols..(row + 1) * cols], (index, count), to);
            }
        });
    }

    /// Calls `work` with the rows of each block, on all threads if that pays.
    fn for_each_block(&self, rows: usize, cols: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
        let block = |block: usize| work(block * ROWS..rows.min((block + 1) * ROWS));
        if rows * cols < PARALLEL_FROM {
            (0..rows.div_ceil(ROWS)).for_each(block);
        } else {
            self.pool.for_each(rows.div_ceil(ROWS), &block);
        }
    }
}
