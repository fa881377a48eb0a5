//! Activations to `i8`.

use super::Reference;
use crate::activations::{SUM, TINY};
use crate::pack::GROUP;

impl Reference {
    /// One row: codes of 32 inputs under one scale, and the codes' sums by 16. Inputs beyond the row's end count as zeros.
    pub fn quantize_row(self, x: &[f32], codes: &mut [i8], scales: &mut [f32], sums: &mut [i32]) {
        let groups = x.chunks(GROUP).zip(codes.as_chunks_mut::<GROUP>().0);
        for ((x, codes), (scale, sums)) in groups.zip(scales.iter_mut().zip(sums.as_chunks_mut::<2>().0)) {
            *scale = quantize_group(x, codes);
            *sums = std::array::from_fn(|half| {
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
