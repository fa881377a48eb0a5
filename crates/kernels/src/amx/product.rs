//! Products of one or two blocks of rows with one or two panels of 16 columns, in the tile registers.

use std::arch::asm;

use half::bf16;

use super::tile::Shapes;
use crate::pack::GROUP;

/// Rows of a tile.
pub(super) const ROWS: usize = 16;

/// Registers 0 and 1 are the sums of a first block of rows with two panels, 2 and 3 those of a second; 4 and 5 the blocks'
/// inputs, 6 and 7 the panels' weights.
pub(super) fn shapes(first: usize, second: usize) -> Shapes {
    let of = |rows: usize| (rows, 64);
    let weights = of(GROUP / 2);
    Shapes::new([of(first), of(first), of(second), of(second), of(first), of(second), weights, weights])
}

/// One or two blocks of rows by one or two panels, over some units.
pub(super) struct Product {
    pub units: usize,
    pub x: [*const bf16; 2],
    pub steps: [usize; 2], // bytes from a unit's inputs to the next
    pub w: [*const bf16; 2],
    pub sums: [*mut f32; 4],
    pub sums_step: usize, // bytes from a row's sums to the next
}

impl Product {
    /// Of so many blocks of rows and panels, one or two each; `anew` writes the sums, otherwise they are added to.
    ///
    /// # Safety
    /// The registers are shaped, and the pointers have the rows and units that the shapes say.
    pub unsafe fn run(&self, (blocks, panels): (usize, usize), anew: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            match (blocks, panels, anew) {
                (1, 1, true) => self.one_by_one_anew(),
                (1, 1, false) => self.one_by_one(),
                (1, _, true) => self.one_by_two_anew(),
                (1, _, false) => self.one_by_two(),
                (_, 1, true) => self.two_by_one_anew(),
                (_, 1, false) => self.two_by_one(),
                (_, _, true) => self.two_by_two_anew(),
                (_, _, false) => self.two_by_two(),
            }
        }
    }
}

/// A product as lines of assembly: how the sums begin, what is done for each unit, how the sums end.
macro_rules! product {
    ($name:ident: [$($begin:expr),*] [$($unit:expr),*] [$($end:expr),*]) => {
        impl Product {
            /// # Safety
            /// The registers are shaped, and the pointers have the rows and units that the shapes say.
            unsafe fn $name(&self) {
                // SAFETY: the caller's promise.
                unsafe {
                    asm!(
                        $($begin,)*
                        "2:",
                        $($unit,)*
                        "add {x0}, {step0}",
                        "add {x1}, {step1}",
                        "add {w0}, 1024",
                        "add {w1}, 1024",
                        "dec {units}",
                        "jnz 2b",
                        $($end,)*
                        "/* {s0} {s1} {s2} {s3} {sums_step} */",
                        units = inout(reg) self.units => _,
                        x0 = inout(reg) self.x[0] => _,
                        x1 = inout(reg) self.x[1] => _,
                        step0 = in(reg) self.steps[0],
                        step1 = in(reg) self.steps[1],
                        w0 = inout(reg) self.w[0] => _,
                        w1 = inout(reg) self.w[1] => _,
                        s0 = in(reg) self.sums[0],
                        s1 = in(reg) self.sums[1],
                        s2 = in(reg) self.sums[2],
                        s3 = in(reg) self.sums[3],
                        sums_step = in(reg) self.sums_step,
                        line = in(reg) 64usize,
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack),
                    );
                }
            }
        }
    };
}

/// A product that goes on from the sums so far, and one that begins anew.
macro_rules! products {
    ($name:ident, $anew:ident: $(($sums:literal, $place:literal))* ; $($unit:literal),* $(,)?) => {
        product!($name:
            [$(concat!("tileloadd tmm", $sums, ", [{s", $place, "} + {sums_step}]")),*]
            [$($unit),*]
            [$(concat!("tilestored [{s", $place, "} + {sums_step}], tmm", $sums)),*]);
        product!($anew:
            [$(concat!("tilezero tmm", $sums)),*]
            [$($unit),*]
            [$(concat!("tilestored [{s", $place, "} + {sums_step}], tmm", $sums)),*]);
    };
}

products!(two_by_two, two_by_two_anew: (0, 0) (1, 1) (2, 2) (3, 3);
    "tileloadd tmm6, [{w0} + {line}]",
    "tileloadd tmm4, [{x0} + {line}]",
    "tdpbf16ps tmm0, tmm4, tmm6",
    "tileloadd tmm7, [{w1} + {line}]",
    "tdpbf16ps tmm1, tmm4, tmm7",
    "tileloadd tmm5, [{x1} + {line}]",
    "tdpbf16ps tmm2, tmm5, tmm6",
    "tdpbf16ps tmm3, tmm5, tmm7",
);

products!(two_by_one, two_by_one_anew: (0, 0) (2, 2);
    "tileloadd tmm6, [{w0} + {line}]",
    "tileloadd tmm4, [{x0} + {line}]",
    "tdpbf16ps tmm0, tmm4, tmm6",
    "tileloadd tmm5, [{x1} + {line}]",
    "tdpbf16ps tmm2, tmm5, tmm6",
);

products!(one_by_two, one_by_two_anew: (0, 0) (1, 1);
    "tileloadd tmm6, [{w0} + {line}]",
    "tileloadd tmm4, [{x0} + {line}]",
    "tdpbf16ps tmm0, tmm4, tmm6",
    "tileloadd tmm7, [{w1} + {line}]",
    "tdpbf16ps tmm1, tmm4, tmm7",
);

products!(one_by_one, one_by_one_anew: (0, 0);
    "tileloadd tmm6, [{w0} + {line}]",
    "tileloadd tmm4, [{x0} + {line}]",
    "tdpbf16ps tmm0, tmm4, tmm6",
);
