//! The rotation of one row.

use crate::rope::RopeStyle;

/// One row to be rotated in place.
pub(crate) struct Rotation<'a> {
    pub row: &'a mut [f32], // [heads, head_dim]
    pub head_dim: usize,
    /// Cosines and sines, `[dims / 2]` each.
    pub angles: (&'a [f32], &'a [f32]),
    pub style: RopeStyle,
}

impl Rotation<'_> {
    /// `(x, y)` becomes `(x cos - y sin, x sin + y cos)` for every pair of every head.
    #[inline(always)]
    pub fn apply(self) {
        let (cosines, sines) = self.angles;
        let pairs = cosines.len();
        for head in self.row.chunks_exact_mut(self.head_dim) {
            let rotated = &mut head[..2 * pairs];
            match self.style {
                RopeStyle::Norm => {
                    for ((pair, cos), sin) in rotated.as_chunks_mut().0.iter_mut().zip(cosines).zip(sines) {
                        let [x, y] = *pair;
                        *pair = [x * cos - y * sin, x * sin + y * cos];
                    }
                }
                RopeStyle::Neox => {
                    let (first, second) = rotated.split_at_mut(pairs);
                    for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
                        let (x, y) = (*a, *b);
                        (*a, *b) = (x * cos - y * sin, x * sin + y * cos);
                    }
                }
            }
        }
    }
}
