//! Activation functions, gated or alone, number by number.

/// `gate = f(gate) * up`.
pub(crate) struct Gated<'a> {
    pub gate: &'a mut [f32],
    pub up: &'a [f32],
    pub activation: Activation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `x / (1 + e^-x)`.
    Silu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    GeluTanh,
}

/// `x = cap * tanh(x / cap)`.
pub(crate) struct Softcap<'a> {
    pub x: &'a mut [f32],
    pub cap: f32,
}

/// `sqrt(2 / pi)`.
pub(crate) const GELU_SCALE: f32 = 0.797_884_6;
/// The weight of the cube in the tanh form of GELU (Hendrycks and Gimpel, "Gaussian Error Linear Units").
pub(crate) const GELU_CUBE: f32 = 0.044_715;

impl Gated<'_> {
    pub fn apply(self) {
        for (gate, &up) in self.gate.iter_mut().zip(self.up) {
            *gate = (self.activation.of(f64::from(*gate)) * f64::from(up)) as f32;
        }
    }
}

impl Activation {
    pub fn of(self, x: f64) -> f64 {
        match self {
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::GeluTanh => {
                let inner = f64::from(GELU_SCALE) * (x + f64::from(GELU_CUBE) * x * x * x);
                0.5 * x * (1.0 + inner.tanh())
            }
        }
    }
}

impl Softcap<'_> {
    pub fn apply(self) {
        for x in self.x {
            *x = softcap(*x, self.cap);
        }
    }
}

pub(crate) fn softcap(x: f32, cap: f32) -> f32 {
    cap * (x / cap).tanh()
}
