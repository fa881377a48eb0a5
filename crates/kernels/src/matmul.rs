//! Matrix products with packed weights: how one product is cut into tasks, and what a task needs.
//!
//! A task is a run of panels times a chunk of rows; threads claim tasks as they get free. Within a task a few panels at a time
//! are taken apart, a stretch of inputs at a time, and multiplied with all rows of the chunk.
//!
//! **Invariant:** an output element is computed by one task from one row and one panel, in an order of additions that
//! depends on the number of inputs alone. So neither rows, chunks nor threads can change a bit of it.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use half::bf16;

use crate::activations::{Activations, CodeRows, SUM, WideRows};
use crate::detect::dispatch;
use crate::disjoint::Disjoint;
use crate::format::{Codes, Spec};
use crate::kernels::{Kernels, Precision};
use crate::memory::Memory;
use crate::pack::{GROUP, PANEL, PackedMatrix};

/// Rows in one chunk: so many sums for a few panels fit a second-level cache, and each chunk reads the weights once more.
const CHUNK: usize = 512;

/// Tasks that each thread claims per product, about: enough to even out a thread that was held up.
const CLAIMS: usize = 16;

/// Panels that go over a chunk of rows together, so that a row's inputs are read from the first-level cache for most of them
/// and its outputs are written a few cache lines at a time.
pub(crate) const TOGETHER: usize = 4;

/// Panels that go over a chunk of wide rows together: each reads all of the rows' inputs, from the second-level cache or beyond.
const TOGETHER_WIDE: usize = 8;

/// The share of a product's panels that is cut into large tasks; the rest is cut into tasks of [`FINE`] panels.
const COARSE: (usize, usize) = (3, 4);
const FINE: usize = 2;

/// Inputs dequantized at a time by the exact product: 16 KiB of floats, half a first-level cache.
pub(crate) const BLOCK: usize = 256;

/// One thread's working memory.
#[derive(Default)]
pub(crate) struct Scratch {
    pub tile: Tile,
    corrections: Corrections,
    floats: Memory<f32>, // [chunk rows, cols], where only codes were kept
    out: Memory<f32>,    // [panels, chunk rows, 16]
}

/// Panels taken apart, or parts of them: one byte per code, one float per scale. How the bytes stand for the values is the instruction set's own.
#[derive(Default)]
pub(crate) struct Tile {
    pub codes: Memory<u8>,     // [panels, units, 8, 64]
    pub scales: Memory<f32>,   // [panels, subs, 16]
    pub minimums: Memory<f32>, // [panels, subs, 16]
    pub weights: Memory<f32>,  // [256, 16], for the exact product
    pub halves: Memory<bf16>,  // [panels, units, 16, 32], for wide rows
}

/// What the codes' offset and the minimums take away from a row's sums, by sub-block: `dot - offset * sum` in integers, and
/// `- minimum * (scale * sum)` in floats.
#[derive(Default)]
struct Corrections {
    kind: Option<Kind>,
    starts: Memory<i32>, // [block, group, row, subs in group]
    sums: Memory<f32>,   // [block, group, row, subs in group]
}

/// All that corrections depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    call: u64,
    first_row: usize,
    offset: u8,
    sub_len: usize,
    minimums: bool,
}

/// The rows of one integer product, with their corrections for the weights' format.
#[derive(Clone, Copy)]
pub(crate) struct FastRows<'a> {
    pub x: CodeRows<'a>,
    /// Where the integer sums begin, `[block, group, row, subs in group]`; zeros for formats without offset.
    pub starts: &'a [i32],
    /// Scaled sums of the inputs, in the same order; empty for formats without minimums.
    pub sums: &'a [f32],
}

/// Where sums go: those of a row and a panel are 16 floats in a line.
#[derive(Clone, Copy)]
pub(crate) struct Sums {
    pub start: *mut f32,
    /// Floats from a row to the next.
    pub row_step: usize,
    /// Floats from a panel to the next.
    pub panel_step: usize,
}

struct Task {
    /// Which call of [`Kernels::matmul_many`] it belongs to.
    call: u64,
    product: usize,
    panels: Range<usize>,
    of: RowsOf,
    rows: Range<usize>,
}

/// Which of the activations' rows a task counts in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowsOf {
    /// All, as floats.
    Floats,
    Narrow,
    Wide,
}

impl Kernels {
    /// `out[r, o] = sum_i x[r, i] * w[o, i]`, with `out` `[x.rows(), w.rows()]`. Panics when shapes do not fit.
    pub fn matmul(&self, w: &PackedMatrix, x: &Activations, out: &mut [f32]) {
        self.matmul_many(&mut [(w, out)], x);
    }

    /// Several products over one input in one fork and join, as for query, key and value or gate and up.
    pub fn matmul_many(&self, products: &mut [(&PackedMatrix, &mut [f32])], x: &Activations) {
        let products: Vec<(&PackedMatrix, Disjoint<'_, f32>)> = products
            .iter_mut()
            .map(|(w, out)| {
                assert_eq!(w.cols(), x.cols(), "the weights' inputs against the activations'");
                assert_eq!(out.len(), x.rows() * w.rows(), "the output is [{}, {}]", x.rows(), w.rows());
                (*w, Disjoint::new(out))
            })
            .collect();
        let matrices: Vec<&PackedMatrix> = products.iter().map(|(w, _)| *w).collect();
        let tasks = self.cut(self.calls.fetch_add(1, Ordering::Relaxed), &matrices, x);
        let next = AtomicUsize::new(0);
        let work = |thread: usize| {
            let mut scratch = self.scratch[thread].lock().unwrap_or_else(PoisonError::into_inner);
            while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (w, out) = &products[task.product];
                self.perform(task, w, x, out, &mut scratch);
            }
        };
        match tasks.len() {
            0 => {}
            1 => work(0),
            _ => self.pool.run(&work),
        }
    }

    fn perform(
        &self,
        task: &Task,
        w: &PackedMatrix,
        x: &Activations,
        out: &Disjoint<'_, f32>,
        scratch: &mut Scratch,
    ) {
        let Scratch { tile, corrections, floats, out: tile_out } = scratch;
        let (rows, cols) = (task.rows.len(), x.cols());
        let input = match task.of {
            RowsOf::Narrow => {
                let x = x.code_rows(task.rows.clone());
                Input::Narrow(corrections.prepare(task, w.format().spec(), x))
            }
            RowsOf::Wide => Input::Wide(x.wide_rows(task.rows.clone())),
            RowsOf::Floats => Input::Floats(match x.float_rows(task.rows.clone()) {
                Some(floats) => floats,
                None => {
                    assert!(x.wide().is_empty(), "weights of floats want the floats of wide rows kept");
                    expand(x.code_rows(task.rows.clone()), cols, floats.at_least(rows * cols))
                }
            }),
        };
        // Where wide rows follow each other in the output too, their products are written to it at once.
        let straight = match task.of {
            RowsOf::Wide => {
                let rows = &x.wide()[task.rows.clone()];
                (rows.last() == Some(&(rows[0] + rows.len() - 1))).then_some(rows[0])
            }
            _ => None,
        };
        let together = task.of.together();
        let tile_out = tile_out.at_least(together * rows * PANEL);
        for first in task.panels.clone().step_by(together) {
            let panels = first..task.panels.end.min(first + together);
            let outputs = first * PANEL..w.rows().min(panels.end * PANEL);
            if let Input::Wide(x) = input
                && let Some(row) = straight
                && panels.end * PANEL <= w.rows()
            {
                let start = out.as_mut_ptr().wrapping_add(row * w.rows() + outputs.start);
                let sums = Sums { start, row_step: w.rows(), panel_step: PANEL };
                // SAFETY: rows and panels lie within the output; tasks are claimed once, and no two share both a panel and a row.
                unsafe { self.backend.product_wide(w, panels, x, tile, sums) };
                continue;
            }
            let tile_out = &mut tile_out[..panels.len() * rows * PANEL];
            match input {
                Input::Narrow(x) => {
                    dispatch!(self.backend, isa => isa.product_fast(w, panels, x, tile, tile_out))
                }
                Input::Wide(x) => {
                    let start = tile_out.as_mut_ptr();
                    let sums = Sums { start, row_step: PANEL, panel_step: rows * PANEL };
                    // SAFETY: the slice is `[panels, rows, 16]`.
                    unsafe { self.backend.product_wide(w, panels, x, tile, sums) }
                }
                Input::Floats(x) => {
                    dispatch!(self.backend, isa => isa.product_exact(w, panels, x, tile, tile_out))
                }
            }
            for (index, row) in task.rows.clone().enumerate() {
                let row = match task.of {
                    RowsOf::Floats => row,
                    RowsOf::Narrow => x.narrow()[row],
                    RowsOf::Wide => x.wide()[row],
                } * w.rows();
                // SAFETY: tasks are claimed once, and no two share both a panel and a row.
                let to = unsafe { out.part(row + outputs.start..row + outputs.end) };
                spread(tile_out, index, rows, to);
            }
        }
    }

    /// Cuts products into tasks: all products for one chunk of rows, then the next chunk.
    fn cut(&self, call: u64, products: &[&PackedMatrix], x: &Activations) -> Vec<Task> {
        let total: usize = products.iter().map(|w| w.panels()).sum();
        let mut tasks = Vec::new();
        for of in [RowsOf::Floats, RowsOf::Narrow, RowsOf::Wide] {
            let grain = (total / (self.pool.threads() * CLAIMS)).max(1).next_multiple_of(of.together());
            let count = match of {
                RowsOf::Floats => x.rows(),
                RowsOf::Narrow => x.narrow().len(),
                RowsOf::Wide => x.wide().len(),
            };
            for start in (0..count).step_by(CHUNK) {
                let rows = start..count.min(start + CHUNK);
                // The cores of one machine may differ in speed by a factor, above all with tiles, which neighbours share: the last
                // of the work is cut small, so that nobody waits long for the slowest.
                let coarse = match of {
                    RowsOf::Wide if rows.end == count => total * COARSE.0 / COARSE.1,
                    _ => total,
                };
                let mut before = 0;
                for (product, w) in products.iter().enumerate() {
                    let floats = matches!(w.format().spec().codes, Codes::Float(_));
                    let as_floats = floats || self.precision == Precision::Exact;
                    if as_floats != (of == RowsOf::Floats) {
                        continue;
                    }
                    let mut first = 0;
                    while first < w.panels() {
                        let grain = if before + first < coarse { grain } else { FINE };
                        let panels = first..w.panels().min(first + grain);
                        first = panels.end;
                        tasks.push(Task { call, product, panels, of, rows: rows.clone() });
                    }
                    before += w.panels();
                }
            }
        }
        tasks
    }
}

impl RowsOf {
    /// Panels that go over a chunk together.
    fn together(self) -> usize {
        match self {
            RowsOf::Wide => TOGETHER_WIDE,
            _ => TOGETHER,
        }
    }
}

/// The rows of one task, as its product reads them.
#[derive(Clone, Copy)]
enum Input<'a> {
    Narrow(FastRows<'a>),
    Wide(WideRows<'a>),
    Floats(&'a [f32]),
}

/// Copies one row of a tile `[panels, rows, 16]` to its place in the output.
fn spread(tile_out: &[f32], row: usize, rows: usize, to: &mut [f32]) {
    let mut panels = tile_out.as_chunks::<PANEL>().0.iter().skip(row).step_by(rows);
    let (whole, rest) = to.as_chunks_mut::<PANEL>();
    for (to, from) in whole.iter_mut().zip(&mut panels) {
        *to = *from;
    }
    if let Some(from) = panels.next() {
        rest.copy_from_slice(&from[..rest.len()]);
    }
}

/// One working memory for each thread.
pub(crate) fn scratches(threads: usize) -> Vec<Mutex<Scratch>> {
    (0..threads).map(|_| Mutex::default()).collect()
}

impl Corrections {
    /// For one task; computed anew only where the last task of this thread had other rows or another kind of format.
    fn prepare<'a>(&'a mut self, task: &Task, spec: &Spec, x: CodeRows<'a>) -> FastRows<'a> {
        let kind = Kind {
            call: task.call,
            first_row: task.rows.start,
            offset: spec.offset,
            sub_len: spec.scales.sub_len(),
            minimums: spec.scales.has_minimums(),
        };
        if self.kind != Some(kind) {
            self.kind = None;
            self.compute(spec, x);
            self.kind = Some(kind);
        }
        let subs = x.rows * x.groups * GROUP / kind.sub_len;
        let sums = if kind.minimums { &self.sums[..subs] } else { &[] };
        FastRows { x, starts: &self.starts[..subs], sums }
    }

    fn compute(&mut self, spec: &Spec, x: CodeRows<'_>) {
        let sub_len = spec.scales.sub_len();
        let subs = x.groups * GROUP / sub_len;
        let starts = self.starts.at_least(x.rows * subs);
        let offset = -i32::from(spec.offset);
        match sub_len {
            SUM => starts.iter_mut().zip(x.sums).for_each(|(start, sum)| *start = offset * sum),
            _ => (starts.iter_mut().zip(x.sums.as_chunks::<2>().0))
                .for_each(|(start, [first, second])| *start = offset * (first + second)),
        }
        if !spec.scales.has_minimums() {
            return;
        }
        let sums = self.sums.at_least(x.rows * subs);
        let groups = x.sums.as_chunks::<2>().0.iter().zip(x.scales);
        match sub_len {
            SUM => (sums.as_chunks_mut::<2>().0.iter_mut().zip(groups))
                .for_each(|(to, (sums, scale))| *to = sums.map(|sum| scale * sum as f32)),
            _ => (sums.iter_mut().zip(groups))
                .for_each(|(to, ([first, second], scale))| *to = scale * (first + second) as f32),
        }
    }
}

/// The floats that quantized rows stand for.
fn expand<'a>(x: CodeRows<'_>, cols: usize, out: &'a mut [f32]) -> &'a [f32] {
    for (row, out) in out.chunks_exact_mut(cols).enumerate() {
        for (group, out) in out.chunks_mut(GROUP).enumerate() {
            let place = x.place(row, group);
            for (code, out) in x.codes[place * GROUP..].iter().zip(out) {
                *out = x.scales[place] * f32::from(*code);
            }
        }
    }
    out
}
