//! Which instruction sets this machine offers.
//!
//! **Invariant:** a [`Backend`] of an instruction set exists only where the machine has it, so that holding one is the
//! proof every kernel of that folder needs.

use std::ops::Range;

use half::bf16;

use crate::activations::WideRows;
use crate::error::KernelError;
use crate::matmul::{Sums, Tile};
use crate::pack::PackedMatrix;
use crate::reference::Reference;

#[cfg(target_arch = "x86_64")]
use crate::{amx::Amx, avx2::Avx2, avx512::Avx512};

/// The ladder, from the plainest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust: what is right.
    Reference,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 with F, BW, VL, DQ and VNNI.
    Avx512,
    /// All that, and AVX512-BF16 and AMX tiles of bf16.
    Amx,
}

impl Isa {
    pub const ALL: [Isa; 4] = [Isa::Reference, Isa::Avx2, Isa::Avx512, Isa::Amx];

    /// The widest instruction set of this machine.
    pub fn best() -> Isa {
        Isa::ALL.into_iter().rev().find(|isa| isa.is_available()).expect("the reference is always available")
    }

    pub fn is_available(self) -> bool {
        Backend::new(self).is_some()
    }

    /// All instruction sets of this machine, the plainest first.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    pub const fn name(self) -> &'static str {
        match self {
            Isa::Reference => "reference",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
        }
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Isa {
    type Err = KernelError;

    fn from_str(name: &str) -> Result<Self, KernelError> {
        Isa::ALL
            .into_iter()
            .find(|isa| isa.name() == name)
            .ok_or_else(|| KernelError::UnknownIsa { name: name.to_owned() })
    }
}

/// An instruction set that this machine has. Dispatch is one `match` on it per operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backend {
    Reference(Reference),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Amx(Amx),
}

impl Backend {
    pub fn new(isa: Isa) -> Option<Backend> {
        match isa {
            Isa::Reference => Some(Backend::Reference(Reference)),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Avx2::new().map(Backend::Avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Avx512::new().map(Backend::Avx512),
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => Amx::new().map(Backend::Amx),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 | Isa::Amx => None,
        }
    }

    /// Whether it multiplies rows that are rounded to bf16.
    pub fn has_wide_products(self) -> bool {
        self.isa() == Isa::Amx
    }

    /// Rounds one of a block's rows, `(row, rows)`, to bf16. Only where there are wide products.
    pub fn round_wide(self, x: &[f32], row: (usize, usize), block: &mut [bf16]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Backend::Amx(isa) => isa.round_row(x, row, block),
            _ => unreachable!("{} has no wide products", self.isa()),
        }
    }

    /// Writes the products of some panels with wide rows. Only where there are wide products.
    ///
    /// # Safety
    /// `sums` has a place for each of the rows with each of the panels, which nobody else uses.
    pub unsafe fn product_wide(
        self,
        w: &PackedMatrix,
        panels: Range<usize>,
        x: WideRows<'_>,
        tile: &mut Tile,
        sums: Sums,
    ) {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller's promise.
            Backend::Amx(isa) => unsafe { isa.product_wide(w, panels, x, tile, sums) },
            _ => unreachable!("{} has no wide products", self.isa()),
        }
    }

    pub fn isa(self) -> Isa {
        match self {
            Backend::Reference(_) => Isa::Reference,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(_) => Isa::Avx2,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(_) => Isa::Avx512,
            #[cfg(target_arch = "x86_64")]
            Backend::Amx(_) => Isa::Amx,
        }
    }
}

/// One call on whatever instruction set a backend holds: `dispatch!(backend, isa => isa.method(..))`.
macro_rules! dispatch {
    ($backend:expr, $isa:ident => $call:expr) => {
        match $backend {
            $crate::detect::Backend::Reference($isa) => $call,
            #[cfg(target_arch = "x86_64")]
            $crate::detect::Backend::Avx2($isa) => $call,
            #[cfg(target_arch = "x86_64")]
            $crate::detect::Backend::Avx512($isa) => $call,
            #[cfg(target_arch = "x86_64")]
            $crate::detect::Backend::Amx(amx) => {
                let $isa = amx.avx512();
                $call
            }
        }
    };
}
pub(crate) use dispatch;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_the_last_available() {
        assert_eq!(Isa::available().last(), Some(&Isa::best()));
        assert_eq!(Isa::available().first(), Some(&Isa::Reference));
    }

    #[test]
    fn every_name_parses_back() {
        for isa in Isa::ALL {
            assert_eq!(isa.name().parse(), Ok(isa));
        }
        assert_eq!("mmx".parse::<Isa>(), Err(KernelError::UnknownIsa { name: "mmx".into() }));
    }

    #[test]
    fn a_backend_answers_to_its_own_name() {
        for isa in Isa::available() {
            assert_eq!(Backend::new(isa).map(Backend::isa), Some(isa));
        }
    }
}
