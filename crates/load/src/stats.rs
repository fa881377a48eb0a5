//! Statistics whose definitions are stated: percentiles of exact values, means, their intervals, and how few values are too
//! few.
//!
//! **Percentiles** interpolate linearly between order statistics: with `n` sorted values the p-quantile lies at position
//! `(n - 1) p`. That is type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician
//! 50 (1996), and the default of `numpy.percentile`, so that our figures can be checked with it.
//!
//! **Invariant:** nothing is NaN. A percentile may be infinite, because a call that failed never came; what too few values
//! carry is [`Estimate::Withheld`] with the reason, never a number.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub mod interval;

pub mod bootstrap;

pub use interval::{Interval, Over};

/// Calls below which no rate (throughput, QPS, goodput, errors) is given.
pub const RATE_SAMPLES_MIN: usize = 10;
/// Values below which no mean is given.
pub const MEAN_SAMPLES_MIN: usize = 2;

/// A number of a report. JSON knows no infinity, so that is written as the string `"inf"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Real(pub f64);

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Serialize for Real {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            serializer.serialize_f64(self.0)
        } else {
            serializer.serialize_str(if self.0 > 0.0 { "inf" } else { "-inf" })
        }
    }
}

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Name(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Real(number)),
            Written::Name(name) if name == "inf" => Ok(Real(f64::INFINITY)),
            Written::Name(name) if name == "-inf" => Ok(Real(f64::NEG_INFINITY)),
            Written::Name(name) => {
                Err(serde::de::Error::custom(format!("{name:?} is no number, \"inf\" or \"-inf\"")))
            }
        }
    }
}

/// A figure, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Estimate {
    Given {
        value: Real,
        samples: usize,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        interval: Option<Interval>,
    },
    Withheld {
        withheld: String,
        samples: usize,
    },
}

impl Estimate {
    /// A figure without an interval.
    pub fn given(value: f64, samples: usize) -> Self {
        Estimate::Given { value: Real(value), samples, interval: None }
    }

    pub fn withheld(reason: impl Into<String>, samples: usize) -> Self {
        Estimate::Withheld { withheld: reason.into(), samples }
    }

    /// The figure, if it is given.
    pub fn value(&self) -> Option<f64> {
        match self {
            Estimate::Given { value, .. } => Some(value.0),
            Estimate::Withheld { .. } => None,
        }
    }

    pub fn interval(&self) -> Option<Interval> {
        match self {
            Estimate::Given { interval, .. } => *interval,
            Estimate::Withheld { .. } => None,
        }
    }

    /// Events over seconds, withheld below [`RATE_SAMPLES_MIN`] calls.
    pub fn rate(amount: f64, seconds: f64, samples: usize) -> Self {
        if samples < RATE_SAMPLES_MIN {
            return Estimate::withheld(
                format!("a rate needs {RATE_SAMPLES_MIN} calls, there are {samples}"),
                samples,
            );
        }
        if seconds <= 0.0 {
            return Estimate::withheld("the window has no length", samples);
        }
        Estimate::given(amount / seconds, samples)
    }
}

/// What is told of a set of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    Mean,
    Min,
    Max,
    /// In percent, between 0 and 100, ends excluded.
    Percentile(f64),
}

impl Statistic {
    /// Values that it takes: a percentile `p` needs `1 / min(p, 1 - p)`, so that one value is expected beyond it (2 for the
    /// median, 20 for p95, 100 for p99, 1,000 for p99.9).
    pub fn samples_min(self) -> usize {
        match self {
            Statistic::Min | Statistic::Max => 1,
            Statistic::Mean => MEAN_SAMPLES_MIN,
            Statistic::Percentile(percent) => {
                let tail = percent.min(100.0 - percent).max(f64::MIN_POSITIVE);
                // Rounded first: 100 / (100 - 99.9) is 1000.0000000000568 in binary.
                ((100.0 / tail * 1e6).round() / 1e6).ceil() as usize
            }
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Mean => f.write_str("mean"),
            Statistic::Min => f.write_str("min"),
            Statistic::Max => f.write_str("max"),
            Statistic::Percentile(percent) => write!(f, "p{percent}"),
        }
    }
}

/// Values in ascending order, each with the call that it belongs to: intervals are over calls, since the gaps of one call
/// are not independent of each other. Equal values are in the order of their calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    values: Vec<f64>,
    owners: Vec<u32>,
    calls: usize,
}

impl Pool {
    /// The values of each call; a call without values still counts as a call.
    pub fn new(calls: impl IntoIterator<Item = Vec<f64>>) -> Self {
        let mut keys = Vec::new();
        let mut count = 0;
        for values in calls {
            let owner = u32::try_from(count).expect("a run keeps fewer than 2^32 calls");
            keys.extend(values.into_iter().filter(|value| !value.is_nan()).map(|value| key(value, owner)));
            count += 1;
        }
        keys.sort_unstable();
        let (values, owners) = keys.into_iter().map(unkey).unzip();
        Pool { values, owners, calls: count }
    }

    /// One value for each call.
    pub fn single(values: impl IntoIterator<Item = f64>) -> Self {
        Pool::new(values.into_iter().map(|value| vec![value]))
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Ascending.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The statistic without an interval; withheld where there are too few values.
    pub fn estimate(&self, statistic: Statistic) -> Estimate {
        let needed = statistic.samples_min();
        if self.len() < needed {
            return Estimate::withheld(
                format!("{statistic} needs {needed} values, there are {}", self.len()),
                self.len(),
            );
        }
        Estimate::given(exact(&self.values, statistic), self.len())
    }

    /// Several statistics, each with its interval over calls: see [`interval`].
    pub fn estimates(&self, statistics: &[Statistic]) -> Vec<Estimate> {
        let calls = interval::Calls::of(self);
        let with_interval = |&statistic: &Statistic| {
            let mut estimate = self.estimate(statistic);
            if let Estimate::Given { interval, .. } = &mut estimate {
                *interval = calls.interval(statistic);
            }
            estimate
        };
        statistics.iter().map(with_interval).collect()
    }
}

/// A value and its call as one number, in the order of values and then of calls: gaps are many, and whole numbers are sorted
/// several times faster than pairs that are compared part by part.
fn key(value: f64, owner: u32) -> u128 {
    let bits = value.to_bits();
    let ordered = if value.is_sign_negative() { !bits } else { bits | SIGN };
    u128::from(ordered) << 32 | u128::from(owner)
}

fn unkey(key: u128) -> (f64, u32) {
    let (ordered, owner) = ((key >> 32) as u64, key as u32);
    (f64::from_bits(if ordered & SIGN == 0 { !ordered } else { ordered & !SIGN }), owner)
}

const SIGN: u64 = 1 << 63;

/// The statistic of ascending values, of which there is at least one.
pub fn exact(sorted: &[f64], statistic: Statistic) -> f64 {
    assert!(!sorted.is_empty(), "a statistic of nothing");
    match statistic {
        Statistic::Mean => mean(sorted),
        Statistic::Min => sorted[0],
        Statistic::Max => sorted[sorted.len() - 1],
        Statistic::Percentile(percent) => percentile(sorted, percent),
    }
}

/// The percentile (0 to 100) of ascending values, of which there is at least one; see the module for the definition.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let position = (sorted.len() - 1) as f64 * percent.clamp(0.0, 100.0) / 100.0;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    between(sorted[below], sorted[above], position - below as f64)
}

/// Linear interpolation that stays defined at infinity: any share of an infinite value is infinite.
fn between(low: f64, high: f64, share: f64) -> f64 {
    if share == 0.0 || low == high { low } else { low + (high - low) * share }
}

/// The mean of at least one value; infinite if one is.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Wilson's score interval for a probability, after `successes` of `trials` (Wilson, Journal of the American Statistical
/// Association 22, 1927). `z` is the normal quantile: 1.96 for 95% on both sides.
pub fn wilson(successes: usize, trials: usize, z: f64) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let n = trials as f64;
    let share = successes as f64 / n;
    let middle = (share + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const P50: Statistic = Statistic::Percentile(50.0);

    #[test]
    fn percentiles_are_those_of_numpy() {
        // numpy.percentile([15, 20, 35, 40, 50], [5, 30, 40, 50, 99]) by its documented formula.
        let values = [15.0, 20.0, 35.0, 40.0, 50.0];
        for (percent, expected) in [(5.0, 16.0), (30.0, 23.0), (40.0, 29.0), (50.0, 35.0), (99.0, 49.6)] {
            assert!((percentile(&values, percent) - expected).abs() < 1e-9, "p{percent}");
        }
    }

    #[test]
    fn a_percentile_that_touches_a_failure_is_infinite() {
        let values = [1.0, 2.0, 3.0, f64::INFINITY];
        assert_eq!(percentile(&values, 50.0), 2.5);
        assert_eq!(percentile(&values, 67.0), f64::INFINITY);
        assert_eq!(percentile(&[f64::INFINITY, f64::INFINITY], 50.0), f64::INFINITY);
        // Exactly on the last finite value nothing of the failure is mixed in.
        assert_eq!(percentile(&[1.0, 2.0, f64::INFINITY], 50.0), 2.0);
    }

    #[test]
    fn too_few_values_give_a_reason_and_no_number() {
        let of = |n: usize| Pool::single((0..n).map(|i| i as f64));
        assert!(of(99).estimate(Statistic::Percentile(99.0)).value().is_none());
        assert!(of(100).estimate(Statistic::Percentile(99.0)).value().is_some());
        assert!(of(19).estimate(Statistic::Percentile(95.0)).value().is_none());
        assert!(of(20).estimate(Statistic::Percentile(5.0)).value().is_some());
        assert_eq!(Statistic::Percentile(99.9).samples_min(), 1000);
        let Estimate::Withheld { withheld, .. } = of(3).estimate(Statistic::Percentile(99.0)) else {
            panic!()
        };
        assert_eq!(withheld, "p99 needs 100 values, there are 3");
        assert!(Estimate::rate(9.0, 1.0, 9).value().is_none());
        assert_eq!(Estimate::rate(10.0, 2.0, 10).value(), Some(5.0));
    }

    #[test]
    fn infinity_survives_json() {
        let estimate = Estimate::given(f64::INFINITY, 3);
        let json = serde_json::to_string(&estimate).unwrap();
        assert_eq!(json, r#"{"value":"inf","samples":3}"#);
        assert_eq!(serde_json::from_str::<Estimate>(&json).unwrap(), estimate);
        let none = Estimate::withheld("too few", 1);
        assert_eq!(serde_json::from_str::<Estimate>(&serde_json::to_string(&none).unwrap()).unwrap(), none);
    }

    #[test]
    fn wilson_is_that_of_the_tables() {
        let (low, high) = wilson(8, 10, 1.959_964);
        assert!((low - 0.4902).abs() < 1e-3 && (high - 0.9433).abs() < 1e-3, "{low} {high}");
        assert_eq!(wilson(0, 0, 1.96), (0.0, 1.0));
    }

    proptest! {
        #[test]
        fn a_percentile_lies_among_its_values_and_rises_with_p(
            mut values in prop::collection::vec(-1e6..1e6f64, 1..200), a in 0.0..100.0f64, b in 0.0..100.0f64
        ) {
            values.sort_by(f64::total_cmp);
            let (low, high) = (percentile(&values, a.min(b)), percentile(&values, a.max(b)));
            prop_assert!(values[0] <= low && low <= high + 1e-9 && high <= values[values.len() - 1]);
        }

        #[test]
        fn a_pool_forgets_the_order_of_its_values(values in prop::collection::vec(0.0..1e3f64, 2..100)) {
            let reversed: Vec<f64> = values.iter().rev().copied().collect();
            prop_assert_eq!(Pool::single(values).estimate(P50), Pool::single(reversed).estimate(P50));
        }
    }
}
