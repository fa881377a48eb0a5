//! 256-bit kernels: AVX2, FMA and F16C.
//!
//! **Invariant:** an [`Avx2`] exists only where the machine has these; its methods are therefore safe to call.

mod quantize;
mod unpack;
mod fast;
mod exact;
mod simd;

/// The proof that this machine has AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub fn new() -> Option<Self> {
        let available = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        available.then_some(Avx2(()))
    }
}
