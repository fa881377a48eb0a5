//! Floats to bf16: rows of activations, and pairs in the order that tiles want.

use std::arch::x86_64::*;

use half::bf16;

use super::Amx;
use crate::pack::{GROUP, PANEL};

impl Amx {
    /// One row of a block, `(row, rows)`, rounded to nearest even. `block` is `[group, row, 32]`; inputs beyond the row's end are zeros.
    pub fn round_row(self, x: &[f32], row: (usize, usize), block: &mut [bf16]) {
        // SAFETY: `self` proves the features.
        unsafe { round_row(x, row, block) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn round_row(x: &[f32], (row, rows): (usize, usize), block: &mut [bf16]) {
    let groups = block.as_chunks_mut::<GROUP>().0;
    for (group, x) in x.chunks(GROUP).enumerate() {
        let inputs = if x.len() == GROUP { u32::MAX } else { (1 << x.len()) - 1 };
        let to = &mut groups[group * rows + row];
        // SAFETY: the masks let through only the inputs that `x` has, and a group is 64 bytes.
        unsafe {
            let low = _mm512_maskz_loadu_ps(inputs as u16, x.as_ptr());
            let high = _mm512_maskz_loadu_ps((inputs >> 16) as u16, x.as_ptr().wrapping_add(16));
            let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
            _mm512_storeu_si512(to.as_mut_ptr().cast(), both);
        }
    }
}

/// Stores two vectors as sixteen pairs, rounded.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn store_paired(first: __m512, second: __m512, to: &mut [bf16; GROUP]) {
    const PAIRS: [u16; GROUP] = {
        let mut pairs = [0; GROUP];
        let mut at = 0;
        while at < GROUP {
            pairs[at] = (at / 2 + at % 2 * PANEL) as u16;
            at += 1;
        }
        pairs
    };
    let rounded = _mm512_cvtne2ps_pbh(second, first);
    // SAFETY: all are 512 bits.
    unsafe {
        let rounded = std::mem::transmute::<__m512bh, __m512i>(rounded);
        let paired = _mm512_permutexvar_epi16(_mm512_loadu_si512(PAIRS.as_ptr().cast()), rounded);
        _mm512_storeu_si512(to.as_mut_ptr().cast(), paired);
    }
}
