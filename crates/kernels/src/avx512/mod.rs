//! 512-bit kernels: AVX-512 F, BW, VL, DQ and VNNI.
//!
//! **Invariant:** an [`Avx512`] exists only where the machine has these; its methods are therefore safe to call.

mod quantize;
mod simd;
pub(crate) mod unpack;
mod fast;
mod exact;

/// The proof that this machine has AVX-512 F, BW, VL, DQ and VNNI, and what [`crate::avx2`] needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub fn new() -> Option<Self> {
        let available = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni")
            && crate::avx2::Avx2::new().is_some();
        available.then_some(Avx512(()))
    }
}
