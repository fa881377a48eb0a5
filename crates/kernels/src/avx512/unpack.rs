//! Packed units and scales to registers.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::format::typed::Quantized;
use crate::format::{Codes, Scales};
use crate::pack::{GROUP, PANEL, Panel, VECTOR};

/// A unit's codes (after the table, before the offset): each register holds 16 outputs by four inputs.
pub(crate) type Unit = [__m512i; 8];

/// Scale and minimum of 16 outputs in one sub-block.
#[derive(Clone, Copy)]
pub(crate) struct Sub {
    pub scale: __m512,
    pub minimum: __m512,
}

/// Calls `work` with each of some units of a panel in order, and the one or two sub-blocks in it. The units begin with a
/// super-block of scales.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(crate) fn for_each_unit<F: Quantized>(
    panel: &Panel<'_>,
    units: Range<usize>,
    mut work: impl FnMut(usize, Unit, [Sub; 2]),
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
            work(units.start + index * units_in_super + unit, load_unit::<F>(bytes), subs);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_unit<F: Quantized>(unit: &[u8]) -> Unit {
    assert_eq!(unit.len(), F::SPEC.codes.unit_bytes());
    let planes = unit.as_chunks::<VECTOR>().0;
    let codes = match F::SPEC.codes {
        Codes::Float(_) => unreachable!("floats have no codes"),
        Codes::Eight => std::array::from_fn(|vector| load(&planes[vector])),
        Codes::Four => nibbles(planes),
        Codes::Five => add_bits::<16>(nibbles(planes), &planes[4]),
        Codes::Six => {
            let pairs = pairs::<4>(&planes[4..]);
            let nibbles = nibbles(planes);
            std::array::from_fn(|vector| _mm512_or_si512(nibbles[vector], pairs[vector]))
        }
        Codes::Two => pairs::<0>(planes),
        Codes::Three => add_bits::<4>(pairs::<0>(planes), &planes[2]),
    };
    match F::SPEC.table {
        None => codes,
        Some(table) => {
            // SAFETY: a table has 16 bytes.
            let table = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(table.as_ptr().cast()) });
            codes.map(|codes| _mm512_shuffle_epi8(table, codes))
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load(vector: &[u8; VECTOR]) -> __m512i {
    // SAFETY: a vector has 64 bytes.
    unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) }
}

/// Vector `k` holds the codes of vectors `k` and `k + 4`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn nibbles(planes: &[[u8; VECTOR]]) -> Unit {
    let low = _mm512_set1_epi8(15);
    std::array::from_fn(|vector| match vector {
        0..4 => _mm512_and_si512(load(&planes[vector]), low),
        _ => _mm512_and_si512(_mm512_srli_epi16::<4>(load(&planes[vector - 4])), low),
    })
}

/// Vector `k` holds the pairs of vectors `k`, `k + 2`, `k + 4` and `k + 6`. They come out shifted up by `UP`, 0 or 4.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn pairs<const UP: u32>(planes: &[[u8; VECTOR]]) -> Unit {
    let mask = _mm512_set1_epi8(3 << UP);
    std::array::from_fn(|vector| {
        let plane = load(&planes[vector % 2]);
        let down = 2 * (vector as u32 / 2);
        let moved = if down >= UP {
            _mm512_srl_epi16(plane, _mm_cvtsi32_si128((down - UP) as i32))
        } else {
            _mm512_sll_epi16(plane, _mm_cvtsi32_si128((UP - down) as i32))
        };
        _mm512_and_si512(moved, mask)
    })
}

/// Adds `VALUE` where a vector's 64 bits are set.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add_bits<const VALUE: i8>(codes: Unit, bits: &[u8; VECTOR]) -> Unit {
    let bits = bits.as_chunks::<8>().0;
    let value = _mm512_set1_epi8(VALUE);
    std::array::from_fn(|vector| {
        _mm512_mask_add_epi8(codes[vector], u64::from_le_bytes(bits[vector]), codes[vector], value)
    })
}

/// The floating scales of a super-block, of which the second is a minimum or unused.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_super<F: Quantized>(scales: &[u8]) -> Sub {
    assert_eq!(scales.len(), F::SPEC.scales.super_bytes());
    // SAFETY: all scales begin with 16 half floats, which take 32 bytes.
    let first = unsafe { _mm256_loadu_si256(scales.as_ptr().cast()) };
    let scale = match F::SPEC.scales {
        Scales::Bf16 => _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(first))),
        _ => _mm512_cvtph_ps(first),
    };
    let minimum = if F::SPEC.scales.has_minimums() {
        // SAFETY: where there are minimums another 16 half floats follow.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(scales[2 * PANEL..4 * PANEL].as_ptr().cast()) })
    } else {
        _mm512_setzero_ps()
    };
    Sub { scale, minimum }
}

/// A sub-block's scale and minimum, from those of the super-block and the small integers after them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_sub<F: Quantized>(whole: Sub, scales: &[u8], sub: usize) -> Sub {
    let bytes = |at: usize| {
        // SAFETY: the slice has the 16 bytes that are loaded.
        unsafe { _mm_loadu_si128(scales[at..at + PANEL].as_ptr().cast()) }
    };
    let float = |integers: __m512i| _mm512_cvtepi32_ps(integers);
    match F::SPEC.scales {
        Scales::None | Scales::F16 | Scales::Bf16 | Scales::F16Min => whole,
        Scales::Sub32 | Scales::Sub16 => {
            let scale = float(_mm512_cvtepi8_epi32(bytes(32 + sub * PANEL)));
            Sub { scale: _mm512_mul_ps(whole.scale, scale), ..whole }
        }
        Scales::Sub32Min => {
            let scale = float(_mm512_cvtepu8_epi32(bytes(64 + sub * 2 * PANEL)));
            let minimum = float(_mm512_cvtepu8_epi32(bytes(64 + sub * 2 * PANEL + PANEL)));
            Sub { scale: _mm512_mul_ps(whole.scale, scale), minimum: _mm512_mul_ps(whole.minimum, minimum) }
        }
        Scales::Sub16Min => {
            let both = _mm512_cvtepu8_epi32(bytes(64 + sub * PANEL));
            let scale = float(_mm512_and_si512(both, _mm512_set1_epi32(15)));
            let minimum = float(_mm512_srli_epi32::<4>(both));
            Sub { scale: _mm512_mul_ps(whole.scale, scale), minimum: _mm512_mul_ps(whole.minimum, minimum) }
        }
    }
}
