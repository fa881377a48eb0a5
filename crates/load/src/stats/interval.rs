//! Intervals of figures over calls, calculated from the values themselves: nothing is resampled, so that a report of a long
//! run takes no longer than sorting it, and one run has one interval.
//!
//! **Percentiles** have the interval between two order statistics whose ranks are binomial (Clopper and Pearson, Biometrika 26,
//! 1934): exact, whatever the values are distributed like, where each call has one value. Where calls have several, which
//! resemble each other, they count for as many independent ones as give the same variance to the share of values below the
//! percentile (Woodruff, Journal of the American Statistical Association 47, 1952; Korn and Graubard, Survey Methodology 24,
//! 1998).
//!
//! **Means** have Student's interval from the sums of calls, moved by the skewness of those sums (Hall, The Annals of
//! Statistics 16, 1988), without which intervals of latencies, which lean to the right, hold the truth too seldom.
//!
//! **Invariant:** what counts as independent is a call with all of its gaps, never a gap.

use serde::{Deserialize, Serialize};

use super::{Pool, Real, Statistic};

/// Calls, pairs or runs below which there is no interval: so few say little about what was not seen.
pub const INTERVAL_SAMPLES_MIN: usize = 10;
/// Share of such intervals that hold the truth.
pub const LEVEL: f64 = 0.95;
/// The normal distribution's quantile at `(1 + LEVEL) / 2`.
const NORMAL: f64 = 1.959_964;
/// Binomial weights below this share of the largest are nothing.
const NEGLIGIBLE: f64 = 1e-18;

/// Where a figure would lie if the run were repeated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: Real,
    pub high: Real,
    /// Such as 0.95.
    pub level: f64,
    /// Resamples; absent where the interval was calculated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draws: Option<usize>,
    pub over: Over,
}

impl Interval {
    fn calculated(low: f64, high: f64) -> Self {
        Interval { low: Real(low), high: Real(high), level: LEVEL, draws: None, over: Over::Calls }
    }

    pub fn holds(&self, value: f64) -> bool {
        self.low.0 <= value && value <= self.high.0
    }
}

/// What is taken for independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    Calls,
    Pairs,
    Runs,
}

/// What intervals of a pool need to know of its calls.
pub struct Calls<'a> {
    pool: &'a Pool,
    /// How many values each call has.
    counts: Vec<u32>,
    /// Calls that have values.
    seen: usize,
}

impl<'a> Calls<'a> {
    pub fn of(pool: &'a Pool) -> Self {
        let counts = count(&pool.owners, pool.calls);
        let seen = counts.iter().filter(|count| **count > 0).count();
        Calls { pool, counts, seen }
    }

    /// The interval of a statistic. None below [`INTERVAL_SAMPLES_MIN`] calls, for the ends, and for a percentile so far out
    /// that not even the last value lies beyond it surely enough: p95 takes 72 calls, p99 368.
    pub fn interval(&self, statistic: Statistic) -> Option<Interval> {
        if self.seen < INTERVAL_SAMPLES_MIN {
            return None;
        }
        match statistic {
            Statistic::Min | Statistic::Max => None,
            Statistic::Mean => Some(self.mean()),
            Statistic::Percentile(percent) => self.percentile(percent / 100.0),
        }
    }

    fn percentile(&self, p: f64) -> Option<Interval> {
        let values = &self.pool.values;
        let (count, independent) = (values.len() as u64, self.independent(p));
        let (low, high) = binomial(independent, p)?;
        // The shares `low / independent` and `high / independent` of all values, to the outer side.
        let (low, high) = ((count * low).div_ceil(independent), count * high / independent + 1);
        let at = |rank: u64| values[usize::try_from(rank - 1).expect("a rank among values")];
        Some(Interval::calculated(at(low), at(high)))
    }

    /// How many independent values the pool stands for, as far as the share below its `p`-quantile goes. Equal values are
    /// in the order of their calls, which makes calls resemble each other less than anything else could, and the interval
    /// wider rather than narrower.
    fn independent(&self, p: f64) -> u64 {
        let all = self.pool.len();
        if self.seen == all {
            return all as u64;
        }
        let below = ((all as f64 * p).round() as usize).clamp(1, all - 1);
        let share = below as f64 / all as f64;
        let excess = count(&self.pool.owners[..below], self.pool.calls)
            .into_iter()
            .zip(&self.counts)
            .map(|(below, of)| f64::from(below) - share * f64::from(*of));
        let variance = self.variance(excess.map(|excess| excess * excess).sum());
        let student = (NORMAL / student(self.seen - 1)).powi(2);
        ((share * (1.0 - share) / variance * student) as u64).clamp(1, all as u64)
    }

    fn mean(&self) -> Interval {
        let (values, owners) = (&self.pool.values, &self.pool.owners);
        let mean = super::mean(values);
        if mean.is_infinite() {
            // One call that never ended is enough to know that their mean has no bound.
            return Interval::calculated(mean, mean);
        }
        let mut excess = vec![0.0; self.pool.calls];
        for (value, owner) in values.iter().zip(owners) {
            excess[*owner as usize] += value - mean;
        }
        let power = |power: i32| excess.iter().map(|excess| excess.powi(power)).sum::<f64>();
        let (squares, cubes) = (power(2), power(3));
        if squares == 0.0 {
            return Interval::calculated(mean, mean);
        }
        let error = self.variance(squares).sqrt();
        let quantile = student(self.seen - 1);
        // Hall's first term: skewness over the root of the number of calls, times (2 z² + 1) / 6.
        let lean = cubes / squares.powf(1.5) * (2.0 * quantile * quantile + 1.0) / 6.0;
        let end = |side: f64| (mean + error * (side + lean)).clamp(values[0], values[values.len() - 1]);
        Interval::calculated(end(-quantile), end(quantile))
    }

    /// The variance of a ratio of sums over calls, from the squares of what each call exceeds its part of it by.
    fn variance(&self, squares: f64) -> f64 {
        let (seen, all) = (self.seen as f64, self.pool.len() as f64);
        seen / (seen - 1.0) * squares / (all * all)
    }
}

fn count(owners: &[u32], calls: usize) -> Vec<u32> {
    let mut counts = vec![0; calls];
    for owner in owners {
        counts[*owner as usize] += 1;
    }
    counts
}

/// The largest number that a binomial count of `trials` falls short of, and the smallest that it exceeds, each in 2.5% of
/// all cases at most. None where one of the two is 0 or `trials`, beyond which there is nothing.
fn binomial(trials: u64, p: f64) -> Option<(u64, u64)> {
    let odds = p / (1.0 - p);
    let mode = ((trials + 1) as f64 * p) as u64;
    // Weights by their ratios to the largest, which needs neither factorials nor logarithms.
    let up = (mode..trials).scan(1.0, |weight, k| {
        *weight *= (trials - k) as f64 / (k + 1) as f64 * odds;
        (*weight > NEGLIGIBLE).then_some(*weight)
    });
    let down = (1..=mode).rev().scan(1.0, |weight, k| {
        *weight *= k as f64 / (trials - k + 1) as f64 / odds;
        (*weight > NEGLIGIBLE).then_some(*weight)
    });
    let mut weights: Vec<f64> = down.collect();
    let first = mode - weights.len() as u64;
    weights.reverse();
    weights.push(1.0);
    weights.extend(up);
    let tail = weights.iter().sum::<f64>() * (1.0 - LEVEL) / 2.0;
    let within = |weights: &mut dyn Iterator<Item = &f64>| {
        let mut sum = 0.0;
        weights
            .take_while(|weight| {
                sum += *weight;
                sum <= tail
            })
            .count() as u64
    };
    let low = first + within(&mut weights.iter());
    let high = first + weights.len() as u64 - 1 - within(&mut weights.iter().rev());
    (low > 0 && high < trials).then_some((low, high))
}

/// Student's quantile at `(1 + LEVEL) / 2`, from 9 degrees of freedom on within 0.001: the expansion of Fisher and Cornish
/// (Abramowitz and Stegun, 26.7.5).
fn student(freedom: usize) -> f64 {
    let (z, f) = (NORMAL, freedom as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / f + second / (f * f) + third / (f * f * f)
}

#[cfg(test)]
mod tests;
