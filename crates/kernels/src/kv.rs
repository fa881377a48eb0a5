//! One layer's keys and values, in blocks of tokens.
//!
//! Attention reads a block's keys and values one KV head at a time, so both lie together, in the order in which they are
//! read: `[block][kv_head]`, then the keys in tiles of sixteen tokens, `[tile][head_dim][16]`, so that one load brings one
//! dimension of sixteen keys and a score needs no sum across lanes, then the values, `[token][value_dim]`, with `value_dim`
//! the head size rounded up to sixteen. Nobody outside this crate knows this order; another number format may choose its own.
//!
//! **Invariant:** memory that was never written reads as zero and is not backed by pages.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::disjoint::Disjoint;
use crate::kernels::Kernels;
use crate::memory::{Memory, Plain};
use crate::rows::SHARED_FROM;

/// Tokens of a tile of keys.
pub(crate) const TILE: usize = 16;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvDtype {
    /// Half precision, rounded to nearest even. A number beyond its range is stored as the greatest finite one; NaN stays NaN.
    F16,
    /// As computed.
    F32,
}

impl KvDtype {
    pub const fn bytes(self) -> usize {
        match self {
            KvDtype::F16 => 2,
            KvDtype::F32 => 4,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            KvDtype::F16 => "f16",
            KvDtype::F32 => "f32",
        }
    }
}

/// One layer's paged keys and values.
#[derive(Debug)]
pub struct KvLayer {
    shape: KvShape,
    store: Store,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvShape {
    pub blocks: usize,
    pub block_tokens: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

#[derive(Debug)]
enum Store {
    F16(Memory<f16>),
    F32(Memory<f32>),
}

/// The numbers of one format, to be read by a kernel that is generic over it.
#[derive(Clone, Copy)]
pub(crate) enum KvView<'a> {
    F16(Tiles<'a, f16>),
    F32(Tiles<'a, f32>),
}

/// Typed access to the tiles of keys and the rows of values.
#[derive(Clone, Copy)]
pub(crate) struct Tiles<'a, E> {
    shape: KvShape,
    elements: &'a [E],
}

impl KvLayer {
    /// Bytes of address space that a layer of this shape takes; pages are taken only as blocks are written.
    pub fn bytes_for(
        dtype: KvDtype,
        blocks: usize,
        block_tokens: usize,
        kv_heads: usize,
        head_dim: usize,
    ) -> usize {
        KvShape { blocks, block_tokens, kv_heads, head_dim }.elements() * dtype.bytes()
    }

    /// Panics unless `block_tokens` is a multiple of sixteen and no size is zero.
    pub fn new(
        dtype: KvDtype,
        blocks: usize,
        block_tokens: usize,
        kv_heads: usize,
        head_dim: usize,
    ) -> KvLayer {
        assert!(blocks > 0 && kv_heads > 0 && head_dim > 0, "a KV layer has blocks, heads and dimensions");
        assert!(
            block_tokens > 0 && block_tokens.is_multiple_of(TILE),
            "a block holds a multiple of {TILE} tokens, not {block_tokens}"
        );
        let shape = KvShape { blocks, block_tokens, kv_heads, head_dim };
        let store = match dtype {
            KvDtype::F16 => Store::F16(Memory::zeroed(shape.elements())),
            KvDtype::F32 => Store::F32(Memory::zeroed(shape.elements())),
        };
        KvLayer { shape, store }
    }

    /// Stores one token's key and value, each `[kv_heads, head_dim]`, at `slot`: block and offset in it.
    pub fn write(&mut self, slot: (u32, usize), keys: &[f32], values: &[f32]) {
        let shape = self.shape;
        let (block, offset) = (slot.0 as usize, slot.1);
        let width = shape.kv_heads * shape.head_dim;
        assert!(
            keys.len() == width && values.len() == width,
            "a token's key and value hold {width} numbers each"
        );
        // SAFETY: the layer is borrowed as a whole.
        unsafe {
            match &mut self.store {
                Store::F16(elements) => {
                    write(shape, &Disjoint::new(elements), (block, offset), (keys, values))
                }
                Store::F32(elements) => {
                    write(shape, &Disjoint::new(elements), (block, offset), (keys, values))
                }
            }
        }
    }

    /// Makes block `to` equal to block `from`.
    pub fn copy_block(&mut self, from: u32, to: u32) {
        let shape = self.shape;
        let (from, to) = (from as usize, to as usize);
        assert!(from < shape.blocks && to < shape.blocks, "blocks {from} and {to} lie inside the KV layer");
        let len = shape.block_elements();
        let source = from * len..(from + 1) * len;
        match &mut self.store {
            Store::F16(elements) => elements.copy_within(source, to * len),
            Store::F32(elements) => elements.copy_within(source, to * len),
        }
    }

    /// Bytes of address space held, whether written yet or not.
    pub fn bytes(&self) -> usize {
        match &self.store {
            Store::F16(elements) => elements.bytes(),
            Store::F32(elements) => elements.bytes(),
        }
    }

    pub fn dtype(&self) -> KvDtype {
        match &self.store {
            Store::F16(_) => KvDtype::F16,
            Store::F32(_) => KvDtype::F32,
        }
    }

    pub fn blocks(&self) -> usize {
        self.shape.blocks
    }

    pub fn block_tokens(&self) -> usize {
        self.shape.block_tokens
    }

    pub fn kv_heads(&self) -> usize {
        self.shape.kv_heads
    }

    pub fn head_dim(&self) -> usize {
        self.shape.head_dim
    }

    pub(crate) fn shape(&self) -> KvShape {
        self.shape
    }

    pub(crate) fn view(&self) -> KvView<'_> {
        match &self.store {
            Store::F16(elements) => KvView::F16(Tiles { shape: self.shape, elements }),
            Store::F32(elements) => KvView::F32(Tiles { shape: self.shape, elements }),
        }
    }
}

impl KvShape {
    /// The head size rounded up to whole vectors: what a row of values takes.
    pub fn value_dim(self) -> usize {
        self.head_dim.next_multiple_of(TILE)
    }

    fn head_elements(self) -> usize {
        self.block_tokens * (self.head_dim + self.value_dim())
    }

    fn block_elements(self) -> usize {
        self.kv_heads * self.head_elements()
    }

    fn elements(self) -> usize {
        self.blocks.checked_mul(self.block_elements()).expect("a KV layer fits the address space")
    }

    /// Where the keys of a block's head begin.
    fn keys(self, block: usize, head: usize) -> usize {
        (block * self.kv_heads + head) * self.head_elements()
    }

    /// Where the values of a block's head begin.
    fn values(self, block: usize, head: usize) -> usize {
        self.keys(block, head) + self.block_tokens * self.head_dim
    }
}

impl<'a, E: Copy> Tiles<'a, E> {
    /// Sixteen keys of one head, `tile` counted within the block: `[head_dim][16]`.
    #[inline(always)]
    pub fn keys(self, block: u32, head: usize, tile: usize) -> &'a [[E; TILE]] {
        let len = TILE * self.shape.head_dim;
        let start = self.shape.keys(block as usize, head) + tile * len;
        self.elements[start..start + len].as_chunks().0
    }

    /// The values of the same sixteen tokens: `[16][value_dim]`, in vectors of sixteen.
    #[inline(always)]
    pub fn values(self, block: u32, head: usize, tile: usize) -> &'a [[E; TILE]] {
        let len = TILE * self.shape.value_dim();
        let start = self.shape.values(block as usize, head) + tile * len;
        self.elements[start..start + len].as_chunks().0
    }
}

/// Numbers converted at a time.
const PIECE: usize = 64;

/// A number as it is stored.
trait Stored: Plain {
    const ZERO: Self;

    fn convert(numbers: &[f32], to: &mut [Self]);
}

impl Stored for f16 {
    const ZERO: f16 = f16::ZERO;

    fn convert(numbers: &[f32], to: &mut [f16]) {
        const GREATEST: f32 = 65504.0;
        let mut clamped = [0.0; PIECE];
        let clamped = &mut clamped[..numbers.len()];
        clamped.iter_mut().zip(numbers).for_each(|(to, number)| *to = number.clamp(-GREATEST, GREATEST));
        to.convert_from_f32_slice(clamped);
    }
}

impl Stored for f32 {
    const ZERO: f32 = 0.0;

    fn convert(numbers: &[f32], to: &mut [f32]) {
        to.copy_from_slice(numbers);
    }
}

/// Stores one token's key and value, `[kv_heads, head_dim]` each.
///
/// # Safety
/// Nobody else reads or writes the token's place.
unsafe fn write<E: Stored>(
    shape: KvShape,
    elements: &Disjoint<'_, E>,
    (block, offset): (usize, usize),
    (keys, values): (&[f32], &[f32]),
) {
    assert!(
        block < shape.blocks && offset < shape.block_tokens,
        "slot {:?} lies outside the KV layer",
        (block, offset)
    );
    let dim = shape.head_dim;
    let mut piece = [E::ZERO; PIECE];
    for (head, (key, value)) in keys.chunks_exact(dim).zip(values.chunks_exact(dim)).enumerate() {
        let lane = shape.keys(block, head) + offset / TILE * TILE * dim + offset % TILE;
        for (index, numbers) in key.chunks(PIECE).enumerate() {
            let piece = &mut piece[..numbers.len()];
            E::convert(numbers, piece);
            for (dim, number) in (index * PIECE..).zip(piece) {
                // SAFETY: the slot lies inside the layer, and so do all dimensions of its key; they are the token's own.
                unsafe { elements.as_mut_ptr().add(lane + dim * TILE).write(*number) };
            }
        }
        let row = shape.values(block, head) + offset * shape.value_dim();
        for (index, numbers) in value.chunks(PIECE).enumerate() {
            let start = row + index * PIECE;
            // SAFETY: the values are the token's own.
            E::convert(numbers, unsafe { elements.part(start..start + numbers.len()) });
        }
    }
}

/// Which of some parts a block falls to: evenly, also where a sequence has every second block.
fn part_of(block: u32, parts: usize) -> usize {
    (block.wrapping_mul(0x9e37_79b1) >> 16) as usize % parts
}

impl Kernels {
    /// Stores rows' keys and values, each `[slots, kv_heads, head_dim]`, at their slots: block and offset in it.
    ///
    /// Panics where a slot lies outside the layer, or the lengths do not fit.
    pub fn store(&self, layer: &mut KvLayer, slots: &[(u32, usize)], keys: &[f32], values: &[f32]) {
        let shape = layer.shape;
        match &mut layer.store {
            Store::F16(elements) => self.store_as(shape, elements, slots, (keys, values)),
            Store::F32(elements) => self.store_as(shape, elements, slots, (keys, values)),
        }
    }

    fn store_as<E: Stored>(
        &self,
        shape: KvShape,
        elements: &mut [E],
        slots: &[(u32, usize)],
        (keys, values): (&[f32], &[f32]),
    ) {
        let width = shape.kv_heads * shape.head_dim;
        assert!(
            keys.len() == slots.len() * width && values.len() == keys.len(),
            "a token's key and value hold {width} numbers each"
        );
        let elements = Disjoint::new(elements);
        let threads = if keys.len() < SHARED_FROM { 1 } else { self.pool.threads() };
        // A block is one thread's, so that no slot is two threads'.
        let part = |part: usize| {
            let rows = keys.chunks_exact(width).zip(values.chunks_exact(width));
            for (&(block, offset), row) in slots.iter().zip(rows) {
                if part_of(block, threads) == part {
                    // SAFETY: blocks are shared out over the parts, each of which is one thread's.
                    unsafe { write(shape, &elements, (block as usize, offset), row) };
                }
            }
        };
        match threads {
            1 => part(0),
            _ => self.pool.for_each(threads, &part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(layer: &KvLayer, block: u32, head: usize, token: usize) -> (Vec<f32>, Vec<f32>) {
        fn read<E: Copy>(
            tiles: Tiles<'_, E>,
            at: (u32, usize, usize),
            f32_of: fn(E) -> f32,
        ) -> (Vec<f32>, Vec<f32>) {
            let (block, head, token) = at;
            let (tile, lane, shape) = (token / TILE, token % TILE, tiles.shape);
            let keys = tiles.keys(block, head, tile).iter().map(|dim| f32_of(dim[lane])).collect();
            let values = tiles.values(block, head, tile).as_flattened();
            let row = &values[lane * shape.value_dim()..][..shape.head_dim];
            (keys, row.iter().map(|&number| f32_of(number)).collect())
        }
        match layer.view() {
            KvView::F16(tiles) => read(tiles, (block, head, token), f16::to_f32),
            KvView::F32(tiles) => read(tiles, (block, head, token), |number| number),
        }
    }

    #[test]
    fn every_token_reads_back_from_its_own_slot() {
        for (dtype, head_dim) in [(KvDtype::F32, 64), (KvDtype::F16, 80), (KvDtype::F16, 100)] {
            let (blocks, tokens, heads) = (3, 32, 2);
            let mut layer = KvLayer::new(dtype, blocks, tokens, heads, head_dim);
            let key = |block: usize, token: usize, i: usize| ((block * 100 + token * 3 + i) % 2039) as f32;
            for block in 0..blocks {
                for token in 0..tokens {
                    let k: Vec<f32> = (0..heads * head_dim).map(|i| key(block, token, i)).collect();
                    let v: Vec<f32> = k.iter().map(|number| -number).collect();
                    layer.write((block as u32, token), &k, &v);
                }
            }
            for (block, token, head) in [(0, 0, 0), (0, 31, 1), (2, 17, 0), (1, 16, 1), (2, 31, 1)] {
                let (k, v) = numbers(&layer, block as u32, head, token);
                let expected: Vec<f32> =
                    (0..head_dim).map(|i| key(block, token, head * head_dim + i)).collect();
                assert_eq!(k, expected);
                assert_eq!(v, expected.iter().map(|number| -number).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn rows_are_stored_as_one_by_one_on_any_number_of_threads() {
        let (blocks, tokens, heads, head_dim) = (9, 32, 3, 100);
        for dtype in [KvDtype::F16, KvDtype::F32] {
            let slots: Vec<(u32, usize)> =
                (0..150).map(|row| ((row * 7 % blocks) as u32, row / blocks)).collect();
            let keys: Vec<f32> =
                (0..slots.len() * heads * head_dim).map(|i| (i as f32 * 0.37).sin() * 7e4).collect();
            let values: Vec<f32> = keys.iter().map(|number| number / 3.0).collect();
            let mut expected = KvLayer::new(dtype, blocks, tokens, heads, head_dim);
            let rows = keys.chunks(heads * head_dim).zip(values.chunks(heads * head_dim));
            slots.iter().zip(rows).for_each(|(slot, (key, value))| expected.write(*slot, key, value));
            for threads in 1..=3 {
                let mut layer = KvLayer::new(dtype, blocks, tokens, heads, head_dim);
                let kernels = Kernels::new(crate::Isa::Reference, crate::Precision::Exact, threads).unwrap();
                kernels.store(&mut layer, &slots, &keys, &values);
                let all = (0..blocks as u32).flat_map(|block| {
                    (0..heads).flat_map(move |head| (0..tokens).map(move |token| (block, head, token)))
                });
                for (block, head, token) in all {
                    assert_eq!(numbers(&layer, block, head, token), numbers(&expected, block, head, token));
                }
            }
        }
    }

    #[test]
    fn a_copied_block_equals_its_source_and_then_lives_alone() {
        let mut layer = KvLayer::new(KvDtype::F16, 2, 16, 1, 64);
        layer.write((0, 5), &[1.5; 64], &[2.5; 64]);
        layer.copy_block(0, 1);
        layer.write((0, 5), &[0.0; 64], &[0.0; 64]);
        assert_eq!(numbers(&layer, 1, 0, 5), (vec![1.5; 64], vec![2.5; 64]));
        assert_eq!(numbers(&layer, 1, 0, 6), (vec![0.0; 64], vec![0.0; 64]));
    }

    #[test]
    fn half_precision_saturates_and_keeps_nan() {
        let mut layer = KvLayer::new(KvDtype::F16, 1, 16, 1, 16);
        let mut key = [1e6; 16];
        key[1] = f32::NEG_INFINITY;
        key[2] = f32::NAN;
        layer.write((0, 0), &key, &[-7e4; 16]);
        let (k, v) = numbers(&layer, 0, 0, 0);
        assert_eq!((k[0], k[1], v[0]), (65504.0, -65504.0, -65504.0));
        assert!(k[2].is_nan());
    }

    #[test]
    #[should_panic(expected = "multiple of 16 tokens, not 24")]
    fn a_block_of_a_broken_tile_is_refused() {
        KvLayer::new(KvDtype::F16, 1, 24, 1, 64);
    }
}
