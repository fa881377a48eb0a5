//! Activations to `i8`.

use super::Reference;
use crate::activations::{BlockMut, SUM, TINY};
use crate::pack::GROUP;

impl Reference {
    /// One row of a block: codes of 32 inputs under one scale, and the codes' sums by 16. Inputs beyond the row's end count
    /// as zeros.
    pub fn quantize_row(self, x: &[f32], row: usize, to: &mut BlockMut<'_>) {
        for (group, x) in x.chunks(GROUP).enumerate() {
            let place = group * to.rows + row;
            let codes = &mut to.codes.as_chunks_mut::<GROUP>().0[place];
            to.scales[place] = quantize_group(x, codes);
            to.sums.as_chunks_mut::<2>().0[place] = std::array::from_fn(|half| {
                codes[half * SUM..][..SUM].iter().map(|&code| i32::from(code)).sum()
            });
        }
    }
}

fn quantize_group(x: &[f32], codes: &mut [i8; GROUP]) -> f32 {
    codes.fill(0);
    if x.iter().any(|value| !value.is_finite()) {
        return f32::NAN;
    }
    let largest = x.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    if largest < TINY {
        return 0.0;
    }
    let inverse = 127.0 / largest;
    for (code, value) in codes.iter_mut().zip(x) {
        *code = (value * inverse).round_ties_even() as i8;
    }
    largest / 127.0
}
