//! Percentiles of runs too long to keep every value, with a stated error.
//!
//! **Invariant:** a percentile given here differs from the exact one's neighbouring order statistic by at most
//! [`Hdr::relative_error`] of its value. Failures are counted beside the histogram, as infinite.

use hdrhistogram::Histogram;

use super::{Estimate, Statistic};

/// Nanoseconds in a histogram of high dynamic range, and failures.
#[derive(Clone, Debug)]
pub struct Hdr {
    histogram: Histogram<u64>,
    failures: u64,
}

impl Hdr {
    /// Three significant digits: an error of 0.1%.
    pub const DIGITS: u8 = 3;
    /// An hour; what is longer stands as this.
    pub const LONGEST_NS: u64 = 3_600_000_000_000;

    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, Hdr::LONGEST_NS, Hdr::DIGITS)
            .expect("an hour in nanoseconds at three digits is within the histogram's bounds");
        Hdr { histogram, failures: 0 }
    }

    /// Of each percentile, as a share of its value.
    pub fn relative_error(&self) -> f64 {
        10f64.powi(-i32::from(self.histogram.sigfig()))
    }

    pub fn record_ns(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.max(1));
    }

    /// A call that failed: infinite.
    pub fn record_failure(&mut self) {
        self.failures += 1;
    }

    /// The order statistic at or above the percentile, in nanoseconds; infinite where failures reach down to it.
    pub fn percentile_ns(&self, percent: f64) -> Estimate {
        let count = self.histogram.len() + self.failures;
        let samples = usize::try_from(count).unwrap_or(usize::MAX);
        let statistic = Statistic::Percentile(percent);
        if samples < statistic.samples_min() {
            let needed = statistic.samples_min();
            return Estimate::withheld(
                format!("{statistic} needs {needed} values, there are {samples}"),
                samples,
            );
        }
        let rank = (((count - 1) as f64 * percent / 100.0).ceil() as u64) + 1; // 1 to count
        if rank > self.histogram.len() {
            return Estimate::given(f64::INFINITY, samples);
        }
        // Half a rank less, since the histogram rounds shares up to the next rank.
        let share = (rank as f64 - 0.5) / self.histogram.len() as f64;
        Estimate::given(self.histogram.value_at_quantile(share) as f64, samples)
    }
}

impl Default for Hdr {
    fn default() -> Self {
        Hdr::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn stays_within_its_stated_error(mut values in prop::collection::vec(1..10_000_000_000_u64, 100..400)) {
            let mut hdr = Hdr::new();
            values.iter().for_each(|&ns| hdr.record_ns(ns));
            values.sort_unstable();
            for percent in [50.0, 90.0, 99.0] {
                let given = hdr.percentile_ns(percent).value().unwrap();
                let rank = ((values.len() - 1) as f64 * percent / 100.0).ceil() as usize;
                let exact = values[rank] as f64;
                prop_assert!((given - exact).abs() <= hdr.relative_error() * exact + 1.0, "p{percent}: {given} {exact}");
            }
        }
    }

    #[test]
    fn failures_are_infinite() {
        let mut hdr = Hdr::new();
        (1..=98).for_each(|ns| hdr.record_ns(ns));
        (0..2).for_each(|_| hdr.record_failure());
        assert_eq!(hdr.percentile_ns(99.0).value(), Some(f64::INFINITY));
        assert_eq!(hdr.percentile_ns(50.0).value(), Some(51.0));
    }
}
