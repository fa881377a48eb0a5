//! GGML's K formats: blocks of 256 inputs with small integer scales for sub-blocks of 16 or 32.

use super::Block;
use super::legacy::f16;

/// Scale and minimum of a sub-block in four bits each; codes in two bits, 32 bytes holding four runs of 32 inputs.
pub(super) fn q2(bytes: &[u8]) -> Block {
    let (scales, codes) = (&bytes[..16], &bytes[16..80]);
    let mut block = Block { m: f16(bytes, 82), ..Block::plain(f16(bytes, 80)) };
    for (sub, &scale) in scales.iter().enumerate() {
        block.scales[sub] = (scale & 15) as i8;
        block.minimums[sub] = scale >> 4;
    }
    two_bits(codes, &mut block.codes);
    block
}

/// Codes of three bits, the third in a mask of its own; scales of six bits, less 32.
pub(super) fn q3(bytes: &[u8]) -> Block {
    let (mask, codes, scales) = (&bytes[..32], &bytes[32..96], &bytes[96..108]);
    let mut block = Block::plain(f16(bytes, 108));
    for sub in 0..16 {
        let low = scales[sub % 8] >> (4 * (sub / 8)) & 15;
        let high = scales[8 + sub % 4] >> (2 * (sub / 4)) & 3;
        block.scales[sub] = (low | high << 4) as i8 - 32;
    }
    two_bits(codes, &mut block.codes);
    for (input, code) in block.codes.iter_mut().enumerate() {
        *code |= (mask[input % 32] >> (input / 32) & 1) << 2;
    }
    block
}

pub(super) fn q4(bytes: &[u8]) -> Block {
    let mut block = Block { m: f16(bytes, 2), ..Block::plain(f16(bytes, 0)) };
    six_bit_scales(&bytes[4..16], &mut block);
    nibble_runs(&bytes[16..144], &mut block.codes);
    block
}

pub(super) fn q5(bytes: &[u8]) -> Block {
    let mut block = Block { m: f16(bytes, 2), ..Block::plain(f16(bytes, 0)) };
    six_bit_scales(&bytes[4..16], &mut block);
    nibble_runs(&bytes[48..176], &mut block.codes);
    for (input, code) in block.codes.iter_mut().enumerate() {
        *code |= (bytes[16 + input % 32] >> (input / 32) & 1) << 4;
    }
    block
}

/// Codes of six bits in two halves of 128 inputs: 64 bytes of low nibbles, 32 bytes of high pairs; signed bytes as scales.
pub(super) fn q6(bytes: &[u8]) -> Block {
    let (low, high, scales) = (&bytes[..128], &bytes[128..192], &bytes[192..208]);
    let mut block = Block::plain(f16(bytes, 208));
    for (sub, &scale) in scales.iter().enumerate() {
        block.scales[sub] = scale as i8;
    }
    for (input, code) in block.codes.iter_mut().enumerate() {
        let (half, run, lane) = (input / 128, input % 128 / 32, input % 32);
        let nibble = low[64 * half + 32 * (run % 2) + lane] >> (4 * (run / 2)) & 15;
        let pair = high[32 * half + lane] >> (2 * run) & 3;
        *code = nibble | pair << 4;
    }
    block
}

/// Two halves of 128 inputs, 32 bytes each; the four pairs of a byte belong to inputs 32 apart.
fn two_bits(bytes: &[u8], codes: &mut [u8]) {
    for (input, code) in codes.iter_mut().enumerate() {
        let (half, run, lane) = (input / 128, input % 128 / 32, input % 32);
        *code = bytes[32 * half + lane] >> (2 * run) & 3;
    }
}

/// Four times 32 bytes; the low nibbles are 32 inputs, the high ones the next 32.
fn nibble_runs(bytes: &[u8], codes: &mut [u8]) {
    for (input, code) in codes.iter_mut().enumerate() {
        let (run, lane) = (input / 32, input % 32);
        *code = bytes[32 * (run / 2) + lane] >> (4 * (run % 2)) & 15;
    }
}

/// Eight scales and eight minimums of six bits in twelve bytes: the first four of each have a byte of their own, whose top two
/// bits lend themselves to the last four.
fn six_bit_scales(bytes: &[u8], block: &mut Block) {
    for sub in 0..4 {
        block.scales[sub] = (bytes[sub] & 63) as i8;
        block.minimums[sub] = bytes[sub + 4] & 63;
        block.scales[sub + 4] = (bytes[sub + 8] & 15 | bytes[sub] >> 6 << 4) as i8;
        block.minimums[sub + 4] = bytes[sub + 8] >> 4 | bytes[sub + 4] >> 6 << 4;
    }
}
