//! Formats whose codes are places in a table of values that lie denser around zero.

use super::Block;
use super::legacy::{f16, nibbles};

/// What the codes of IQ4_NL and IQ4_XS stand for, plus 128 (GGML's `kvalues_iq4nl`).
pub(super) static IQ4: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

/// Twice the 4-bit floats (E2M1) of the OCP microscaling formats, plus 16; the block's scale is halved for it.
pub(super) static MXFP4: [u8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];

pub(super) fn iq4_nl(bytes: &[u8]) -> Block {
    let mut block = Block::plain(f16(bytes, 0));
    nibbles(&bytes[2..], &mut block.codes);
    block
}

/// Scales of six bits, less 32: the low four in nibbles, the high two together in 16 bits.
pub(super) fn iq4_xs(bytes: &[u8]) -> Block {
    let mut block = Block::plain(f16(bytes, 0));
    let high = u16::from_le_bytes([bytes[2], bytes[3]]);
    for sub in 0..8 {
        let low = bytes[4 + sub / 2] >> (4 * (sub % 2)) & 15;
        block.scales[sub] = (low | ((high >> (2 * sub) & 3) as u8) << 4) as i8 - 32;
        nibbles(&bytes[8 + 16 * sub..], &mut block.codes[32 * sub..]);
    }
    block
}

/// One byte of exponent as scale: `2^(e - 127)`, halved because the table is doubled; the two smallest are subnormal.
pub(super) fn mxfp4(bytes: &[u8]) -> Block {
    let exponent = u32::from(bytes[0]);
    let half = if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 };
    let mut block = Block::plain(f32::from_bits(half));
    nibbles(&bytes[1..], &mut block.codes);
    block
}
