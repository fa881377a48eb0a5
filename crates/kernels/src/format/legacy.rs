//! GGML's first formats: blocks of 32 inputs with one floating scale, and one floating minimum in the `_1` kind.

use super::Block;

/// The little-endian f16 at `at`.
pub(super) fn f16(bytes: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Sixteen bytes of nibbles: the low ones are the first sixteen inputs, the high ones the next sixteen.
pub(super) fn nibbles(bytes: &[u8], codes: &mut [u8]) {
    for (input, &byte) in bytes[..16].iter().enumerate() {
        codes[input] = byte & 15;
        codes[input + 16] = byte >> 4;
    }
}

/// The fifth bits of 32 codes: bit `i` belongs to input `i`.
fn fifth_bits(bytes: &[u8], codes: &mut [u8]) {
    for (input, code) in codes[..32].iter_mut().enumerate() {
        *code |= (bytes[input / 8] >> (input % 8) & 1) << 4;
    }
}

pub(super) fn q4_0(bytes: &[u8]) -> Block {
    let mut block = Block::plain(f16(bytes, 0));
    nibbles(&bytes[2..], &mut block.codes);
    block
}

pub(super) fn q4_1(bytes: &[u8]) -> Block {
    let mut block = Block { m: -f16(bytes, 2), minimums: [1; 16], ..Block::plain(f16(bytes, 0)) };
    nibbles(&bytes[4..], &mut block.codes);
    block
}

pub(super) fn q5_0(bytes: &[u8]) -> Block {
    let mut block = Block::plain(f16(bytes, 0));
    nibbles(&bytes[6..], &mut block.codes);
    fifth_bits(&bytes[2..6], &mut block.codes);
    block
}

pub(super) fn q5_1(bytes: &[u8]) -> Block {
    let mut block = Block { m: -f16(bytes, 2), minimums: [1; 16], ..Block::plain(f16(bytes, 0)) };
    nibbles(&bytes[8..], &mut block.codes);
    fifth_bits(&bytes[4..8], &mut block.codes);
    block
}

/// Stored as signed bytes; flipping the top bit adds 128.
pub(super) fn q8_0(bytes: &[u8]) -> Block {
    let mut block = Block::plain(f16(bytes, 0));
    for (code, &byte) in block.codes.iter_mut().zip(&bytes[2..34]) {
        *code = byte ^ 0x80;
    }
    block
}
