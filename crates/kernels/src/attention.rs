//! Attention over paged keys and values, for prompts and single tokens alike.
//!
//! The queries of a sequence are cut into tiles: some consecutive rows, all heads that share one KV head, so that a tile of
//! keys and values is read once for all of them. The context is cut into spans at fixed absolute positions. Within a span a
//! query's scores, their softmax and the weighted sum of values are computed as if there were nothing else; the spans'
//! results are then merged in order. Tiles, and for long contexts their spans, are what threads share.
//!
//! **Invariant:** what a query gets depends on its own numbers, its position and the keys and values it sees: not on the
//! rows computed with it, nor on how tiles and spans fall to threads.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use half::bf16;

use crate::detect::Backend;
use crate::kernels::{Kernels, Precision};
use crate::kv::{KvLayer, TILE};
use crate::memory::Memory;
use crate::rows::on_backend;
#[cfg(target_arch = "x86_64")]
use crate::vector::Simd;

/// Positions of a span: long enough that merging costs nothing, short enough to share one sequence over threads.
pub(crate) const SPAN: usize = 512;

/// Lanes (a query row and head each) of a tile, if its rows allow: enough to make reading keys and values cheap.
const LANES_WANTED: usize = 48;

/// The same where tiles of bf16 do the work, for which keys and values have to be converted first.
const LANES_WANTED_WIDE: usize = 192;

/// Attention of several sequences' rows over one layer.
pub struct AttentionJob<'a> {
    pub q: &'a [f32], // [rows, heads, head_dim]
    pub kv: &'a KvLayer,
    /// With ascending, disjoint rows. Rows of no sequence are left as they are.
    pub sequences: &'a [AttentionSequence<'a>],
    /// Query heads, a multiple of the layer's KV heads; head h reads KV head `h / (heads / kv_heads)`.
    pub heads: usize,
    /// Factor of the scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// A query at p sees the keys `p - window + 1 ..= p`; without a window, `0 ..= p`.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
}

/// Consecutive rows of one sequence. Their own keys and values have been written before.
#[derive(Clone, Debug)]
pub struct AttentionSequence<'a> {
    pub rows: Range<usize>,
    /// How many of the rows, from the first on, are wide: they may be rounded to bf16, where that is fast. See [`crate::activations`].
    pub wide: usize,
    /// Position of the first row.
    pub first_position: usize,
    /// Position p lives in `blocks[p / block_tokens]`. Blocks wholly before every row's window are never read.
    pub blocks: &'a [u32],
}

/// A tile of queries: what an instruction set's kernel is given, with one span at a time.
#[derive(Clone, Copy)]
pub(crate) struct QueryTile<'a> {
    pub kv: &'a KvLayer,
    pub blocks: &'a [u32],
    pub kv_head: usize,
    /// Position of the first row.
    pub first_position: usize,
    pub rows: usize,
    pub wide: bool,
    /// Heads per KV head; lane l is row `l / group`, head `l % group` of the group.
    pub group: usize,
    pub window: Option<usize>,
    pub softcap: Option<f32>,
}

/// A tile's queries against one span.
pub(crate) struct SpanAttention<'a> {
    pub tile: QueryTile<'a>,
    pub queries: &'a [f32], // [lanes, head_dim], scaled
    pub span: usize,
    pub scratch: &'a mut SpanScratch,
    pub result: &'a mut Partial,
}

/// A kernel's intermediate numbers, kept between calls.
#[derive(Default)]
pub(crate) struct SpanScratch {
    pub scores: Buffer,     // [lanes, SCORES_STRIDE]
    pub panel: Buffer,      // keys or values as f32, as the kernel likes
    pub wide: Memory<bf16>, // queries, keys, weights and values as tiles
}

/// Attention over a part of the context: a softmax's numerator and denominator, and what they are relative to.
#[derive(Default)]
pub(crate) struct Partial {
    pub greatest: Vec<f32>, // [lanes]: the greatest score, minus infinity where nothing was seen
    pub sum: Vec<f32>,      // [lanes]: of e^(score - greatest); zero where nothing was seen
    pub values: Buffer,     // [lanes, value_dim]: sum of e^(score - greatest) value
}

/// Memory that grows as needed and keeps its size; contents are whatever was left there.
pub(crate) struct Buffer(Memory<f32>);

impl Default for Buffer {
    fn default() -> Self {
        Buffer(Memory::zeroed(0))
    }
}

impl Buffer {
    pub fn slice(&mut self, len: usize) -> &mut [f32] {
        if self.0.len() < len {
            self.0 = Memory::zeroed(len.next_multiple_of(TILE));
        }
        &mut self.0[..len]
    }

    pub fn filled(&self) -> &[f32] {
        &self.0
    }
}

/// What one thread needs to compute a tile.
#[derive(Default)]
pub(crate) struct Scratch {
    queries: Buffer, // [lanes, head_dim]
    span: SpanScratch,
    part: Partial,
    total: Partial,
}

/// Buffers of all threads, and the results of spans that several threads share, kept between calls.
#[derive(Default)]
pub(crate) struct AttentionBuffers {
    threads: Vec<Mutex<Scratch>>,
    parts: Vec<Mutex<Partial>>,
}

/// One claim of a thread: a tile with all its spans, or one span of a tile whose results are kept at `part`.
struct Task {
    sequence: usize,
    first_row: usize, // of the sequence
    rows: usize,
    wide: bool,
    kv_head: usize,
    spans: Range<usize>,
    part: Option<usize>,
}

impl Kernels {
    /// Attention for every row of the job's sequences; `out` is `[rows, heads, head_dim]`.
    ///
    /// Panics where sizes do not fit, rows overlap, or a block table is too short for its positions.
    pub fn attention(&self, job: &AttentionJob<'_>, out: &mut [f32]) {
        job.check(out.len());
        let mut buffers = self.attention.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = self.pool.threads();
        let has_wide = self.precision == Precision::Fast && self.backend.has_wide_products();
        let (tasks, parts) = plan(job, threads, has_wide);
        buffers.threads.resize_with(threads, Default::default);
        if buffers.parts.len() < parts {
            buffers.parts.resize_with(parts, Default::default);
        }
        let width = job.group() * job.kv.head_dim();
        let out: Vec<_> = out.chunks_mut(width).map(Mutex::new).collect(); // [rows, kv_heads] of [group, head_dim]

        let next = AtomicUsize::new(0);
        let work = |thread: usize| {
            let mut scratch = lock(&buffers.threads[thread]);
            while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                match task.part {
                    None => self.whole_tile(job, task, &mut scratch, &out),
                    Some(part) => self.one_span(job, task, &mut scratch, &mut lock(&buffers.parts[part])),
                }
            }
        };
        match tasks.len() {
            0 | 1 => work(0),
            _ => self.pool.run(&work),
        }
        merge_shared(job, &tasks, &buffers.parts, &mut lock(&buffers.threads[0]), &out);
    }

    fn whole_tile(
        &self,
        job: &AttentionJob<'_>,
        task: &Task,
        scratch: &mut Scratch,
        out: &[Mutex<&mut [f32]>],
    ) {
        let tile = job.tile(task);
        let Scratch { queries, span: span_scratch, part, total } = scratch;
        let queries = job.gather_queries(task, queries);
        total.clear(&tile);
        for span in task.spans.clone() {
            self.span(SpanAttention { tile, queries, span, scratch: span_scratch, result: part });
            total.merge(part, &tile);
        }
        job.deliver(task, total, out);
    }

    fn one_span(&self, job: &AttentionJob<'_>, task: &Task, scratch: &mut Scratch, result: &mut Partial) {
        let tile = job.tile(task);
        let queries = job.gather_queries(task, &mut scratch.queries);
        let (span, scratch) = (task.spans.start, &mut scratch.span);
        self.span(SpanAttention { tile, queries, span, scratch, result });
    }

    fn span(&self, span: SpanAttention<'_>) {
        #[cfg(target_arch = "x86_64")]
        if let (Backend::Amx(isa), true) = (self.backend, span.tile.wide) {
            return isa.attend(span);
        }
        on_backend!(self.backend, span);
    }
}

/// Cuts a job into tiles, and those tiles into spans that alone would keep one thread busy while others have no work left.
/// Also says how many shared results there are.
fn plan(job: &AttentionJob<'_>, threads: usize, has_wide: bool) -> (Vec<Task>, usize) {
    /// A task should be at most this share of a thread's work, if cutting at spans can make it so.
    const TASKS_PER_THREAD: usize = 4;

    let wanted = |wide: bool| {
        let lanes = if wide { LANES_WANTED_WIDE } else { LANES_WANTED };
        (lanes / job.group()).max(1)
    };
    let mut tiles = Vec::new();
    for (index, sequence) in job.sequences.iter().enumerate() {
        let wide = 0..if has_wide { sequence.wide.min(sequence.rows.len()) } else { 0 };
        let narrow = wide.end..sequence.rows.len();
        let starts = |rows: Range<usize>, wide: bool| {
            rows.clone().step_by(wanted(wide)).map(move |row| (row, wanted(wide).min(rows.end - row), wide))
        };
        for (first_row, rows, wide) in starts(wide, true).chain(starts(narrow, false)) {
            for kv_head in 0..job.kv.kv_heads() {
                let mut task =
                    Task { sequence: index, first_row, rows, wide, kv_head, spans: 0..0, part: None };
                let seen = job.tile(&task).seen();
                task.spans = seen.start / SPAN..seen.end.div_ceil(SPAN);
                tiles.push(task);
            }
        }
    }
    let cost = |tile: &Task| tile.rows * tile.spans.len();
    let total: usize = tiles.iter().map(cost).sum();
    let cost_max = if threads == 1 { total } else { total / (threads * TASKS_PER_THREAD) };

    let (mut tasks, mut parts) = (Vec::with_capacity(tiles.len()), 0);
    for tile in tiles {
        if tile.spans.len() == 1 || cost(&tile) <= cost_max {
            tasks.push(tile);
            continue;
        }
        for span in tile.spans {
            tasks.push(Task { spans: span..span + 1, part: Some(parts), ..tile });
            parts += 1;
        }
    }
    (tasks, parts)
}

/// Merges the spans that were computed apart, tile by tile in the order of the spans.
fn merge_shared(
    job: &AttentionJob<'_>,
    tasks: &[Task],
    parts: &[Mutex<Partial>],
    scratch: &mut Scratch,
    out: &[Mutex<&mut [f32]>],
) {
    let shared = tasks.iter().filter_map(|task| Some((task, task.part?)));
    for (task, part) in shared {
        let tile = job.tile(task);
        if task.spans.start == tile.seen().start / SPAN {
            scratch.total.clear(&tile);
        }
        scratch.total.merge(&lock(&parts[part]), &tile);
        if task.spans.end == tile.seen().end.div_ceil(SPAN) {
            job.deliver(task, &scratch.total, out);
        }
    }
}

impl AttentionJob<'_> {
    fn group(&self) -> usize {
        self.heads / self.kv.kv_heads()
    }

    fn check(&self, out_len: usize) {
        let width = self.heads * self.kv.head_dim();
        let kv_heads = self.kv.kv_heads();
        assert!(
            self.heads > 0 && self.heads.is_multiple_of(kv_heads),
            "{} query heads cannot share {kv_heads} KV heads evenly",
            self.heads
        );
        assert!(
            self.q.len() == out_len && self.q.len().is_multiple_of(width),
            "queries and output are rows of {width}"
        );
        assert!(self.window != Some(0), "a window of zero keys sees nothing");
        let mut rows_free_from = 0;
        for sequence in self.sequences {
            let rows = &sequence.rows;
            assert!(
                rows_free_from <= rows.start && rows.start <= rows.end,
                "the sequences' rows ascend without overlap"
            );
            assert!(rows.end * width <= self.q.len(), "rows {rows:?} lie within the queries");
            rows_free_from = rows.end;
            let positions = sequence.first_position + rows.len();
            let blocks = positions.div_ceil(self.kv.block_tokens());
            assert!(
                rows.is_empty() || blocks <= sequence.blocks.len(),
                "{positions} positions need {blocks} blocks"
            );
        }
    }

    fn tile(&self, task: &Task) -> QueryTile<'_> {
        let sequence = &self.sequences[task.sequence];
        QueryTile {
            kv: self.kv,
            blocks: sequence.blocks,
            kv_head: task.kv_head,
            first_position: sequence.first_position + task.first_row,
            rows: task.rows,
            wide: task.wide,
            group: self.group(),
            window: self.window,
            softcap: self.softcap,
        }
    }

    /// The rows, within queries and output, of a task.
    fn rows(&self, task: &Task) -> Range<usize> {
        let first = self.sequences[task.sequence].rows.start + task.first_row;
        first..first + task.rows
    }

    /// The task's queries, scaled, `[lanes, head_dim]`.
    fn gather_queries<'b>(&self, task: &Task, into: &'b mut Buffer) -> &'b [f32] {
        let (kv_heads, width) = (self.kv.kv_heads(), self.group() * self.kv.head_dim());
        let queries = into.slice(task.rows * width);
        for (row, to) in self.rows(task).zip(queries.chunks_exact_mut(width)) {
            let from = &self.q[(row * kv_heads + task.kv_head) * width..][..width];
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from * self.scale);
        }
        queries
    }

    /// Divides by the softmax's denominator and writes the task's rows.
    fn deliver(&self, task: &Task, total: &Partial, out: &[Mutex<&mut [f32]>]) {
        let (head_dim, value_dim, group) = (self.kv.head_dim(), self.kv.shape().value_dim(), self.group());
        let values = total.values.filled().chunks_exact(value_dim);
        let mut lanes = total.sum.iter().zip(values);
        for row in self.rows(task) {
            let mut out = lock(&out[row * self.kv.kv_heads() + task.kv_head]);
            for (out, (&sum, values)) in out.chunks_exact_mut(head_dim).zip(lanes.by_ref().take(group)) {
                let inverse = 1.0 / sum;
                out.iter_mut().zip(values).for_each(|(out, value)| *out = value * inverse);
            }
        }
    }
}

impl QueryTile<'_> {
    pub fn lanes(&self) -> usize {
        self.rows * self.group
    }

    /// The positions that a lane's query sees.
    pub fn seen_by(&self, lane: usize) -> Range<usize> {
        let end = self.first_position + lane / self.group + 1;
        self.window.map_or(0, |window| end.saturating_sub(window))..end
    }

    /// The positions that some query of the tile sees.
    pub fn seen(&self) -> Range<usize> {
        self.seen_by(0).start..self.first_position + self.rows
    }

    /// The block of a position, and the tile of sixteen within it.
    #[inline(always)]
    pub fn block_of(&self, position: usize) -> (u32, usize) {
        let block_tokens = self.kv.block_tokens();
        (self.blocks[position / block_tokens], position % block_tokens / TILE)
    }
}

impl Partial {
    /// Makes room for a tile's lanes; their contents are to be written by the caller.
    pub fn reset(&mut self, tile: &QueryTile<'_>) {
        self.greatest.resize(tile.lanes(), 0.0);
        self.sum.resize(tile.lanes(), 0.0);
        self.values.slice(tile.lanes() * tile.kv.shape().value_dim());
    }

    /// Nothing seen yet.
    fn clear(&mut self, tile: &QueryTile<'_>) {
        self.reset(tile);
        self.greatest.fill(f32::NEG_INFINITY);
        self.sum.fill(0.0);
    }

    /// Adds what was seen in the next span. A lane that saw nothing there is left as it is, one that had seen nothing takes
    /// over, so that spans outside of a lane's view leave no trace.
    fn merge(&mut self, next: &Partial, tile: &QueryTile<'_>) {
        let value_dim = tile.kv.shape().value_dim();
        let values = self.values.slice(tile.lanes() * value_dim).chunks_exact_mut(value_dim);
        let next_values = next.values.filled().chunks_exact(value_dim);
        for (lane, (values, next_values)) in values.zip(next_values).enumerate() {
            let (sum, next_sum) = (self.sum[lane], next.sum[lane]);
            if next_sum == 0.0 {
                continue;
            }
            if sum == 0.0 {
                (self.sum[lane], self.greatest[lane]) = (next_sum, next.greatest[lane]);
                values.copy_from_slice(next_values);
                continue;
            }
            let greatest = self.greatest[lane].max(next.greatest[lane]);
            let factor = (self.greatest[lane] - greatest).exp();
            let next_factor = (next.greatest[lane] - greatest).exp();
            (self.sum[lane], self.greatest[lane]) = (sum * factor + next_sum * next_factor, greatest);
            for (value, next) in values.iter_mut().zip(next_values) {
                *value = *value * factor + next * next_factor;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
