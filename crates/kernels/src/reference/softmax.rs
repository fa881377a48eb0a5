//! Softmax of one row.

/// `row = e^(row - max) / sum`, in place, with the sum in double precision.
pub(crate) struct Softmax<'a> {
    pub row: &'a mut [f32],
}

impl Softmax<'_> {
    pub fn apply(self) {
        let greatest = self.row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weight = |x: f32| f64::from(x - greatest).exp();
        let sum: f64 = self.row.iter().map(|&x| weight(x)).sum();
        for x in self.row {
            *x = (weight(*x) / sum) as f32;
        }
    }
}
