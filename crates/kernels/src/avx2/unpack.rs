//! Packed units and scales to registers.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::format::typed::Quantized;
use crate::format::{Codes, Scales};
use crate::pack::{GROUP, PANEL, Panel, VECTOR};

/// Sixteen outputs by four inputs: outputs 0 to 7, and 8 to 15.
pub(super) type Vector = [__m256i; 2];

/// A unit's codes (after the table, before the offset), or the signed values themselves where [`is_signed`] says so.
pub(super) type Unit = [Vector; 8];

/// Scale and minimum of 16 outputs in one sub-block.
#[derive(Clone, Copy)]
pub(super) struct Sub {
    pub scale: [__m256; 2],
    pub minimum: [__m256; 2],
}

/// Codes of eight bits would overflow the 16-bit sums of `vpmaddubsw`, so they are made signed: their offset is the middle.
pub(super) const fn is_signed<F: Quantized>() -> bool {
    F::SPEC.offset == 128
}

/// Calls `work` with each of some units of a panel in order, and the one or two sub-blocks in it. The units begin with a
/// super-block of scales.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn for_each_unit<F: Quantized>(
    panel: &Panel<'_>,
    units: Range<usize>,
    mut work: impl FnMut(usize, &Unit, [Sub; 2]),
) {
    let (unit_bytes, super_bytes) = (F::SPEC.codes.unit_bytes(), F::SPEC.scales.super_bytes());
    let units_in_super = F::SPEC.scales.super_len() / GROUP;
    let supers = units.start / units_in_super..units.end / units_in_super;
    let codes = &panel.codes[units.start * unit_bytes..units.end * unit_bytes];
    let scales = &panel.scales[supers.start * super_bytes..supers.end * super_bytes];
    let both = codes.chunks_exact(units_in_super * unit_bytes).zip(scales.chunks_exact(super_bytes));
    for (index, (codes, scales)) in both.enumerate() {
        let whole = load_super::<F>(scales);
        for (unit, bytes) in codes.chunks_exact(unit_bytes).enumerate() {
            let subs = match F::SPEC.scales.sub_len() {
                GROUP => [load_sub::<F>(whole, scales, unit); 2],
                _ => [2 * unit, 2 * unit + 1].map(|sub| load_sub::<F>(whole, scales, sub)),
            };
            work(units.start + index * units_in_super + unit, &load_unit::<F>(bytes), subs);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_unit<F: Quantized>(unit: &[u8]) -> Unit {
    assert_eq!(unit.len(), F::SPEC.codes.unit_bytes());
    let planes = unit.as_chunks::<VECTOR>().0;
    let codes = match F::SPEC.codes {
        Codes::Float(_) => unreachable!("floats have no codes"),
        Codes::Eight => std::array::from_fn(|vector| load(&planes[vector])),
        Codes::Four => nibbles(planes),
        Codes::Five => add_bits::<16>(nibbles(planes), &planes[4]),
        Codes::Six => {
            let (nibbles, pairs) = (nibbles(planes), pairs::<4>(&planes[4..]));
            std::array::from_fn(|vector| zip(nibbles[vector], pairs[vector], |a, b| _mm256_or_si256(a, b)))
        }
        Codes::Two => pairs::<0>(planes),
        Codes::Three => add_bits::<4>(pairs::<0>(planes), &planes[2]),
    };
    let codes = match F::SPEC.table {
        None => codes,
        Some(table) => {
            // SAFETY: a table has 16 bytes.
            let table = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) });
            codes.map(|codes| codes.map(|codes| _mm256_shuffle_epi8(table, codes)))
        }
    };
    if is_signed::<F>() {
        return codes.map(|codes| codes.map(|codes| _mm256_xor_si256(codes, _mm256_set1_epi8(i8::MIN))));
    }
    codes
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load(vector: &[u8; VECTOR]) -> Vector {
    // SAFETY: a vector has 64 bytes.
    std::array::from_fn(|half| unsafe { _mm256_loadu_si256(vector.as_ptr().add(half * 32).cast()) })
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn zip(left: Vector, right: Vector, work: impl Fn(__m256i, __m256i) -> __m256i) -> Vector {
    std::array::from_fn(|half| work(left[half], right[half]))
}

/// Vector `k` holds the codes of vectors `k` and `k + 4`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn nibbles(planes: &[[u8; VECTOR]]) -> Unit {
    let low = _mm256_set1_epi8(15);
    std::array::from_fn(|vector| {
        let plane = load(&planes[vector % 4]);
        plane.map(|plane| match vector {
            0..4 => _mm256_and_si256(plane, low),
            _ => _mm256_and_si256(_mm256_srli_epi16::<4>(plane), low),
        })
    })
}

/// Vector `k` holds the pairs of vectors `k`, `k + 2`, `k + 4` and `k + 6`. They come out shifted up by `UP`, 0 or 4.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pairs<const UP: u32>(planes: &[[u8; VECTOR]]) -> Unit {
    let mask = _mm256_set1_epi8(3 << UP);
    std::array::from_fn(|vector| {
        let down = 2 * (vector as u32 / 2);
        load(&planes[vector % 2]).map(|plane| {
            let moved = if down >= UP {
                _mm256_srl_epi16(plane, _mm_cvtsi32_si128((down - UP) as i32))
            } else {
                _mm256_sll_epi16(plane, _mm_cvtsi32_si128((UP - down) as i32))
            };
            _mm256_and_si256(moved, mask)
        })
    })
}

/// Adds `VALUE` where a vector's 64 bits are set.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_bits<const VALUE: i8>(codes: Unit, bits: &[u8; VECTOR]) -> Unit {
    let bits = bits.as_chunks::<4>().0;
    // Every byte gets the byte that holds its bit, and then keeps that bit alone.
    let spread = _mm256_set_epi64x(0x0303_0303_0303_0303, 0x0202_0202_0202_0202, 0x0101_0101_0101_0101, 0);
    let own = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    std::array::from_fn(|vector| {
        std::array::from_fn(|half| {
            let all = _mm256_set1_epi32(i32::from_le_bytes(bits[vector * 2 + half]));
            let bit = _mm256_and_si256(_mm256_shuffle_epi8(all, spread), own);
            let set = _mm256_and_si256(_mm256_cmpeq_epi8(bit, own), _mm256_set1_epi8(VALUE));
            _mm256_or_si256(codes[vector][half], set)
        })
    })
}

/// The floating scales of a super-block, of which the second is a minimum or unused.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_super<F: Quantized>(scales: &[u8]) -> Sub {
    assert_eq!(scales.len(), F::SPEC.scales.super_bytes());
    let halves = |at: usize| -> [__m128i; 2] {
        std::array::from_fn(|half| {
            let bytes = &scales[at + half * PANEL..][..PANEL];
            // SAFETY: the slice has the 16 bytes that are loaded.
            unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
        })
    };
    let scale = halves(0).map(|half| match F::SPEC.scales {
        Scales::Bf16 => _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half))),
        _ => _mm256_cvtph_ps(half),
    });
    let minimum = match F::SPEC.scales.has_minimums() {
        true => halves(2 * PANEL).map(|half| _mm256_cvtph_ps(half)),
        false => [_mm256_setzero_ps(); 2],
    };
    Sub { scale, minimum }
}

/// A sub-block's scale and minimum, from those of the super-block and the small integers after them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_sub<F: Quantized>(whole: Sub, scales: &[u8], sub: usize) -> Sub {
    let bytes = |at: usize| -> [__m128i; 2] {
        std::array::from_fn(|half| {
            let bytes = &scales[at + half * 8..][..8];
            // SAFETY: the slice has the eight bytes that are loaded.
            unsafe { _mm_loadl_epi64(bytes.as_ptr().cast()) }
        })
    };
    let times = |floats: [__m256; 2], integers: [__m256i; 2]| -> [__m256; 2] {
        std::array::from_fn(|half| _mm256_mul_ps(floats[half], _mm256_cvtepi32_ps(integers[half])))
    };
    match F::SPEC.scales {
        Scales::None | Scales::F16 | Scales::Bf16 | Scales::F16Min => whole,
        Scales::Sub32 | Scales::Sub16 => {
            let scale = bytes(32 + sub * PANEL).map(|bytes| _mm256_cvtepi8_epi32(bytes));
            Sub { scale: times(whole.scale, scale), ..whole }
        }
        Scales::Sub32Min => {
            let scale = bytes(64 + sub * 2 * PANEL).map(|bytes| _mm256_cvtepu8_epi32(bytes));
            let minimum = bytes(64 + sub * 2 * PANEL + PANEL).map(|bytes| _mm256_cvtepu8_epi32(bytes));
            Sub { scale: times(whole.scale, scale), minimum: times(whole.minimum, minimum) }
        }
        Scales::Sub16Min => {
            let both = bytes(64 + sub * PANEL).map(|bytes| _mm256_cvtepu8_epi32(bytes));
            let scale = both.map(|both| _mm256_and_si256(both, _mm256_set1_epi32(15)));
            let minimum = both.map(|both| _mm256_srli_epi32::<4>(both));
            Sub { scale: times(whole.scale, scale), minimum: times(whole.minimum, minimum) }
        }
    }
}
