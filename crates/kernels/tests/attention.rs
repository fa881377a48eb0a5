//! Attention on every instruction set against the textbook in double precision, and against itself cut up differently.

use kernels::{AttentionJob, AttentionSequence, Isa, Kernels, KvDtype, KvLayer, Precision};

const BLOCK_TOKENS: usize = 16;

/// All rows may be rounded.
const WIDE: usize = usize::MAX;

/// A generator with a fixed seed: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Numbers from -1 to 1 with few bits, so that half precision holds them exactly.
    fn numbers(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (self.below(2049) as f32 - 1024.0) / 1024.0).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    dtype: KvDtype,
    window: Option<usize>,
    softcap: Option<f32>,
}

const SMOLLM2: Shape =
    Shape { heads: 9, kv_heads: 3, head_dim: 64, dtype: KvDtype::F16, window: None, softcap: None };

/// One sequence's numbers: what was asked, and what is remembered.
#[derive(Clone)]
struct Sequence {
    q: Vec<f32>, // [tokens, heads, head_dim]
    k: Vec<f32>, // [tokens, kv_heads, head_dim]
    v: Vec<f32>,
    blocks: Vec<u32>,
}

impl Shape {
    fn q_width(self) -> usize {
        self.heads * self.head_dim
    }

    fn kv_width(self) -> usize {
        self.kv_heads * self.head_dim
    }

    fn scale(self) -> f32 {
        // Larger than usual, so that scores spread over several units and the softmax has a shape.
        4.0 / (self.head_dim as f32).sqrt()
    }

    /// Sequences of these lengths, their blocks dealt out at random from those of one layer.
    fn sequences(self, random: &mut Random, lengths: &[usize]) -> Vec<Sequence> {
        let count: usize = lengths.iter().map(|len| len.div_ceil(BLOCK_TOKENS)).sum();
        let mut free: Vec<u32> = (0..count as u32).collect();
        let sequence = |&tokens: &usize| Sequence {
            q: random.numbers(tokens * self.q_width()),
            k: random.numbers(tokens * self.kv_width()),
            v: random.numbers(tokens * self.kv_width()),
            blocks: (0..tokens.div_ceil(BLOCK_TOKENS))
                .map(|_| free.swap_remove(random.below(free.len())))
                .collect(),
        };
        lengths.iter().map(sequence).collect()
    }

    /// A layer for these sequences in which everything is NaN, so that reading what was not written shows.
    fn layer(self, sequences: &[Sequence]) -> KvLayer {
        let blocks = sequences.iter().map(|sequence| sequence.blocks.len()).sum();
        let mut layer = KvLayer::new(self.dtype, blocks, BLOCK_TOKENS, self.kv_heads, self.head_dim);
        let nan = vec![f32::NAN; self.kv_width()];
        for block in 0..blocks as u32 {
            (0..BLOCK_TOKENS).for_each(|offset| layer.write((block, offset), &nan, &nan));
        }
        layer
    }

    fn attend(
        self,
        kernels: &Kernels,
        q: &[f32],
        layer: &KvLayer,
        sequences: &[AttentionSequence<'_>],
    ) -> Vec<f32> {
        let mut out = vec![0.0; q.len()];
        let Shape { heads, window, softcap, .. } = self;
        let job = AttentionJob { q, kv: layer, sequences, heads, scale: self.scale(), window, softcap };
        kernels.attention(&job, &mut out);
        out
    }

    /// Feeds a sequence in chunks, each written before it is attended, and returns all rows.
    fn in_chunks(self, kernels: &Kernels, sequence: &Sequence, mut chunk: impl FnMut() -> usize) -> Vec<f32> {
        let mut layer = self.layer(std::slice::from_ref(sequence));
        let tokens = sequence.q.len() / self.q_width();
        let (mut first, mut out) = (0, Vec::new());
        while first < tokens {
            let rows = chunk().clamp(1, tokens - first);
            (first..first + rows).for_each(|position| sequence.write(&mut layer, self, position));
            let q = &sequence.q[first * self.q_width()..(first + rows) * self.q_width()];
            let blocks = &sequence.blocks[..(first + rows).div_ceil(BLOCK_TOKENS)];
            let part = AttentionSequence { rows: 0..rows, wide: WIDE, first_position: first, blocks };
            out.extend(self.attend(kernels, q, &layer, &[part]));
            first += rows;
        }
        out
    }

    /// The textbook, in double precision: softmax(scale q k) v over the keys that a position sees, for one head.
    fn textbook(self, sequence: &Sequence, position: usize, head: usize) -> Vec<f64> {
        let dim = self.head_dim;
        let at = |width: usize, position: usize, head: usize| {
            position * width + head * dim..position * width + (head + 1) * dim
        };
        let kv_head = head / (self.heads / self.kv_heads);
        let q = &sequence.q[at(self.q_width(), position, head)];
        let first = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let score = |p: usize| {
            let k = &sequence.k[at(self.kv_width(), p, kv_head)];
            let product: f64 = q.iter().zip(k).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
            let score = f64::from(self.scale()) * product;
            self.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
        };
        let scores: Vec<f64> = (first..=position).map(score).collect();
        let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - greatest).exp()).sum();
        let mut out = vec![0.0; dim];
        for (p, score) in (first..=position).zip(scores) {
            let weight = (score - greatest).exp() / sum;
            let v = &sequence.v[at(self.kv_width(), p, kv_head)];
            out.iter_mut().zip(v).for_each(|(out, &v)| *out += weight * f64::from(v));
        }
        out
    }
}

impl Sequence {
    fn write(&self, layer: &mut KvLayer, shape: Shape, position: usize) {
        let at = position * shape.kv_width()..(position + 1) * shape.kv_width();
        let slot = (self.blocks[position / BLOCK_TOKENS], position % BLOCK_TOKENS);
        layer.write(slot, &self.k[at.clone()], &self.v[at]);
    }
}

/// Every instruction set, and the widest where it may round: tiles of bf16, if the machine has them.
fn kinds() -> Vec<(Isa, Precision)> {
    let exact = Isa::available().into_iter().map(|isa| (isa, Precision::Exact));
    exact.chain([(Isa::best(), Precision::Fast)]).collect()
}

fn kernels((isa, precision): (Isa, Precision), threads: usize) -> Kernels {
    Kernels::new(isa, precision, threads).expect("an available instruction set")
}

/// How far a result may be from the textbook's, for values up to 1. With tiles, weights and values are each off by up to one part
/// in 256.
fn tolerance(kind: (Isa, Precision)) -> f64 {
    if kind == (Isa::Amx, Precision::Fast) { 2.0 / 256.0 } else { 4e-6 }
}

/// Attends the last `rows` of each length, all in one job, on every instruction set, against the textbook.
fn check(shape: Shape, lengths: &[usize], rows: usize) {
    let mut random = Random(lengths.iter().sum::<usize>() as u64 + shape.head_dim as u64);
    let sequences = shape.sequences(&mut random, lengths);
    let mut layer = shape.layer(&sequences);
    let (mut q, mut parts) = (Vec::new(), Vec::new());
    for (sequence, &len) in sequences.iter().zip(lengths) {
        (0..len).for_each(|position| sequence.write(&mut layer, shape, position));
        let first_position = len.saturating_sub(rows);
        let first_row = q.len() / shape.q_width();
        q.extend_from_slice(&sequence.q[first_position * shape.q_width()..]);
        let rows = first_row..first_row + len - first_position;
        parts.push(AttentionSequence { rows, wide: WIDE, first_position, blocks: &sequence.blocks });
    }
    let positions = sequences.iter().zip(&parts).flat_map(|(sequence, part)| {
        (part.first_position..part.first_position + part.rows.len()).map(move |position| (sequence, position))
    });
    let expected: Vec<f64> = positions
        .flat_map(|(sequence, position)| {
            (0..shape.heads).flat_map(move |head| shape.textbook(sequence, position, head))
        })
        .collect();
    for kind in kinds() {
        let out = shape.attend(&kernels(kind, 2), &q, &layer, &parts);
        for (i, (&got, expected)) in out.iter().zip(&expected).enumerate() {
            let (row, error) = (i / shape.q_width(), (f64::from(got) - expected).abs());
            assert!(
                error < tolerance(kind),
                "{kind:?} {shape:?} {lengths:?} row {row} [{}]: off by {error}",
                i % shape.q_width()
            );
        }
    }
}

#[test]
fn agrees_with_the_textbook_for_every_head_size_and_group() {
    for head_dim in [64, 80, 128, 256, 100, 16] {
        for (heads, kv_heads) in [(1, 1), (2, 1), (9, 3), (4, 1), (10, 2), (6, 1), (14, 2), (8, 1), (9, 1)] {
            check(Shape { heads, kv_heads, head_dim, ..SMOLLM2 }, &[37, 5], 7);
        }
    }
}

#[test]
fn agrees_with_the_textbook_at_every_depth() {
    for length in [1, 2, 15, 16, 17, 63, 64, 65, 511, 512, 513, 527, 1023, 1025, 1100, 1499] {
        check(SMOLLM2, &[length], 3);
    }
}

#[test]
fn agrees_with_the_textbook_for_prompts_that_fill_many_tiles() {
    check(SMOLLM2, &[150, 33, 611], 150);
    check(Shape { heads: 6, kv_heads: 1, head_dim: 128, ..SMOLLM2 }, &[97], 97);
}

#[test]
fn agrees_with_the_textbook_with_windows_softcap_and_full_precision() {
    for window in [1, 2, 16, 50, 512, 513, 2000] {
        check(Shape { window: Some(window), ..SMOLLM2 }, &[700, 20], 40);
    }
    for dtype in [KvDtype::F16, KvDtype::F32] {
        check(Shape { softcap: Some(2.5), dtype, ..SMOLLM2 }, &[600], 30);
        check(
            Shape { heads: 4, kv_heads: 1, head_dim: 256, window: Some(100), dtype, softcap: None },
            &[300],
            30,
        );
    }
}

/// The same bits in one chunk, in random chunks and token by token, with one to three threads.
fn check_bits(shape: Shape, tokens: usize) {
    let sequence = shape.sequences(&mut Random(7), &[tokens]).remove(0);
    for kind in kinds() {
        let whole = shape.in_chunks(&kernels(kind, 1), &sequence, || tokens);
        assert!(whole.iter().all(|number| number.is_finite()), "{kind:?}: something unwritten was read");
        // The reference computes every row apart anyway, and takes long.
        let thread_counts = if kind.0 == Isa::Reference { 2..=2 } else { 1..=3 };
        for threads in thread_counts {
            let kernels = kernels(kind, threads);
            let mut random = Random(threads as u64);
            let in_chunks = |chunk: &mut dyn FnMut() -> usize| shape.in_chunks(&kernels, &sequence, chunk);
            assert!(in_chunks(&mut || tokens) == whole, "{kind:?} {shape:?}: whole with {threads} threads");
            assert!(
                in_chunks(&mut || random.below(200)) == whole,
                "{kind:?} {shape:?}: chunks, {threads} threads"
            );
            assert!(in_chunks(&mut || 1) == whole, "{kind:?} {shape:?}: one by one with {threads} threads");
        }
    }
}

#[test]
fn a_prompt_gives_the_same_bits_however_it_is_chunked_and_shared_over_threads() {
    check_bits(SMOLLM2, 700);
}

#[test]
fn a_windowed_softcapped_prompt_gives_the_same_bits_however_it_is_chunked() {
    let shape =
        Shape { heads: 4, kv_heads: 2, head_dim: 80, window: Some(300), softcap: Some(5.0), ..SMOLLM2 };
    check_bits(shape, 700);
}

#[test]
fn a_group_too_large_for_one_block_of_lanes_gives_the_same_bits() {
    check_bits(Shape { heads: 14, kv_heads: 2, ..SMOLLM2 }, 530);
}

#[test]
fn a_row_gives_the_same_bits_in_any_batch() {
    let lengths = [700, 1, 64, 1300, 530];
    let sequences = SMOLLM2.sequences(&mut Random(3), &lengths);
    let mut layer = SMOLLM2.layer(&sequences);
    let (mut q, mut parts) = (Vec::new(), Vec::new());
    for (row, (sequence, &len)) in sequences.iter().zip(&lengths).enumerate() {
        (0..len).for_each(|position| sequence.write(&mut layer, SMOLLM2, position));
        q.extend_from_slice(&sequence.q[(len - 1) * SMOLLM2.q_width()..]);
        parts.push(AttentionSequence {
            rows: row..row + 1,
            wide: WIDE,
            first_position: len - 1,
            blocks: &sequence.blocks,
        });
    }
    for kind in kinds() {
        let together = SMOLLM2.attend(&kernels(kind, 2), &q, &layer, &parts);
        for (row, part) in parts.iter().enumerate() {
            let at = row * SMOLLM2.q_width()..(row + 1) * SMOLLM2.q_width();
            let alone = AttentionSequence { rows: 0..1, ..part.clone() };
            let alone = SMOLLM2.attend(&kernels(kind, 2), &q[at.clone()], &layer, &[alone]);
            assert!(alone == together[at], "{kind:?}: row {row}");
        }
    }
}

#[test]
fn blocks_before_the_window_are_never_read() {
    let shape = Shape { window: Some(100), ..SMOLLM2 };
    let mut sequence = shape.sequences(&mut Random(5), &[1000]).remove(0);
    let mut layer = shape.layer(std::slice::from_ref(&sequence));
    (0..1000).for_each(|position| sequence.write(&mut layer, shape, position));
    let outside = (990 - 99) / BLOCK_TOKENS; // the first row stands at 990
    sequence.blocks[..outside].fill(u32::MAX);
    let part = AttentionSequence { rows: 0..10, wide: WIDE, first_position: 990, blocks: &sequence.blocks };
    for kind in kinds() {
        let out = shape.attend(
            &kernels(kind, 2),
            &sequence.q[990 * shape.q_width()..],
            &layer,
            std::slice::from_ref(&part),
        );
        assert!(out.iter().all(|number| number.is_finite()));
    }
}

#[test]
fn a_query_that_is_not_a_number_spoils_its_own_row_only() {
    let sequence = SMOLLM2.sequences(&mut Random(6), &[100]).remove(0);
    for kind in kinds() {
        let clean = SMOLLM2.in_chunks(&kernels(kind, 2), &sequence, || 100);
        let mut spoiled = sequence.clone();
        let at = 40 * SMOLLM2.q_width()..41 * SMOLLM2.q_width();
        spoiled.q[at.clone()].fill(f32::NAN);
        let out = SMOLLM2.in_chunks(&kernels(kind, 2), &spoiled, || 100);
        assert!(out[at.clone()].iter().all(|number| number.is_nan()), "{kind:?}");
        assert!(out[..at.start] == clean[..at.start] && out[at.end..] == clean[at.end..], "{kind:?}");
    }
}

#[test]
#[should_panic(expected = "17 positions need 2 blocks")]
fn a_block_table_too_short_for_its_positions_is_refused() {
    let layer = KvLayer::new(KvDtype::F16, 1, BLOCK_TOKENS, 3, 64);
    let part = AttentionSequence { rows: 0..1, wide: WIDE, first_position: 16, blocks: &[0] };
    SMOLLM2.attend(&kernels((Isa::Reference, Precision::Exact), 1), &[0.0; 576], &layer, &[part]);
}
