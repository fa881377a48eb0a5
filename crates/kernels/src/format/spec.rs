//! The table of formats: sizes as stored, and the shape that codes and scales take when packed.
//!
//! **Invariant:** a packed code is what the decoder gave, and packed scales are those of the file, so packing loses nothing.

use super::Format;
use super::table::{IQ4, MXFP4};

/// What is fixed about one format.
pub(crate) struct Spec {
    pub name: &'static str,
    pub ggml_id: u32,
    /// Inputs in one stored block.
    pub block_len: usize,
    /// Bytes of one stored block.
    pub block_bytes: usize,
    pub codes: Codes,
    pub scales: Scales,
    /// What a code stands for, where that is not itself.
    pub table: Option<&'static [u8; 16]>,
    /// What is subtracted from a code, or from what it stands for.
    pub offset: u8,
}

/// The bit planes of packed codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codes {
    /// Not quantized: whole numbers of this many bytes.
    Float(usize),
    /// Two bits.
    Two,
    /// Two bits and one.
    Three,
    /// Four bits.
    Four,
    /// Four bits and one.
    Five,
    /// Four bits and two.
    Six,
    /// Eight bits.
    Eight,
}

/// The packed scales of 16 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    None,
    /// `d` as f16 per 32 inputs.
    F16,
    /// `d` as bf16 per 32 inputs.
    Bf16,
    /// `d` and `m` as f16 per 32 inputs.
    F16Min,
    /// A signed byte per 32 inputs under `d` as f16 per 256.
    Sub32,
    /// Two bytes per 32 inputs, scale and minimum, under `d` and `m` as f16 per 256.
    Sub32Min,
    /// A signed byte per 16 inputs under `d` as f16 per 256.
    Sub16,
    /// One byte per 16 inputs, scale in the low and minimum in the high four bits, under `d` and `m` as f16 per 256.
    Sub16Min,
}

impl Codes {
    /// Bytes of 16 rows by 32 inputs.
    pub const fn unit_bytes(self) -> usize {
        let bits = match self {
            Codes::Float(bytes) => 8 * bytes,
            Codes::Two => 2,
            Codes::Three => 3,
            Codes::Four => 4,
            Codes::Five => 5,
            Codes::Six => 6,
            Codes::Eight => 8,
        };
        bits * 16 * 32 / 8
    }
}

impl Scales {
    /// Inputs under one pair of integer scale and minimum.
    pub const fn sub_len(self) -> usize {
        match self {
            Scales::Sub16 | Scales::Sub16Min => 16,
            _ => 32,
        }
    }

    /// Inputs under one floating scale.
    pub const fn super_len(self) -> usize {
        match self {
            Scales::None | Scales::F16 | Scales::Bf16 | Scales::F16Min => 32,
            Scales::Sub32 | Scales::Sub32Min | Scales::Sub16 | Scales::Sub16Min => 256,
        }
    }

    /// Bytes of the scales of 16 rows by [`Scales::super_len`] inputs.
    pub const fn super_bytes(self) -> usize {
        let per_row = match self {
            Scales::None => 0,
            Scales::F16 | Scales::Bf16 => 2,
            Scales::F16Min => 4,
            Scales::Sub32 => 2 + 8,
            Scales::Sub32Min => 4 + 16,
            Scales::Sub16 => 2 + 16,
            Scales::Sub16Min => 4 + 16,
        };
        16 * per_row
    }

    /// Whether weights have minimums.
    pub const fn has_minimums(self) -> bool {
        matches!(self, Scales::F16Min | Scales::Sub32Min | Scales::Sub16Min)
    }
}

impl Spec {
    /// The integer that a code stands for.
    pub const fn value(&self, code: u8) -> i16 {
        let value = match self.table {
            Some(table) => table[code as usize],
            None => code,
        };
        value as i16 - self.offset as i16
    }
}

const fn float(name: &'static str, ggml_id: u32, bytes: usize) -> Spec {
    let (codes, scales) = (Codes::Float(bytes), Scales::None);
    Spec { name, ggml_id, block_len: 1, block_bytes: bytes, codes, scales, table: None, offset: 0 }
}

const fn block_32(
    name: &'static str,
    ggml_id: u32,
    block_bytes: usize,
    codes: Codes,
    scales: Scales,
) -> Spec {
    Spec { name, ggml_id, block_len: 32, block_bytes, codes, scales, table: None, offset: 0 }
}

const fn block_256(
    name: &'static str,
    ggml_id: u32,
    block_bytes: usize,
    codes: Codes,
    scales: Scales,
) -> Spec {
    Spec { name, ggml_id, block_len: 256, block_bytes, codes, scales, table: None, offset: 0 }
}

const F32: Spec = float("F32", 0, 4);
const F16: Spec = float("F16", 1, 2);
const BF16: Spec = float("BF16", 30, 2);
const Q4_0: Spec = Spec { offset: 8, ..block_32("Q4_0", 2, 18, Codes::Four, Scales::F16) };
const Q4_1: Spec = block_32("Q4_1", 3, 20, Codes::Four, Scales::F16Min);
const Q5_0: Spec = Spec { offset: 16, ..block_32("Q5_0", 6, 22, Codes::Five, Scales::F16) };
const Q5_1: Spec = block_32("Q5_1", 7, 24, Codes::Five, Scales::F16Min);
const Q8_0: Spec = Spec { offset: 128, ..block_32("Q8_0", 8, 34, Codes::Eight, Scales::F16) };
const Q2_K: Spec = block_256("Q2_K", 10, 84, Codes::Two, Scales::Sub16Min);
const Q3_K: Spec = Spec { offset: 4, ..block_256("Q3_K", 11, 110, Codes::Three, Scales::Sub16) };
const Q4_K: Spec = block_256("Q4_K", 12, 144, Codes::Four, Scales::Sub32Min);
const Q5_K: Spec = block_256("Q5_K", 13, 176, Codes::Five, Scales::Sub32Min);
const Q6_K: Spec = Spec { offset: 32, ..block_256("Q6_K", 14, 210, Codes::Six, Scales::Sub16) };
const IQ4_NL: Spec =
    Spec { table: Some(&IQ4), offset: 128, ..block_32("IQ4_NL", 20, 18, Codes::Four, Scales::F16) };
const IQ4_XS: Spec =
    Spec { table: Some(&IQ4), offset: 128, ..block_256("IQ4_XS", 23, 136, Codes::Four, Scales::Sub32) };
const MXFP4_: Spec =
    Spec { table: Some(&MXFP4), offset: 16, ..block_32("MXFP4", 39, 17, Codes::Four, Scales::Bf16) };

impl Format {
    pub(crate) const fn spec(self) -> &'static Spec {
        match self {
            Format::F32 => &F32,
            Format::F16 => &F16,
            Format::BF16 => &BF16,
            Format::Q4_0 => &Q4_0,
            Format::Q4_1 => &Q4_1,
            Format::Q5_0 => &Q5_0,
            Format::Q5_1 => &Q5_1,
            Format::Q8_0 => &Q8_0,
            Format::Q2K => &Q2_K,
            Format::Q3K => &Q3_K,
            Format::Q4K => &Q4_K,
            Format::Q5K => &Q5_K,
            Format::Q6K => &Q6_K,
            Format::IQ4NL => &IQ4_NL,
            Format::IQ4XS => &IQ4_XS,
            Format::MXFP4 => &MXFP4_,
        }
    }
}
