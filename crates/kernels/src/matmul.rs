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

use crate::activations::{Activations, CodeRows, SUM};
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

struct Task {
    /// Which call of [`Kernels::matmul_many`] it belongs to.
    call: u64,
    product: usize,
    panels: Range<usize>,
    rows: Range<usize>,
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
        let panels: Vec<usize> = products.iter().map(|(w, _)| w.panels()).collect();
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let tasks = cut(call, &panels, x.rows(), self.pool.threads());
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
        let spec = w.format().spec();
        let fast = self.precision == Precision::Fast && !matches!(spec.codes, Codes::Float(_));
        let fast_rows = fast.then(|| corrections.prepare(task, spec, x.code_rows(task.rows.clone())));
        let float_rows = (!fast).then(|| match x.float_rows(task.rows.clone()) {
            Some(floats) => floats,
            None => expand(x.code_rows(task.rows.clone()), cols, floats.at_least(rows * cols)),
        });
        let tile_out = tile_out.at_least(TOGETHER * rows * PANEL);
        for first in task.panels.clone().step_by(TOGETHER) {
            let panels = first..task.panels.end.min(first + TOGETHER);
            let tile_out = &mut tile_out[..panels.len() * rows * PANEL];
            match (fast_rows, float_rows) {
                (Some(x), _) => {
                    dispatch!(self.backend, isa => isa.product_fast(w, panels, x, tile, tile_out))
                }
                (_, Some(x)) => {
                    dispatch!(self.backend, isa => isa.product_exact(w, panels, x, tile, tile_out))
                }
                (None, None) => unreachable!("a product is fast or exact"),
            }
            let outputs =
                first * PANEL..w.rows().min((first + TOGETHER) * PANEL).min(task.panels.end * PANEL);
            for (index, row) in task.rows.clone().enumerate() {
                let row = row * w.rows();
                // SAFETY: tasks are claimed once, and no two share both a panel and a row.
                let to = unsafe { out.part(row + outputs.start..row + outputs.end) };
                spread(tile_out, index, rows, to);
            }
        }
    }
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

/// Cuts products of so many panels over `rows` into tasks: all products for one chunk of rows, then the next chunk.
fn cut(call: u64, panels: &[usize], rows: usize, threads: usize) -> Vec<Task> {
    let total: usize = panels.iter().sum();
    let grain = (total / (threads * CLAIMS)).max(1).next_multiple_of(TOGETHER);
    let mut tasks = Vec::new();
    for start in (0..rows).step_by(CHUNK) {
        let rows = start..rows.min(start + CHUNK);
        for (product, &panels) in panels.iter().enumerate() {
            for first in (0..panels).step_by(grain) {
                tasks.push(Task {
                    call,
                    product,
                    panels: first..panels.min(first + grain),
                    rows: rows.clone(),
                });
            }
        }
    }
    tasks
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
