//! Kernels written once for every instruction set with wide registers; the file names are those of [`crate::reference`].
//!
//! A kernel here is a value of its arguments with one method generic over [`Simd`]. The folder of an instruction set says
//! what sixteen lanes are (`simd.rs`) and how code is compiled for it (`run`); with those two it has all of these kernels.
//!
//! **Invariant:** everything is `#[inline(always)]` up to `run`, because code is compiled for an instruction set only inside
//! the function that enables it; and an element's result never depends on which lane or which tail it falls into.

pub(crate) mod simd;

pub(crate) mod exp;

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod norm;
pub(crate) mod rope;
pub(crate) mod softmax;

pub(crate) use simd::{Element, LANES, Simd, VectorKernel};
