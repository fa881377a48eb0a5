//! Weights, repacked once at load into the one layout that every kernel reads.
//!
//! The unit is 16 outputs by 32 inputs. Its codes stand as eight vectors of 64 bytes, one for each four inputs, with byte
//! `output * 4 + input % 4`: what a byte-wise dot product, and a tile of an outer product, want to load. Codes of fewer
//! than eight bits are cut into planes:
//!
//! - four bits: four vectors, vector `k` holding the unit's vectors `k` (low) and `k + 4` (high nibbles);
//! - two bits: two vectors, vector `k` holding the unit's vectors `k`, `k + 2`, `k + 4` and `k + 6`, low bits first;
//! - one bit: eight masks of 64 bits, one for each vector of the unit.
//!
//! Three, five and six bits are two planes, one after the other. A *panel* is 16 outputs by all inputs: its units follow each
//! other in `codes`, and its scales in `scales`, for each [`Scales::super_len`] inputs the floating ones of 16 outputs and then
//! the integer ones of each sub-block. Panels follow each other in both, so that a product reads two plain streams.
//!
//! Floats stay what they are, as `[panel][input][16 outputs]`.
//!
//! **Invariant:** packing loses nothing, and takes at most 1.1 times the memory of the stored form (padding to 16 outputs
//! aside).

use half::{bf16, f16};

use crate::disjoint::Disjoint;
use crate::error::KernelError;
use crate::format::{Block, Codes, Format, Scales, Spec, dequantize};
use crate::memory::Memory;
use crate::pool::Pool;

/// Outputs in one panel.
pub(crate) const PANEL: usize = 16;

/// Inputs in one unit, and in one group of quantized activations.
pub(crate) const GROUP: usize = 32;

/// Bytes in one vector: 16 outputs by four inputs.
pub(crate) const VECTOR: usize = 64;

/// A weight matrix `[rows = outputs, cols = inputs]` in the packed layout.
#[derive(Debug)]
pub struct PackedMatrix {
    format: Format,
    rows: usize,
    cols: usize,
    codes: Memory<u8>,  // [panel][unit] planes
    scales: Memory<u8>, // [panel][super] floating scales, then integer ones
}

/// Sixteen outputs of a packed matrix.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a> {
    pub format: Format,
    pub spec: &'static Spec,
    pub cols: usize,
    pub codes: &'a [u8],
    pub scales: &'a [u8],
}

impl PackedMatrix {
    /// Packs `rows` stored rows of `cols` inputs. Fails where the bytes do not fit the shape.
    pub fn pack(
        format: Format,
        rows: usize,
        cols: usize,
        bytes: &[u8],
        pool: &Pool,
    ) -> Result<PackedMatrix, KernelError> {
        let row_bytes = format.row_bytes(cols)?;
        if Some(bytes.len()) != rows.checked_mul(row_bytes) {
            let (values, expected) = (rows.saturating_mul(cols), rows.saturating_mul(row_bytes));
            return Err(KernelError::Bytes { format, values, expected, found: bytes.len() });
        }
        let panels = rows.div_ceil(PANEL);
        let (codes_len, scales_len) = panel_bytes(format.spec(), cols);
        let mut codes = Memory::zeroed(panels * codes_len);
        let mut scales = Memory::zeroed(panels * scales_len);
        let (all_codes, all_scales) = (Disjoint::new(&mut codes), Disjoint::new(&mut scales));
        pool.for_each(panels, &|panel| {
            // SAFETY: each panel is claimed once, and panels do not overlap.
            let codes = unsafe { all_codes.part(panel * codes_len..(panel + 1) * codes_len) };
            // SAFETY: as above.
            let scales = unsafe { all_scales.part(panel * scales_len..(panel + 1) * scales_len) };
            for lane in 0..PANEL.min(rows - panel * PANEL) {
                let row = &bytes[(panel * PANEL + lane) * row_bytes..][..row_bytes];
                match format.spec().codes {
                    Codes::Float(size) => pack_floats(row, lane, size, codes),
                    _ => pack_row(format, row, lane, codes, scales),
                }
            }
        });
        Ok(PackedMatrix { format, rows, cols, codes, scales })
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.codes.bytes() + self.scales.bytes()
    }

    /// The weights of one output, as for an embedding's look-up. Panics when `row` or the length of `out` is wrong.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert_eq!(out.len(), self.cols, "a row has {} values", self.cols);
        self.panel(row / PANEL).dequantize_lane(row % PANEL, out);
    }

    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    pub(crate) fn panel(&self, panel: usize) -> Panel<'_> {
        let spec = self.format.spec();
        let (codes_len, scales_len) = panel_bytes(spec, self.cols);
        Panel {
            format: self.format,
            spec,
            cols: self.cols,
            codes: &self.codes[panel * codes_len..][..codes_len],
            scales: &self.scales[panel * scales_len..][..scales_len],
        }
    }
}

/// Bytes of one panel's codes and scales.
fn panel_bytes(spec: &Spec, cols: usize) -> (usize, usize) {
    match spec.codes {
        Codes::Float(size) => ((cols * PANEL * size).next_multiple_of(VECTOR), 0),
        codes => {
            (cols / GROUP * codes.unit_bytes(), cols / spec.scales.super_len() * spec.scales.super_bytes())
        }
    }
}

/// Spreads one output's floats, `size` bytes each, over its panel.
fn pack_floats(row: &[u8], lane: usize, size: usize, codes: &mut [u8]) {
    for (value, to) in row.chunks_exact(size).zip(codes.chunks_exact_mut(PANEL * size)) {
        to[lane * size..][..size].copy_from_slice(value);
    }
}

/// Spreads one output's blocks over its panel, whose bytes begin as zeros.
fn pack_row(format: Format, row: &[u8], lane: usize, codes: &mut [u8], scales: &mut [u8]) {
    let spec = format.spec();
    let unit_bytes = spec.codes.unit_bytes();
    for (index, bytes) in row.chunks_exact(spec.block_bytes).enumerate() {
        let block = format.decode(bytes);
        for (unit, inputs) in block.codes[..spec.block_len].as_chunks::<GROUP>().0.iter().enumerate() {
            let unit = index * (spec.block_len / GROUP) + unit;
            pack_unit(spec.codes, inputs, lane, &mut codes[unit * unit_bytes..][..unit_bytes]);
        }
        let super_bytes = spec.scales.super_bytes();
        pack_scales(spec.scales, &block, lane, &mut scales[index * super_bytes..][..super_bytes]);
    }
}

/// Adds the 32 codes of one output to its unit, four at a time.
fn pack_unit(codes: Codes, inputs: &[u8; GROUP], lane: usize, unit: &mut [u8]) {
    for (vector, &inputs) in inputs.as_chunks::<4>().0.iter().enumerate() {
        let word = u32::from_le_bytes(inputs);
        let mut add = |at: usize, word: u32| {
            let to = &mut unit.as_chunks_mut::<4>().0[at * PANEL + lane];
            *to = (u32::from_le_bytes(*to) | word).to_le_bytes();
        };
        let mut four = |word: u32| add(vector % 4, (word & 0x0f0f_0f0f) << (4 * (vector / 4)));
        match codes {
            Codes::Float(_) => unreachable!("floats have no codes"),
            Codes::Eight => add(vector, word),
            Codes::Four => four(word),
            Codes::Five => {
                four(word);
                pack_bits(word >> 4, vector, lane, &mut unit[4 * VECTOR..]);
            }
            Codes::Six => {
                four(word);
                add(4 + vector % 2, pair(word >> 4, vector));
            }
            Codes::Two => add(vector % 2, pair(word, vector)),
            Codes::Three => {
                add(vector % 2, pair(word, vector));
                pack_bits(word >> 2, vector, lane, &mut unit[2 * VECTOR..]);
            }
        }
    }
}

/// The low pairs of four bytes, at their vector's place in the plane of pairs.
fn pair(word: u32, vector: usize) -> u32 {
    (word & 0x0303_0303) << (2 * (vector / 2))
}

/// Adds the lowest bits of four bytes to a plane of bits.
fn pack_bits(word: u32, vector: usize, lane: usize, plane: &mut [u8]) {
    // The partial products bring bit `8 i` to bit `24 + i` and meet nowhere else.
    let four = (word & 0x0101_0101).wrapping_mul(0x0102_0408) >> 24 & 15;
    plane[vector * 8 + lane / 2] |= (four as u8) << (4 * (lane % 2));
}

/// Writes one output's scales of one block.
fn pack_scales(scales: Scales, block: &Block, lane: usize, to: &mut [u8]) {
    let mut half = |at: usize, value: u16| to[at + 2 * lane..][..2].copy_from_slice(&value.to_le_bytes());
    // The decoder widened these from f16 (or made a power of two), so narrowing them again is exact.
    match scales {
        Scales::None => {}
        Scales::Bf16 => half(0, bf16::from_f32(block.d).to_bits()),
        Scales::F16 | Scales::Sub32 | Scales::Sub16 => half(0, f16::from_f32(block.d).to_bits()),
        Scales::F16Min | Scales::Sub32Min | Scales::Sub16Min => {
            half(0, f16::from_f32(block.d).to_bits());
            half(32, f16::from_f32(block.m).to_bits());
        }
    }
    match scales {
        Scales::None | Scales::Bf16 | Scales::F16 | Scales::F16Min => {}
        Scales::Sub32 | Scales::Sub16 => {
            for (sub, to) in to[32..].chunks_exact_mut(PANEL).enumerate() {
                to[lane] = block.scales[sub] as u8;
            }
        }
        Scales::Sub32Min => {
            for (sub, to) in to[64..].chunks_exact_mut(2 * PANEL).enumerate() {
                to[lane] = block.scales[sub] as u8;
                to[PANEL + lane] = block.minimums[sub];
            }
        }
        Scales::Sub16Min => {
            for (sub, to) in to[64..].chunks_exact_mut(PANEL).enumerate() {
                to[lane] = block.scales[sub] as u8 | block.minimums[sub] << 4;
            }
        }
    }
}

impl Panel<'_> {
    /// The 32 codes of output `lane` in `unit`.
    pub fn lane_codes(&self, unit: usize, lane: usize) -> [u8; GROUP] {
        let unit_bytes = self.spec.codes.unit_bytes();
        let unit = &self.codes[unit * unit_bytes..][..unit_bytes];
        let four_inputs = |vector: usize| {
            let at = vector * VECTOR + lane * 4;
            u32::from_le_bytes([unit[at], unit[at + 1], unit[at + 2], unit[at + 3]])
        };
        let four = |vector: usize| four_inputs(vector % 4) >> (4 * (vector / 4)) & 0x0f0f_0f0f;
        let pair =
            |plane: usize, vector: usize| four_inputs(plane + vector % 2) >> (2 * (vector / 2)) & 0x0303_0303;
        let bits = |plane: usize, vector: usize| {
            let bits = u32::from(unit[plane * VECTOR + vector * 8 + lane / 2] >> (4 * (lane % 2)) & 15);
            // Each of the four bits goes to the bottom of a byte of its own: the partial products do not meet there.
            bits.wrapping_mul(0x0020_4081) & 0x0101_0101
        };
        let mut codes = [0; GROUP];
        for (vector, to) in codes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let word = match self.spec.codes {
                Codes::Float(_) => unreachable!("floats have no codes"),
                Codes::Eight => four_inputs(vector),
                Codes::Four => four(vector),
                Codes::Five => four(vector) | bits(4, vector) << 4,
                Codes::Six => four(vector) | pair(4, vector) << 4,
                Codes::Two => pair(0, vector),
                Codes::Three => pair(0, vector) | bits(2, vector) << 2,
            };
            *to = word.to_le_bytes();
        }
        codes
    }

    /// Scale and minimum of output `lane` in sub-block `sub`, of [`Scales::sub_len`] inputs.
    pub fn lane_scale(&self, sub: usize, lane: usize) -> (f32, f32) {
        let scales = self.spec.scales;
        let subs = scales.super_len() / scales.sub_len();
        let all = &self.scales[sub / subs * scales.super_bytes()..][..scales.super_bytes()];
        let bits = |at: usize| u16::from_le_bytes([all[at + 2 * lane], all[at + 2 * lane + 1]]);
        let half = |at: usize| f16::from_bits(bits(at)).to_f32();
        let sub = sub % subs;
        match scales {
            Scales::None => unreachable!("floats have no scales"),
            Scales::Bf16 => (bf16::from_bits(bits(0)).to_f32(), 0.0),
            Scales::F16 => (half(0), 0.0),
            Scales::F16Min => (half(0), half(32)),
            Scales::Sub32 | Scales::Sub16 => (half(0) * f32::from(all[32 + sub * PANEL + lane] as i8), 0.0),
            Scales::Sub32Min => {
                let at = 64 + sub * 2 * PANEL + lane;
                (half(0) * f32::from(all[at]), half(32) * f32::from(all[at + PANEL]))
            }
            Scales::Sub16Min => {
                let both = all[64 + sub * PANEL + lane];
                (half(0) * f32::from(both & 15), half(32) * f32::from(both >> 4))
            }
        }
    }

    /// All weights of output `lane`.
    fn dequantize_lane(&self, lane: usize, out: &mut [f32]) {
        if let Codes::Float(size) = self.spec.codes {
            for (value, out) in self.codes.chunks_exact(PANEL * size).zip(out) {
                dequantize(self.format, &value[lane * size..][..size], std::slice::from_mut(out))
                    .expect("one float is one block");
            }
            return;
        }
        let sub_len = self.spec.scales.sub_len();
        for (unit, out) in out.chunks_exact_mut(GROUP).enumerate() {
            let codes = self.lane_codes(unit, lane);
            for (index, (out, codes)) in out.chunks_mut(sub_len).zip(codes.chunks(sub_len)).enumerate() {
                let (scale, minimum) = self.lane_scale(unit * (GROUP / sub_len) + index, lane);
                for (out, &code) in out.iter_mut().zip(codes) {
                    *out = scale * f32::from(self.spec.value(code)) - minimum;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{random_blocks, rng};

    /// Packing and taking rows out again gives bit for bit what the stored blocks hold.
    fn check(format: Format, rows: usize, cols: usize) {
        let bytes = random_blocks(&mut rng(format.name()), format, rows * cols);
        let pool = Pool::new(2).unwrap();
        let packed = PackedMatrix::pack(format, rows, cols, &bytes, &pool).unwrap();
        let mut expected = vec![0.0; rows * cols];
        dequantize(format, &bytes, &mut expected).unwrap();
        let mut row = vec![0.0; cols];
        for (index, expected) in expected.chunks(cols).enumerate() {
            packed.dequantize_row(index, &mut row);
            for (col, (found, expected)) in row.iter().zip(expected).enumerate() {
                assert_eq!(
                    found.to_bits(),
                    expected.to_bits(),
                    "{format} [{index}, {col}]: {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn packing_loses_nothing() {
        for format in Format::ALL {
            let cols = if format.block_len() == 1 { 37 } else { 2 * format.block_len() };
            check(format, 16, cols);
            check(format, 35, 3 * cols);
        }
    }

    #[test]
    fn packed_weights_take_at_most_a_tenth_more_than_stored_ones() {
        for format in Format::ALL {
            let (codes, scales) = panel_bytes(format.spec(), 1536);
            let stored = PANEL * format.row_bytes(1536).unwrap();
            assert!((codes + scales) * 10 <= stored * 11, "{format}: {codes} + {scales} for {stored}");
        }
    }

    #[test]
    fn bytes_that_do_not_fit_the_shape_are_refused() {
        let pool = Pool::new(1).unwrap();
        let refused = PackedMatrix::pack(Format::Q8_0, 2, 32, &[0; 67], &pool).unwrap_err();
        assert_eq!(refused, KernelError::Bytes { format: Format::Q8_0, values: 64, expected: 68, found: 67 });
        assert!(PackedMatrix::pack(Format::Q8_0, 1, 33, &[0; 34], &pool).is_err());
    }
}
