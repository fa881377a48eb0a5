//! Root-mean-square normalization of one row.

/// `out = x / sqrt(mean(x^2) + eps) * weight`, with the sum in double precision.
pub(crate) struct RmsNorm<'a> {
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub eps: f32,
    pub out: &'a mut [f32],
}

impl RmsNorm<'_> {
    pub fn apply(self) {
        let squares: f64 = self.x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let scale = 1.0 / (squares / self.x.len() as f64 + f64::from(self.eps)).sqrt();
        for ((out, &x), &weight) in self.out.iter_mut().zip(self.x).zip(self.weight) {
            *out = (f64::from(x) * scale * f64::from(weight)) as f32;
        }
    }
}
