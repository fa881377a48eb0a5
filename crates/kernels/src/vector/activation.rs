//! Activation functions, gated or alone.

use super::{LANES, Simd, VectorKernel, exp};
use crate::reference::activation::{Activation, GELU_CUBE, GELU_SCALE, Gated, Softcap};

/// A function of one number. A type and not a function that is passed on: what calls one of those is compiled apart, without
/// the instruction set, and then every instruction of it is a call.
trait Function {
    fn at<S: Simd>(simd: S, x: S::F) -> S::F;
}

impl VectorKernel for Gated<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.activation {
            Activation::Silu => gated::<S, Silu>(simd, self.gate, self.up),
            Activation::GeluTanh => gated::<S, GeluTanh>(simd, self.gate, self.up),
        }
    }
}

#[inline(always)]
fn gated<S: Simd, F: Function>(simd: S, gate: &mut [f32], up: &[f32]) {
    let (gate, gate_rest) = gate.as_chunks_mut::<LANES>();
    let (up, up_rest) = up.as_chunks::<LANES>();
    for (gate, up) in gate.iter_mut().zip(up) {
        simd.store(simd.mul(F::at(simd, simd.load(gate)), simd.load(up)), gate);
    }
    let rest = simd.mul(F::at(simd, simd.load_some(gate_rest)), simd.load_some(up_rest));
    simd.store_some(rest, gate_rest);
}

struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn at<S: Simd>(simd: S, x: S::F) -> S::F {
        let one = simd.splat(1.0);
        simd.div(x, simd.add(one, exp::exp(simd, simd.sub(simd.splat(0.0), x))))
    }
}

/// `x * logistic(2 y)` equals `x / 2 * (1 + tanh(y))`, without the difference of near numbers.
struct GeluTanh;

impl Function for GeluTanh {
    #[inline(always)]
    fn at<S: Simd>(simd: S, x: S::F) -> S::F {
        let square = simd.mul(x, x);
        let factor = simd.mul_add(square, simd.splat(GELU_CUBE), simd.splat(1.0));
        let doubled = simd.mul(simd.mul(x, factor), simd.splat(2.0 * GELU_SCALE));
        simd.mul(x, exp::logistic(simd, doubled))
    }
}

impl VectorKernel for Softcap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (x, rest) = self.x.as_chunks_mut::<LANES>();
        for lanes in x {
            simd.store(exp::softcap(simd, simd.load(lanes), self.cap), lanes);
        }
        simd.store_some(exp::softcap(simd, simd.load_some(rest), self.cap), rest);
    }
}
