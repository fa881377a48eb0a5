//! The stored forms of weights: GGML's block layouts, and what every one of them comes down to.
//!
//! Every quantized block, whatever its bit layout, decodes to the same thing ([`Block`]): small unsigned codes, and for each
//! sub-block of 16 or 32 inputs an integer scale and an integer minimum under two floating ones:
//! `weight = (d * scale) * (value(code) - offset) - (m * minimum)`. The dequantizer and the packer both start from there,
//! so a new format is one decoder and one row of [`Spec`].
//!
//! Block layouts are those of GGML (`ggml-common.h`), the format of the files.
//!
//! **Invariant:** decoding loses nothing: a format's dequantization is the arithmetic above, in `f32`, in that order.

mod k;
mod legacy;
mod spec;
mod table;
pub(crate) mod typed;

use crate::error::KernelError;
pub(crate) use spec::{Codes, Scales, Spec};

/// A weight format, by its name in GGML.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    IQ4NL,
    IQ4XS,
    MXFP4,
}

/// The longest block of any format.
pub(crate) const BLOCK_LEN_MAX: usize = 256;

/// One decoded block. Codes stand in input order; only the first `block_len` of them count.
pub(crate) struct Block {
    pub codes: [u8; BLOCK_LEN_MAX],
    /// One for each sub-block; `1` in formats without sub-blocks.
    pub scales: [i8; 16],
    /// One for each sub-block; `1` in formats with one minimum per block, `0` in those without.
    pub minimums: [u8; 16],
    pub d: f32,
    /// Subtracted, so a format that stores it to be added has it negated here.
    pub m: f32,
}

impl Block {
    /// A block without sub-blocks.
    fn plain(d: f32) -> Block {
        Block { codes: [0; BLOCK_LEN_MAX], scales: [1; 16], minimums: [0; 16], d, m: 0.0 }
    }
}

impl Format {
    pub const ALL: [Format; 16] = [
        Format::F32,
        Format::F16,
        Format::BF16,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q2K,
        Format::Q3K,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
        Format::IQ4NL,
        Format::IQ4XS,
        Format::MXFP4,
    ];

    /// The format of a GGML type id, `None` for one that is not supported.
    pub fn from_ggml(id: u32) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.spec().ggml_id == id)
    }

    /// The name as GGUF tools print it.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// Inputs in one block.
    pub const fn block_len(self) -> usize {
        self.spec().block_len
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        self.spec().block_bytes
    }

    /// Bytes of one stored row; fails where `cols` is not a whole number of blocks.
    pub fn row_bytes(self, cols: usize) -> Result<usize, KernelError> {
        let block_len = self.block_len();
        if !cols.is_multiple_of(block_len) {
            return Err(KernelError::Columns { format: self, cols, block_len });
        }
        Ok(cols / block_len * self.block_bytes())
    }

    /// Decodes one block of a quantized format; `bytes` holds exactly one.
    pub(crate) fn decode(self, bytes: &[u8]) -> Block {
        debug_assert_eq!(bytes.len(), self.block_bytes());
        match self {
            Format::F32 | Format::F16 | Format::BF16 => unreachable!("floats have no codes"),
            Format::Q4_0 => legacy::q4_0(bytes),
            Format::Q4_1 => legacy::q4_1(bytes),
            Format::Q5_0 => legacy::q5_0(bytes),
            Format::Q5_1 => legacy::q5_1(bytes),
            Format::Q8_0 => legacy::q8_0(bytes),
            Format::Q2K => k::q2(bytes),
            Format::Q3K => k::q3(bytes),
            Format::Q4K => k::q4(bytes),
            Format::Q5K => k::q5(bytes),
            Format::Q6K => k::q6(bytes),
            Format::IQ4NL => table::iq4_nl(bytes),
            Format::IQ4XS => table::iq4_xs(bytes),
            Format::MXFP4 => table::mxfp4(bytes),
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Stored blocks to `f32`, plainly: `out` holds the values of `bytes` in input order.
pub fn dequantize(format: Format, bytes: &[u8], out: &mut [f32]) -> Result<(), KernelError> {
    let expected = format.row_bytes(out.len())?;
    if bytes.len() != expected {
        return Err(KernelError::Bytes { format, values: out.len(), expected, found: bytes.len() });
    }
    match format {
        Format::F32 => copy(bytes, out, f32::from_le_bytes),
        Format::F16 => copy(bytes, out, |value| half::f16::from_le_bytes(value).to_f32()),
        Format::BF16 => copy(bytes, out, |value| half::bf16::from_le_bytes(value).to_f32()),
        _ => {
            let blocks = bytes.chunks_exact(format.block_bytes());
            for (block, out) in blocks.zip(out.chunks_exact_mut(format.block_len())) {
                dequantize_block(format.spec(), &format.decode(block), out);
            }
        }
    }
    Ok(())
}

fn copy<const N: usize>(bytes: &[u8], out: &mut [f32], read: impl Fn([u8; N]) -> f32) {
    for (&value, out) in bytes.as_chunks::<N>().0.iter().zip(out) {
        *out = read(value);
    }
}

/// The arithmetic of the module's first paragraph.
fn dequantize_block(spec: &Spec, block: &Block, out: &mut [f32]) {
    let sub_len = spec.scales.sub_len();
    for (sub, out) in out.chunks_exact_mut(sub_len).enumerate() {
        let scale = block.d * f32::from(block.scales[sub]);
        let minimum = block.m * f32::from(block.minimums[sub]);
        for (&code, out) in block.codes[sub * sub_len..].iter().zip(out) {
            *out = scale * f32::from(spec.value(code)) - minimum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the values that the `gguf` package's dequantization gives (`tools/golden/dequantize.py`).
    fn check(format: Format) {
        let path =
            format!("{}/tests/goldens/{}.bin", env!("CARGO_MANIFEST_DIR"), format.name().to_lowercase());
        let golden = std::fs::read(&path).unwrap();
        let blocks = golden.len() / (format.block_bytes() + 4 * format.block_len());
        assert!(blocks >= 16, "{format}: {blocks} blocks");
        let (bytes, values) = golden.split_at(blocks * format.block_bytes());
        let mut out = vec![0.0; blocks * format.block_len()];
        dequantize(format, bytes, &mut out).unwrap();
        for (index, (value, out)) in values.as_chunks::<4>().0.iter().zip(&out).enumerate() {
            let value = f32::from_le_bytes(*value);
            assert!(value == *out, "{format}: value {index} is {out}, expected {value}");
        }
    }

    #[test]
    fn dequantizes_every_format_exactly_as_the_gguf_package_does() {
        for format in Format::ALL {
            check(format);
        }
    }

    #[test]
    fn every_ggml_id_finds_its_format() {
        for format in Format::ALL {
            assert_eq!(Format::from_ggml(format.spec().ggml_id), Some(format));
        }
        assert_eq!(Format::from_ggml(16), None); // IQ2_XXS
    }

    #[test]
    fn a_row_of_broken_blocks_is_refused() {
        assert_eq!(Format::Q4K.row_bytes(512), Ok(288));
        assert_eq!(
            Format::Q4K.row_bytes(300),
            Err(KernelError::Columns { format: Format::Q4K, cols: 300, block_len: 256 })
        );
        assert!(matches!(dequantize(Format::Q8_0, &[0; 33], &mut [0.0; 32]), Err(KernelError::Bytes { .. })));
    }
}
