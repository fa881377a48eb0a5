//! Matrix tiles: AMX with bf16, for products of wide rows. All else is [`crate::avx512`]'s.
//!
//! **Invariant:** an [`Amx`] exists only where the machine has the tiles and the system has allowed this process to use them.

mod attention;
mod fast;
mod product;
mod quantize;
mod tile;

use std::sync::OnceLock;

use crate::avx512::Avx512;

/// The proof that this process may use tiles of bf16, that the machine has AVX512-BF16, and what [`crate::avx512`] needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amx(Avx512);

impl Amx {
    pub fn new() -> Option<Self> {
        static ALLOWED: OnceLock<bool> = OnceLock::new();
        let avx512 = Avx512::new()?;
        let has_bf16 = is_x86_feature_detected!("avx512bf16") && tile::has_bf16();
        ALLOWED.get_or_init(|| has_bf16 && tile::ask()).then_some(Amx(avx512))
    }

    /// What does everything but wide rows.
    pub fn avx512(self) -> Avx512 {
        self.0
    }
}
