//! Seeded random data for this crate's tests.

use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::format::Format;

/// A generator whose seed is `name`, so that a failing case comes back.
pub(crate) fn rng(name: &str) -> Rng {
    let mut seed = [0; 32];
    for (index, byte) in name.bytes().enumerate() {
        seed[index % 32] ^= byte;
    }
    Rng(TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

pub(crate) struct Rng(TestRng);

impl Rng {
    pub fn bits(&mut self) -> u32 {
        use proptest::prelude::Rng as _;
        self.0.next_u32()
    }

    /// Uniform in `[-1, 1)`.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Roughly normal, with now and then a value twenty times as large, as activations have them.
    pub fn normal(&mut self) -> f32 {
        let sum: f32 = (0..4).map(|_| self.unit()).sum();
        if self.bits().is_multiple_of(64) { 20.0 * sum } else { sum }
    }

    pub fn normals(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.normal()).collect()
    }
}

/// Stored blocks of random codes, whose scales are of ordinary size but for a few that are zero, tiny or large.
pub(crate) fn random_blocks(rng: &mut Rng, format: Format, values: usize) -> Vec<u8> {
    let floats = |rng: &mut Rng| -> f32 { rng.normal() * 0.05 };
    if format.block_len() == 1 {
        return (0..values)
            .flat_map(|_| match format {
                Format::F32 => floats(rng).to_le_bytes().to_vec(),
                Format::F16 => half::f16::from_f32(floats(rng)).to_le_bytes().to_vec(),
                _ => half::bf16::from_f32(floats(rng)).to_le_bytes().to_vec(),
            })
            .collect();
    }
    let mut bytes: Vec<u8> =
        (0..values / format.block_len() * format.block_bytes()).map(|_| rng.bits() as u8).collect();
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        if format == Format::MXFP4 {
            block[0] = if rng.bits().is_multiple_of(16) { block[0] / 128 } else { 118 + block[0] % 8 };
        }
        for &at in scales_at(format) {
            let scale = match rng.bits() % 32 {
                0 => 0.0,
                1 => 6e-8,
                2 => 8.0,
                _ => 0.01 * rng.unit(),
            };
            block[at..at + 2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
        }
    }
    bytes
}

/// Where a block keeps its f16 scales.
fn scales_at(format: Format) -> &'static [usize] {
    match format {
        Format::F32 | Format::F16 | Format::BF16 | Format::MXFP4 => &[],
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 | Format::IQ4NL | Format::IQ4XS => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
        Format::Q2K => &[80, 82],
        Format::Q3K => &[108],
        Format::Q6K => &[208],
    }
}
