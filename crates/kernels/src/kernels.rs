//! The one handle of this crate: which instruction set, which precision, which threads.
//!
//! **Invariant:** the instruction set of a handle is one that this machine has. The operations are further `impl Kernels`
//! blocks, each beside the data it works on.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use crate::attention::AttentionBuffers;
use crate::detect::{Backend, Isa};
use crate::error::KernelError;
use crate::matmul::{Scratch, scratches};
use crate::pool::Pool;

/// How a matrix product treats its activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// `f32` activations times weights dequantized in registers: no approximation beyond the stored weights.
    Exact,
    /// Activations rounded to `i8` in groups of 32 inputs, products in integers.
    Fast,
}

/// The operations of a transformer, on the instruction set and the threads chosen at run time.
pub struct Kernels {
    pub(crate) backend: Backend,
    pub(crate) precision: Precision,
    pub(crate) pool: Pool,
    /// One for each thread, locked by it for the length of an operation.
    pub(crate) scratch: Vec<Mutex<Scratch>>,
    /// Counts the products, so that what a thread keeps in its scratch is known to belong to the one at hand.
    pub(crate) calls: AtomicU64,
    /// Kept between calls of attention, which takes them for its length.
    pub(crate) attention: Mutex<AttentionBuffers>,
}

impl Kernels {
    /// Fails where the machine lacks `isa` or `threads` is out of range.
    pub fn new(isa: Isa, precision: Precision, threads: usize) -> Result<Kernels, KernelError> {
        let backend = Backend::new(isa).ok_or(KernelError::IsaUnavailable { isa })?;
        let pool = Pool::new(threads)?;
        let (scratch, calls, attention) = (scratches(threads), AtomicU64::new(0), Mutex::default());
        Ok(Kernels { backend, precision, pool, scratch, calls, attention })
    }

    pub fn isa(&self) -> Isa {
        self.backend.isa()
    }

    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The compute threads, for work outside the kernels that should share them (loading, repacking).
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}
