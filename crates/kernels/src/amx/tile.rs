//! The tile registers. Their intrinsics and their detection are not stable, so this is CPUID and inline assembly.
//!
//! Formats and instructions: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::marker::PhantomData;

/// Whether the processor has tiles and their products of bf16 (CPUID leaf 7, EDX bits 24 and 22).
pub(super) fn has_bf16() -> bool {
    const TILE_AND_BF16: u32 = 1 << 24 | 1 << 22;
    // Every 64-bit x86 has CPUID; leaf 0 says whether leaf 7 exists.
    let edx = if __cpuid_count(0, 0).eax >= 7 { __cpuid_count(7, 0).edx } else { 0 };
    edx & TILE_AND_BF16 == TILE_AND_BF16
}

/// Asks the system to let this process, with all its threads, keep tile data; without that their first use is a fault.
#[cfg(target_os = "linux")]
pub(super) fn ask() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call changes what the process may do and touches no memory. An older kernel refuses it.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// Elsewhere it is not known how to ask.
#[cfg(not(target_os = "linux"))]
pub(super) fn ask() -> bool {
    false
}

/// The shapes of the tile registers (palette 1).
#[repr(C, align(64))]
pub(super) struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shapes {
    /// Of each register: rows, and bytes in a row.
    pub fn new(shapes: [(usize, usize); 8]) -> Self {
        let mut config =
            Shapes { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        for (register, (rows, row_bytes)) in shapes.into_iter().enumerate() {
            assert!(
                (1..=16).contains(&rows) && (1..=64).contains(&row_bytes),
                "tiles are 16 by 64 bytes at most"
            );
            config.rows[register] = rows as u8;
            config.row_bytes[register] = row_bytes as u16;
        }
        config
    }
}

/// This thread's tile registers, shaped; they are given back at the end.
pub(super) struct Tiles(PhantomData<*const ()>);

impl Tiles {
    /// # Safety
    /// The process may use tiles.
    pub unsafe fn shape(shapes: &Shapes) -> Tiles {
        // SAFETY: the shapes are 64 bytes in the form that palette 1 asks for.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) shapes, options(readonly, nostack, preserves_flags),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _);
        }
        Tiles(PhantomData)
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the thread has tiles, or there would be no `Tiles`.
        unsafe {
            asm!("tilerelease", options(nomem, nostack, preserves_flags),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _);
        }
    }
}
