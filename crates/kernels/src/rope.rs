//! Rotary positions: the table of angles and the rotation of queries and keys.
//!
//! **Invariant:** a position's row of the table is computed once, in double precision, whoever asks first; rotating a row
//! depends on nothing but the row and its position.

use std::sync::OnceLock;

use crate::detect::Backend;
use crate::kernels::Kernels;
use crate::reference::rope::Rotation;
use crate::rows::on_backend;
#[cfg(target_arch = "x86_64")]
use crate::vector::Simd;

/// Which two numbers of a head are rotated as a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// Neighbours: 2i and 2i + 1.
    Norm,
    /// Halves: i and i + dims / 2.
    Neox,
}

/// How the frequencies are stretched for contexts longer than those of the training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// All frequencies divided by the factor.
    Linear {
        factor: f32,
    },
    /// As Llama 3.1 does it: wavelengths beyond `original_context / low` are divided by the factor, those below
    /// `original_context / high` stay, and those between are interpolated.
    Llama3 {
        factor: f32,
        low: f32,
        high: f32,
        original_context: u32,
    },
}

/// What the angles are computed from.
#[derive(Clone, Copy, Debug)]
pub struct RopeParameters<'a> {
    /// How many numbers of a head are rotated, from its start; even.
    pub dims: usize,
    /// Base of the frequencies: pair i turns by `base^(-2i / dims)` per position.
    pub base: f32,
    pub scaling: RopeScaling,
    /// `[dims / 2]`: each pair's frequency is divided by its factor (`rope_freqs` of a GGUF file).
    pub factors: Option<&'a [f32]>,
    /// Positions below this may be asked for.
    pub positions: usize,
}

/// Cosines and sines by position, computed in chunks as they are first needed.
#[derive(Debug)]
pub struct RopeTable {
    frequencies: Vec<f64>,             // [dims / 2], radians per position
    chunks: Vec<OnceLock<Box<[f32]>>>, // each [CHUNK positions, dims]: cosines of the pairs, then sines
    positions: usize,
}

/// Positions whose angles are computed together: a small cost at once, and few locks.
const CHUNK: usize = 128;

impl RopeTable {
    /// Panics where `dims` is odd or zero, or the factors are not one per pair.
    pub fn new(parameters: RopeParameters<'_>) -> RopeTable {
        let RopeParameters { dims, base, scaling, factors, positions } = parameters;
        assert!(dims > 0 && dims.is_multiple_of(2), "rotary dimensions come in pairs, not {dims}");
        let pairs = dims / 2;
        assert!(
            factors.is_none_or(|factors| factors.len() == pairs),
            "one frequency factor per pair of {pairs}"
        );
        let frequency = |pair: usize| {
            let plain = f64::from(base).powf(-2.0 * pair as f64 / dims as f64);
            scaling.apply(plain) / factors.map_or(1.0, |factors| f64::from(factors[pair]))
        };
        RopeTable {
            frequencies: (0..pairs).map(frequency).collect(),
            chunks: (0..positions.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            positions,
        }
    }

    /// How many numbers of a head are rotated.
    pub fn dims(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// Cosines and sines of one position's pairs, `[dims / 2]` each.
    pub(crate) fn row(&self, position: u32) -> (&[f32], &[f32]) {
        let position = position as usize;
        assert!(position < self.positions, "position {position} lies beyond the table's {}", self.positions);
        let chunk = self.chunks[position / CHUNK].get_or_init(|| self.chunk(position / CHUNK));
        chunk[position % CHUNK * self.dims()..][..self.dims()].split_at(self.frequencies.len())
    }

    fn chunk(&self, index: usize) -> Box<[f32]> {
        let mut rows = Vec::with_capacity(CHUNK * self.dims());
        for position in index * CHUNK..(index + 1) * CHUNK {
            let angles = self.frequencies.iter().map(|frequency| position as f64 * frequency);
            rows.extend(angles.clone().map(|angle| angle.cos() as f32));
            rows.extend(angles.map(|angle| angle.sin() as f32));
        }
        rows.into_boxed_slice()
    }
}

impl RopeScaling {
    fn apply(self, frequency: f64) -> f64 {
        match self {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / f64::from(factor),
            RopeScaling::Llama3 { factor, low, high, original_context } => {
                let (low, high) = (f64::from(low), f64::from(high));
                let turns = f64::from(original_context) * frequency / std::f64::consts::TAU; // in the original context
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (kept + (1.0 - kept) / f64::from(factor))
            }
        }
    }
}

impl Kernels {
    /// Rotates `x` `[rows, heads, head_dim]` in place, row r by `positions[r]`; numbers of a head beyond the table's
    /// dimensions stay as they are.
    #[expect(clippy::too_many_arguments, reason = "the sizes of `x` come one by one, as everywhere else")]
    pub fn rope(
        &self,
        x: &mut [f32],
        positions: &[u32],
        heads: usize,
        head_dim: usize,
        table: &RopeTable,
        style: RopeStyle,
    ) {
        let width = heads * head_dim;
        assert_eq!(
            x.len(),
            positions.len() * width,
            "rope: one row of {heads} heads x {head_dim} per position"
        );
        assert!(table.dims() <= head_dim, "rope: {} rotary dimensions in a head of {head_dim}", table.dims());
        self.share_rows(x, width, &|first, part| {
            for (row, &position) in part.chunks_exact_mut(width).zip(&positions[first..]) {
                let rotation = Rotation { row, head_dim, angles: table.row(position), style };
                on_backend!(self.backend, rotation);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, Precision};

    const PLAIN: RopeParameters<'_> =
        RopeParameters { dims: 64, base: 1e4, scaling: RopeScaling::None, factors: None, positions: 4096 };

    fn kernels(isa: Isa, threads: usize) -> Kernels {
        Kernels::new(isa, Precision::Exact, threads).unwrap()
    }

    /// Rotates one head by complex multiplication in double precision.
    fn naive(head: &[f32], position: u32, dims: usize, base: f64, style: RopeStyle) -> Vec<f64> {
        let mut rotated: Vec<f64> = head.iter().map(|&number| f64::from(number)).collect();
        for pair in 0..dims / 2 {
            let (a, b) = match style {
                RopeStyle::Norm => (2 * pair, 2 * pair + 1),
                RopeStyle::Neox => (pair, pair + dims / 2),
            };
            let (sin, cos) = (f64::from(position) / base.powf(2.0 * pair as f64 / dims as f64)).sin_cos();
            let (x, y) = (rotated[a], rotated[b]);
            (rotated[a], rotated[b]) = (x * cos - y * sin, x * sin + y * cos);
        }
        rotated
    }

    fn check(isa: Isa, style: RopeStyle, heads: usize, head_dim: usize, dims: usize) {
        let positions = [0, 1, 127, 128, 4095, 7];
        let table = RopeTable::new(RopeParameters { dims, ..PLAIN });
        let x: Vec<f32> = (0..positions.len() * heads * head_dim).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut rotated = x.clone();
        kernels(isa, 2).rope(&mut rotated, &positions, heads, head_dim, &table, style);
        for (row, &position) in positions.iter().enumerate() {
            for head in 0..heads {
                let at = (row * heads + head) * head_dim;
                let expected = naive(&x[at..at + head_dim], position, dims, 1e4, style);
                for (i, (&got, expected)) in rotated[at..at + head_dim].iter().zip(expected).enumerate() {
                    assert!(
                        (f64::from(got) - expected).abs() < 3e-7,
                        "{isa} {style:?} row {row} head {head} [{i}]"
                    );
                }
            }
        }
    }

    #[test]
    fn both_styles_rotate_as_complex_numbers_do_and_leave_the_rest() {
        for isa in Isa::available() {
            for style in [RopeStyle::Norm, RopeStyle::Neox] {
                for (heads, head_dim, dims) in
                    [(9, 64, 64), (3, 80, 32), (1, 256, 256), (2, 100, 100), (5, 6, 2)]
                {
                    check(isa, style, heads, head_dim, dims);
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_and_thread_count_gives_the_same_bits() {
        let (rows, heads, head_dim) = (300, 4, 80);
        let positions: Vec<u32> = (0..rows as u32).collect();
        let table = RopeTable::new(RopeParameters { dims: 80, ..PLAIN });
        let x: Vec<f32> = (0..rows * heads * head_dim).map(|i| (i as f32 * 0.11).cos()).collect();
        let rotate = |isa, threads| {
            let mut x = x.clone();
            kernels(isa, threads).rope(&mut x, &positions, heads, head_dim, &table, RopeStyle::Neox);
            x
        };
        let reference = rotate(Isa::Reference, 1);
        for isa in Isa::available() {
            for threads in 1..=3 {
                assert!(rotate(isa, threads) == reference, "{isa} with {threads} threads");
            }
        }
    }

    #[test]
    fn factors_and_scaling_divide_the_frequencies() {
        let frequencies = |parameters| RopeTable::new(parameters).frequencies;
        let plain = frequencies(PLAIN);
        let linear = frequencies(RopeParameters { scaling: RopeScaling::Linear { factor: 4.0 }, ..PLAIN });
        assert!(plain.iter().zip(&linear).all(|(plain, scaled)| plain / 4.0 == *scaled));
        let factors: Vec<f32> = (0..32).map(|pair| 1.0 + pair as f32).collect();
        let divided = frequencies(RopeParameters { factors: Some(&factors), ..PLAIN });
        assert!(
            plain.iter().zip(&divided).zip(1..).all(|((plain, divided), n)| plain / f64::from(n) == *divided)
        );
    }

    /// The numbers of Llama 3.1: factor 8, low 1, high 4, 8192 positions, base 5e5, 128 dimensions. Wavelengths below
    /// 8192 / 4 keep their frequency, those above 8192 are divided by 8.
    #[test]
    fn llama3_scaling_keeps_short_waves_and_stretches_long_ones() {
        let scaling = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original_context: 8192 };
        let parameters = RopeParameters { dims: 128, base: 5e5, ..PLAIN };
        let plain = RopeTable::new(parameters).frequencies;
        let scaled = RopeTable::new(RopeParameters { scaling, ..parameters }).frequencies;
        for (plain, scaled) in plain.iter().zip(&scaled) {
            let wavelength = std::f64::consts::TAU / plain;
            let ratio = plain / scaled;
            match wavelength {
                short if short < 2048.0 => assert!((ratio - 1.0).abs() < 1e-12),
                long if long > 8192.0 => assert!((ratio - 8.0).abs() < 1e-12),
                between => {
                    let kept = (8192.0 / between - 1.0) / 3.0;
                    assert!((scaled / plain - (kept + (1.0 - kept) / 8.0)).abs() < 1e-12);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "position 4096 lies beyond")]
    fn a_position_beyond_the_table_is_refused() {
        RopeTable::new(PLAIN).row(4096);
    }
}
