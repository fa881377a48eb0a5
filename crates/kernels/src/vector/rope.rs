//! The rotation of one row: the reference's loops, which the compiler turns into wide ones by itself.

use super::{Simd, VectorKernel};
use crate::reference::rope::Rotation;

impl VectorKernel for Rotation<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        self.apply();
    }
}
