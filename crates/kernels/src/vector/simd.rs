//! What the vector kernels ask of an instruction set: sixteen `f32` lanes and the arithmetic on them.
//!
//! Sixteen everywhere, whatever the register: two registers of eight make the same value, so that a kernel is written for
//! one width, and a tile of sixteen keys is one value on every machine.
//!
//! **Invariant:** a value of a type that implements [`Simd`] exists only where the machine has the instruction set, which
//! is why the methods are safe.

use half::f16;

/// Lanes of one value.
pub(crate) const LANES: usize = 16;

/// Sixteen `f32` lanes. Comparisons and extremes follow the processor's rule: where `b` is NaN, `max(a, b)` is `b`.
pub(crate) trait Simd: Copy {
    type F: Copy;

    /// Whether there are registers enough for 6 x 4 accumulators (32 wide ones) or only for 6 x 1 (16 half as wide).
    const MANY_REGISTERS: bool;

    fn splat(self, value: f32) -> Self::F;
    fn load(self, from: &[f32; LANES]) -> Self::F;
    fn load_f16(self, from: &[f16; LANES]) -> Self::F;
    fn store(self, value: Self::F, to: &mut [f32; LANES]);

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `value` times two to the power of the whole number `exponent`, for results within the normal range.
    fn scale_by_power(self, value: Self::F, exponent: Self::F) -> Self::F;
    /// Per lane: where `a < b` then `yes`, else (NaN included) `no`.
    fn select_less(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F;
    /// Per lane: where `a < b` then zero, else (NaN included) `value`.
    fn zero_where_less(self, a: Self::F, b: Self::F, value: Self::F) -> Self::F;

    /// The sum of the lanes, always in the same order.
    fn sum(self, value: Self::F) -> f32;
    /// The greatest lane.
    fn greatest(self, value: Self::F) -> f32;

    /// Asks for the cache line at `at`, any address, before it is needed; changes nothing but time.
    fn prefetch<T>(self, at: *const T);

    /// Compiles and runs `kernel` for this instruction set.
    fn run<K: VectorKernel>(self, kernel: K) -> K::Output;

    /// Up to sixteen values; the missing lanes are zero.
    #[inline(always)]
    fn load_some(self, from: &[f32]) -> Self::F {
        let mut lanes = [0.0; LANES];
        lanes[..from.len()].copy_from_slice(from);
        self.load(&lanes)
    }

    /// The first `to.len()` lanes, at most sixteen.
    #[inline(always)]
    fn store_some(self, value: Self::F, to: &mut [f32]) {
        let mut lanes = [0.0; LANES];
        self.store(value, &mut lanes);
        to.copy_from_slice(&lanes[..to.len()]);
    }
}

/// A kernel's arguments, and what it does with them on any instruction set.
pub(crate) trait VectorKernel {
    type Output;

    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// A stored number that is read as `f32`.
pub(crate) trait Element: Copy {
    fn load<S: Simd>(simd: S, from: &[Self; LANES]) -> S::F;
}

impl Element for f32 {
    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &[f32; LANES]) -> S::F {
        simd.load(from)
    }
}

impl Element for f16 {
    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &[f16; LANES]) -> S::F {
        simd.load_f16(from)
    }
}
