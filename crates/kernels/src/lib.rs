//! The arithmetic of a transformer on the processor: quantized matrix products, norms, rotary positions, attention.
//!
//! Everything is a method of one handle, [`Kernels`], which carries the instruction set, the precision and the threads
//! chosen at run time. The instruction sets are a ladder of folders with the same file names in each: [`reference`] is
//! plain Rust and defines what is right; the others say the same thing in wider registers.
//!
//! **Invariant:** a row's result is bit-identical whatever other rows are computed with it, however the rows are cut
//! into calls, and however many threads work. It may differ between instruction sets.
//!
//! **Invariant, by absence:** nothing here knows a model, a request or a file.

pub mod detect;
pub mod error;
pub mod memory;
pub mod pool;

pub mod format;
pub mod pack;

mod disjoint;
mod kernels;

pub mod activations;
mod matmul;
mod rows;

mod attention;
mod kv;
mod rope;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod reference;
#[cfg(target_arch = "x86_64")]
mod vector;

pub use activations::Activations;
pub use attention::{AttentionJob, AttentionSequence};
pub use detect::Isa;
pub use error::KernelError;
pub use format::{Format, dequantize};
pub use kernels::{Kernels, Precision};
pub use kv::{KvDtype, KvLayer};
pub use memory::Memory;
pub use pack::PackedMatrix;
pub use pool::Pool;
pub use rope::{RopeParameters, RopeScaling, RopeStyle, RopeTable};

#[cfg(test)]
mod suite;
#[cfg(test)]
mod testing;
