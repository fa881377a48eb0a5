//! Operations on rows of activations that are no matrix product: norms, activations, softmax, sums.
//!
//! **Invariant:** a row, or a number where rows do not matter, is computed from itself alone and in one order, so sharing
//! rows out over threads changes no bit.

use std::sync::{Mutex, PoisonError};

use crate::detect::Backend;
use crate::kernels::Kernels;
use crate::reference::activation::{Activation, Gated, Softcap};
use crate::reference::norm::RmsNorm;
use crate::reference::softmax::Softmax;
#[cfg(target_arch = "x86_64")]
use crate::vector::Simd;

/// From this many numbers on, waking the other threads costs less than it saves.
pub(crate) const SHARED_FROM: usize = 1 << 14;

/// Parts per thread, so that a thread that starts late costs little.
const PARTS_PER_THREAD: usize = 2;

/// Applies a kernel's arguments on the handle's instruction set.
macro_rules! on_backend {
    ($backend:expr, $kernel:expr) => {
        match $backend {
            Backend::Reference(_) => $kernel.apply(),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(isa) => isa.run($kernel),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(isa) => isa.run($kernel),
            #[cfg(target_arch = "x86_64")]
            Backend::Amx(isa) => isa.avx512().run($kernel),
        }
    };
}
pub(crate) use on_backend;

impl Kernels {
    /// `out = x / sqrt(mean(x^2) + eps) * weight` per row; `x` and `out` are `[rows, weight.len()]`.
    pub fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let width = weight.len();
        assert!(
            x.len() == out.len() && x.len().is_multiple_of(width),
            "rms_norm: rows of {width} in and out"
        );
        self.share_rows(out, width, &|first, out| {
            for (out, x) in out.chunks_exact_mut(width).zip(x[first * width..].chunks_exact(width)) {
                on_backend!(self.backend, RmsNorm { x, weight, eps, out });
            }
        });
    }

    /// `gate = silu(gate) * up`.
    pub fn silu_mul(&self, gate: &mut [f32], up: &[f32]) {
        self.gated(gate, up, Activation::Silu);
    }

    /// `gate = gelu(gate) * up`, with GELU in its tanh form.
    pub fn gelu_mul(&self, gate: &mut [f32], up: &[f32]) {
        self.gated(gate, up, Activation::GeluTanh);
    }

    fn gated(&self, gate: &mut [f32], up: &[f32], activation: Activation) {
        assert_eq!(gate.len(), up.len(), "a gate for every number");
        self.share_pieces(gate, &|start, gate| {
            let up = &up[start..start + gate.len()];
            on_backend!(self.backend, Gated { gate, up, activation });
        });
    }

    /// `x = cap * tanh(x / cap)`.
    pub fn softcap(&self, x: &mut [f32], cap: f32) {
        assert!(cap > 0.0, "softcap: a cap above zero, not {cap}");
        self.share_pieces(x, &|_, x| on_backend!(self.backend, Softcap { x, cap }));
    }

    /// Softmax of each row of `x` `[rows, width]`, in place.
    pub fn softmax(&self, x: &mut [f32], width: usize) {
        assert!(width > 0 && x.len().is_multiple_of(width), "softmax: rows of {width}");
        self.share_rows(x, width, &|_, rows| {
            rows.chunks_exact_mut(width).for_each(|row| on_backend!(self.backend, Softmax { row }));
        });
    }

    /// `x += y`. (Memory is the limit of this and the next two, so that one plain loop serves all instruction sets.)
    pub fn add(&self, x: &mut [f32], y: &[f32]) {
        assert_eq!(x.len(), y.len(), "add: as many numbers on both sides");
        self.share_pieces(x, &|start, x| x.iter_mut().zip(&y[start..]).for_each(|(x, y)| *x += y));
    }

    /// `x *= factor`.
    pub fn scale(&self, x: &mut [f32], factor: f32) {
        self.share_pieces(x, &|_, x| x.iter_mut().for_each(|x| *x *= factor));
    }

    /// Adds `bias` to each row of `x` `[rows, bias.len()]`.
    pub fn add_bias(&self, x: &mut [f32], bias: &[f32]) {
        let width = bias.len();
        assert!(width > 0 && x.len().is_multiple_of(width), "add_bias: rows of {width}");
        self.share_rows(x, width, &|_, rows| {
            for row in rows.chunks_exact_mut(width) {
                row.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
            }
        });
    }

    /// Calls `work(first row, rows)` so that it sees every row of `x` `[rows, width]` once, on all threads if that pays.
    pub(crate) fn share_rows(&self, x: &mut [f32], width: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let (rows, threads) = (x.len() / width, self.pool.threads());
        if x.len() < SHARED_FROM || threads == 1 || rows == 1 {
            return work(0, x);
        }
        let part_rows = rows.div_ceil(threads * PARTS_PER_THREAD);
        let parts: Vec<_> = x.chunks_mut(part_rows * width).map(Mutex::new).collect();
        self.pool.for_each(parts.len(), &|part| {
            let mut rows = parts[part].lock().unwrap_or_else(PoisonError::into_inner);
            work(part * part_rows, &mut rows);
        });
    }

    /// Calls `work(start, numbers)` so that it sees every number of `x` once, on all threads if that pays.
    fn share_pieces(&self, x: &mut [f32], work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        if x.len() < SHARED_FROM || self.pool.threads() == 1 {
            return work(0, x);
        }
        let piece_len = x.len().div_ceil(self.pool.threads() * PARTS_PER_THREAD);
        let pieces: Vec<_> = x.chunks_mut(piece_len).map(Mutex::new).collect();
        self.pool.for_each(pieces.len(), &|piece| {
            let mut numbers = pieces[piece].lock().unwrap_or_else(PoisonError::into_inner);
            work(piece * piece_len, &mut numbers);
        });
    }
}
