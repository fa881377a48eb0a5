//! The forward pass: one transformer for every family, driven by the flags of its row.
//!
//! **Invariant:** a row's logits depend on its own sequence alone. Rows of other sequences, the cut of a prompt into chunks,
//! the order of blocks and the number of threads change no bit of them, because no kernel mixes rows.

use std::time::Instant;

use kernels::{Activations, AttentionJob, AttentionSequence, Kernels, Memory, RopeTable};
use ledger::{Part, Parts};

use crate::batch::Batch;
use crate::config::Config;
use crate::families::Activation;
use crate::kv::KvCache;
use crate::model::Model;
use crate::weights::{LayerWeights, Weights};

/// Logits of the rows that a batch asked for, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Logits {
    pub rows: usize,
    pub vocabulary: usize,
    pub values: Vec<f32>, // [rows, vocabulary]
}

impl Logits {
    /// The logits of one row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.vocabulary..][..self.vocabulary]
    }
}

impl Model {
    /// Computes a batch: writes its rows' keys and values into `kv`, attends, and returns the logits it asks for. The time
    /// of each part is added to `parts`.
    ///
    /// Panics where the batch breaks its invariant or reaches outside the model or the cache.
    pub fn forward(&mut self, batch: &Batch, kv: &mut KvCache, parts: &mut Parts) -> Logits {
        batch.check(&self.config, kv);
        let mut pass = Pass {
            config: &self.config,
            weights: &self.weights,
            kernels: &self.kernels,
            ropes: &self.ropes,
            kv,
            scratch: &mut self.scratch,
            rows: batch.tokens.len(),
            lap: Lap { parts, since: Instant::now() },
        };
        pass.run(batch)
    }
}

/// Angles for layers that see everything, and for those with a window.
pub(crate) struct Ropes {
    pub full: RopeTable,
    pub window: RopeTable,
}

/// Intermediate results, kept between passes so that a step allocates only when it is larger than any before.
#[derive(Default)]
pub(crate) struct Scratch {
    positions: Vec<u32>,      // [rows]
    slots: Vec<(u32, usize)>, // [rows]: block, and offset within it
    wide: Vec<bool>,          // [rows]: rounded to bf16 where there are tiles
    residual: Buffer,         // [rows, width]
    branch: Buffer,           // [rows, width]: what a block reads, then what it adds
    query: Buffer,            // [rows, heads, head_dim]
    key: Buffer,              // [rows, kv_heads, head_dim]
    value: Buffer,            // [rows, kv_heads, head_dim]
    attended: Buffer,         // [rows, heads, head_dim]
    gate: Buffer,             // [rows, ffn]
    up: Buffer,               // [rows, ffn]
    spare: Buffer,            // what cannot be done in place
    activations: Activations,
}

impl Scratch {
    /// `keep_floats` where some weights are floats, whose inputs should not be rounded.
    pub(crate) fn new(keep_floats: bool) -> Scratch {
        match keep_floats {
            true => Scratch { activations: Activations::with_floats(), ..Scratch::default() },
            false => Scratch::default(),
        }
    }
}

/// One forward pass under way.
struct Pass<'a> {
    config: &'a Config,
    weights: &'a Weights,
    kernels: &'a Kernels,
    ropes: &'a Ropes,
    kv: &'a mut KvCache,
    scratch: &'a mut Scratch,
    /// Rows of the residual stream: all of the batch's, and from the last layer's attention on those that want logits.
    rows: usize,
    lap: Lap<'a>,
}

impl Pass<'_> {
    fn run(&mut self, batch: &Batch) -> Logits {
        self.place(batch);
        self.embed(&batch.tokens);
        let mut sequences = batch.attention_sequences();
        let layers = &self.weights.layers;
        for (index, layer) in layers.iter().enumerate() {
            self.project(index, layer);
            if index + 1 == layers.len() {
                // Nothing reads the other rows any more: their keys and values are all that was wanted of them.
                sequences = self.keep_logit_rows(batch);
                if self.rows == 0 {
                    break;
                }
            }
            self.attend(index, layer, &sequences);
            self.feed_forward(layer);
        }
        self.head()
    }

    /// Works out each row's position and slot.
    fn place(&mut self, batch: &Batch) {
        let block_tokens = self.kv.block_tokens();
        let Scratch { positions, slots, wide, .. } = &mut *self.scratch;
        positions.clear();
        slots.clear();
        wide.clear();
        wide.extend(batch.wide_rows());
        for sequence in &batch.sequences {
            for position in (sequence.first_position..).take(sequence.rows.len()) {
                positions.push(position as u32);
                slots.push((sequence.blocks[position / block_tokens], position % block_tokens));
            }
        }
        self.lap.end(Part::Attention);
    }

    fn embed(&mut self, tokens: &[u32]) {
        let width = self.config.width;
        let residual = self.scratch.residual.rows(self.rows, width);
        for (token, row) in tokens.iter().zip(residual.chunks_exact_mut(width)) {
            self.weights.embed(*token, row);
        }
        if self.config.embedding_scale != 1.0 {
            self.kernels.scale(residual, self.config.embedding_scale);
        }
        self.lap.end(Part::Embedding);
    }

    /// Queries, keys and values of all rows; the latter two go to the cache.
    fn project(&mut self, index: usize, layer: &LayerWeights) {
        let Config { width, heads, kv_heads, head_dim, norm_eps, .. } = *self.config;
        let (rows, kernels) = (self.rows, self.kernels);
        let Scratch { residual, branch, query, key, value, spare, activations, wide, .. } =
            &mut *self.scratch;

        let branch = branch.rows(rows, width);
        kernels.rms_norm(residual.rows(rows, width), &layer.attention_norm, norm_eps, branch);
        kernels.quantize_as(branch, width, wide, activations);
        self.lap.end(Part::Norm);

        let mut products = [
            (&layer.query.matrix, query.rows(rows, heads * head_dim)),
            (&layer.key.matrix, key.rows(rows, kv_heads * head_dim)),
            (&layer.value.matrix, value.rows(rows, kv_heads * head_dim)),
        ];
        kernels.matmul_many(&mut products, activations);
        for (projection, (_, product)) in
            [&layer.query, &layer.key, &layer.value].into_iter().zip(&mut products)
        {
            if let Some(bias) = &projection.bias {
                kernels.add_bias(product, bias);
            }
        }
        self.lap.end(Part::Projections);

        for (norm, vectors, heads) in
            [(&layer.query_norm, &mut *query, heads), (&layer.key_norm, &mut *key, kv_heads)]
        {
            if let Some(norm) = norm {
                let length = heads * head_dim;
                kernels.rms_norm(vectors.rows(rows, length), norm, norm_eps, spare.rows(rows, length));
                std::mem::swap(vectors, spare);
            }
        }
        self.lap.end(Part::Norm);
        self.turn_and_store(index);
    }

    /// Turns queries and keys by their positions and writes keys and values to their slots.
    fn turn_and_store(&mut self, index: usize) {
        let Config { heads, kv_heads, head_dim, family, .. } = *self.config;
        let table = match self.config.window_of(index) {
            None => &self.ropes.full,
            Some(_) => &self.ropes.window,
        };
        let Scratch { positions, slots, query, key, value, .. } = &mut *self.scratch;
        let (query, key) =
            (query.rows(self.rows, heads * head_dim), key.rows(self.rows, kv_heads * head_dim));
        self.kernels.rope(query, positions, heads, head_dim, table, family.rope_style);
        self.kernels.rope(key, positions, kv_heads, head_dim, table, family.rope_style);

        let value = value.rows(self.rows, kv_heads * head_dim);
        self.kernels.store(&mut self.kv.layers[index], slots, key, value);
        self.lap.end(Part::Attention);
    }

    /// Leaves, of the residual stream and the queries, the rows that want logits, and says where they stand.
    fn keep_logit_rows<'b>(&mut self, batch: &'b Batch) -> Vec<AttentionSequence<'b>> {
        let Config { width, heads, head_dim, .. } = *self.config;
        let Scratch { residual, query, spare, wide, .. } = &mut *self.scratch;
        *wide = batch.logit_rows.iter().map(|row| wide[*row]).collect();
        for (buffer, length) in [(residual, width), (query, heads * head_dim)] {
            let kept = spare.rows(batch.logit_rows.len(), length);
            let all = buffer.rows(self.rows, length);
            for (row, kept) in batch.logit_rows.iter().zip(kept.chunks_exact_mut(length)) {
                kept.copy_from_slice(&all[row * length..][..length]);
            }
            std::mem::swap(buffer, spare);
        }
        self.rows = batch.logit_rows.len();
        self.lap.end(Part::Attention);
        batch.logit_sequences()
    }

    /// Attention and its output projection, added to the residual stream.
    fn attend(&mut self, index: usize, layer: &LayerWeights, sequences: &[AttentionSequence<'_>]) {
        let Config { width, heads, head_dim, score_scale, score_softcap, .. } = *self.config;
        let (rows, kernels) = (self.rows, self.kernels);
        let Scratch { branch, query, attended, activations, wide, .. } = &mut *self.scratch;
        let attended = attended.rows(rows, heads * head_dim);
        let job = AttentionJob {
            q: query.rows(rows, heads * head_dim),
            kv: &self.kv.layers[index],
            sequences,
            heads,
            scale: score_scale,
            window: self.config.window_of(index),
            softcap: score_softcap,
        };
        kernels.attention(&job, attended);
        self.lap.end(Part::Attention);

        kernels.quantize_as(attended, heads * head_dim, wide, activations);
        self.lap.end(Part::Norm);
        let branch = branch.rows(rows, width);
        kernels.matmul(&layer.output.matrix, activations, branch);
        if let Some(bias) = &layer.output.bias {
            kernels.add_bias(branch, bias);
        }
        self.lap.end(Part::Projections);
        self.add_branch(layer.post_attention_norm.as_deref());
    }

    fn feed_forward(&mut self, layer: &LayerWeights) {
        let Config { width, ffn, norm_eps, family, .. } = *self.config;
        let (rows, kernels) = (self.rows, self.kernels);
        let Scratch { residual, branch, gate, up, activations, wide, .. } = &mut *self.scratch;
        let branch = branch.rows(rows, width);
        kernels.rms_norm(residual.rows(rows, width), &layer.ffn_norm, norm_eps, branch);
        kernels.quantize_as(branch, width, wide, activations);
        self.lap.end(Part::Norm);

        let (gate, up) = (gate.rows(rows, ffn), up.rows(rows, ffn));
        kernels.matmul_many(&mut [(&layer.gate, &mut *gate), (&layer.up, &mut *up)], activations);
        match family.activation {
            Activation::Silu => kernels.silu_mul(gate, up),
            Activation::Gelu => kernels.gelu_mul(gate, up),
        }
        kernels.quantize_as(gate, ffn, wide, activations);
        kernels.matmul(&layer.down, activations, branch);
        self.lap.end(Part::FeedForward);
        self.add_branch(layer.post_ffn_norm.as_deref());
    }

    /// Adds what a block computed to the residual stream, through the block's own norm where the family has one.
    fn add_branch(&mut self, post_norm: Option<&[f32]>) {
        let Config { width, norm_eps, .. } = *self.config;
        let Scratch { residual, branch, spare, .. } = &mut *self.scratch;
        if let Some(norm) = post_norm {
            let normed = spare.rows(self.rows, width);
            self.kernels.rms_norm(branch.rows(self.rows, width), norm, norm_eps, normed);
            std::mem::swap(branch, spare);
        }
        self.kernels.add(residual.rows(self.rows, width), branch.rows(self.rows, width));
        self.lap.end(Part::Norm);
    }

    /// The last norm and the output head.
    fn head(&mut self) -> Logits {
        let Config { width, vocabulary, norm_eps, logit_softcap, .. } = *self.config;
        let (rows, kernels) = (self.rows, self.kernels);
        let mut values = vec![0.0; 2 * rows * vocabulary];
        if rows > 0 {
            let Scratch { residual, branch, activations, .. } = &mut *self.scratch;
            let branch = branch.rows(rows, width);
            kernels.rms_norm(residual.rows(rows, width), &self.weights.final_norm, norm_eps, branch);
            // Rounding here goes straight into the logits, and a few rows are bound by the weights' bytes anyway: so the
            // head alone is given its inputs at twice the bits, as two rows each.
            kernels.quantize_finely(branch, rows, width, activations);
            self.lap.end(Part::Norm);
            kernels.matmul(&self.weights.head, activations, &mut values);
            let (logits, residues) = values.split_at_mut(rows * vocabulary);
            kernels.add(logits, residues);
            values.truncate(rows * vocabulary);
            if let Some(cap) = logit_softcap {
                kernels.softcap(&mut values, cap);
            }
        }
        self.lap.end(Part::Head);
        Logits { rows, vocabulary, values }
    }
}

/// Charges the time since the last charge to a part, so that parts add up to the whole pass.
struct Lap<'a> {
    parts: &'a mut Parts,
    since: Instant,
}

impl Lap<'_> {
    fn end(&mut self, part: Part) {
        let now = Instant::now();
        self.parts.add(part, now - self.since);
        self.since = now;
    }
}

/// Memory that grows and never shrinks; what it held is lost when it grows, which it does where a pass first uses it.
#[derive(Default)]
struct Buffer(Memory<f32>);

impl Buffer {
    /// The first `rows` rows of `length` values; what they hold is left from earlier.
    fn rows(&mut self, rows: usize, length: usize) -> &mut [f32] {
        self.0.at_least(rows * length)
    }
}
