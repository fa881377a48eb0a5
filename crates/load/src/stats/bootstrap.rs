//! Intervals by resampling: the percentile bootstrap of Efron (The Annals of Statistics 7, 1979), seeded, with a fixed number
//! of draws.
//!
//! **Invariant:** what is resampled is what is independent: calls (with all of their gaps), pairs of calls, or whole runs.

use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::{Pool, Real, Statistic, mean, percentile};

/// Resamples of an interval.
pub const DRAWS: usize = 1000;
/// Values that all resamples of an interval may touch: above a thousandth of this there are fewer draws, so that a report
/// of a long run does not take minutes. The more values, the less the missing draws matter.
pub const WORK_MAX: usize = 20_000_000;
/// And never fewer than this.
pub const DRAWS_MIN: usize = 100;
/// Calls, pairs or runs below which there is no interval: resampling so few says little about what was not seen.
pub const INTERVAL_SAMPLES_MIN: usize = 10;
/// Runs are few by nature; below this many there is no interval.
pub const INTERVAL_RUNS_MIN: usize = 3;
/// Share of the resamples that lies inside.
pub const LEVEL: f64 = 0.95;

/// Where a figure would lie if the run were repeated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: Real,
    pub high: Real,
    /// Such as 0.95.
    pub level: f64,
    pub draws: usize,
    pub over: Over,
}

impl Interval {
    fn of(mut statistics: Vec<f64>, over: Over) -> Self {
        statistics.sort_by(f64::total_cmp);
        let tail = 50.0 * (1.0 - LEVEL);
        Interval {
            low: Real(percentile(&statistics, tail)),
            high: Real(percentile(&statistics, 100.0 - tail)),
            level: LEVEL,
            draws: statistics.len(),
            over,
        }
    }

    pub fn holds(&self, value: f64) -> bool {
        self.low.0 <= value && value <= self.high.0
    }
}

/// What was resampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    Calls,
    Pairs,
    Runs,
}

/// How often each of `count` things is in a resample.
fn draw(rng: &mut ChaCha12Rng, weights: &mut [u32]) {
    weights.fill(0);
    for _ in 0..weights.len() {
        weights[rng.random_range(0..weights.len())] += 1;
    }
}

/// Resamples of so many values.
fn draws(values: usize) -> usize {
    (WORK_MAX / values.max(1)).clamp(DRAWS_MIN, DRAWS)
}

/// The interval of a pool's statistic over calls; see [`over_calls_each`].
pub fn over_calls(pool: &Pool, statistic: Statistic, seed: u64) -> Option<Interval> {
    over_calls_each(pool, &[statistic], seed).pop().flatten()
}

/// The intervals of several statistics, from the same resamples; None below [`INTERVAL_SAMPLES_MIN`] calls, and for the
/// ends, which resampling cannot exceed.
pub fn over_calls_each(pool: &Pool, statistics: &[Statistic], seed: u64) -> Vec<Option<Interval>> {
    let mut told: Vec<Vec<f64>> = vec![Vec::new(); statistics.len()];
    let draws = draws(pool.len());
    if pool.calls >= INTERVAL_SAMPLES_MIN {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut weights = vec![0_u32; pool.calls];
        for _ in 0..draws {
            draw(&mut rng, &mut weights);
            // A resample of calls that have no values at all says nothing.
            for (told, value) in told.iter_mut().zip(weighted(pool, &weights, statistics)) {
                told.push(value);
            }
        }
    }
    statistics
        .iter()
        .zip(told)
        .map(|(statistic, told)| {
            let inner = !matches!(statistic, Statistic::Min | Statistic::Max);
            (inner && told.len() == draws).then(|| Interval::of(told, Over::Calls))
        })
        .collect()
}

/// The statistics of the pool in which each call stands as often as its weight says, in one walk over it; none where all
/// weights are of calls without values.
fn weighted(pool: &Pool, weights: &[u32], statistics: &[Statistic]) -> Vec<f64> {
    let weight_of = |index: usize| u64::from(weights[pool.owners[index] as usize]);
    let total: u64 = (0..pool.len()).map(weight_of).sum();
    if total == 0 {
        return Vec::new();
    }
    // Each statistic lies between two order statistics: the ranks, and how far it is from the lower one.
    let places: Vec<(u64, u64, f64)> = statistics
        .iter()
        .map(|statistic| match statistic {
            Statistic::Percentile(percent) => {
                let position = (total - 1) as f64 * percent / 100.0;
                (position.floor() as u64, position.ceil() as u64, position.fract())
            }
            Statistic::Min | Statistic::Mean => (0, 0, 0.0),
            Statistic::Max => (total - 1, total - 1, 0.0),
        })
        .collect();
    let mut ranks: Vec<u64> = places.iter().flat_map(|(below, above, _)| [*below, *above]).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let mut found = Vec::with_capacity(ranks.len());
    let (mut seen, mut sum) = (0, 0.0);
    for (index, value) in pool.values.iter().enumerate() {
        let weight = weight_of(index);
        if weight == 0 {
            continue;
        }
        seen += weight;
        sum += value * weight as f64;
        while found.len() < ranks.len() && ranks[found.len()] < seen {
            found.push(*value);
        }
    }
    let at = |rank: u64| found[ranks.binary_search(&rank).expect("the rank was asked for")];
    statistics
        .iter()
        .zip(places)
        .map(|(statistic, (below, above, share))| match statistic {
            Statistic::Mean => sum / total as f64,
            _ => super::between(at(below), at(above), share),
        })
        .collect()
}

/// The interval of the mean of whole runs; None below [`INTERVAL_RUNS_MIN`].
pub fn over_runs(values: &[f64], seed: u64) -> Option<Interval> {
    if values.len() < INTERVAL_RUNS_MIN {
        return None;
    }
    Some(resample(values.len(), seed, Over::Runs, |picked| {
        mean(&picked.iter().map(|&index| values[index]).collect::<Vec<_>>())
    }))
}

/// The interval of anything that is told of pairs, of which `statistic` gets the picked indices; None below
/// [`INTERVAL_SAMPLES_MIN`] pairs.
pub fn over_pairs(pairs: usize, seed: u64, statistic: impl Fn(&[usize]) -> f64) -> Option<Interval> {
    (pairs >= INTERVAL_SAMPLES_MIN).then(|| resample(pairs, seed, Over::Pairs, statistic))
}

fn resample(count: usize, seed: u64, over: Over, statistic: impl Fn(&[usize]) -> f64) -> Interval {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut picked = vec![0; count];
    let statistics = (0..draws(count))
        .map(|_| {
            picked.fill_with(|| rng.random_range(0..count));
            statistic(&picked)
        })
        .collect();
    Interval::of(statistics, over)
}

#[cfg(test)]
mod tests {
    use rand_distr::{Distribution, Exp1};

    use super::*;

    fn exponential(seed: u64, count: usize) -> Vec<f64> {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        (0..count).map(|_| Distribution::<f64>::sample(&Exp1, &mut rng)).collect()
    }

    #[test]
    fn one_seed_gives_one_interval() {
        let pool = Pool::single(exponential(1, 50));
        let interval = |seed| over_calls(&pool, Statistic::Mean, seed);
        assert_eq!(interval(7), interval(7));
        assert_ne!(interval(7), interval(8));
    }

    #[test]
    fn intervals_hold_the_truth_about_as_often_as_they_say() {
        // The median of an exponential is ln 2, its mean 1. 200 repetitions of a 95% interval miss 10 times on average;
        // bootstrap intervals of 100 values miss somewhat more often. Fewer than 85% or all of them would be a fault.
        for (statistic, truth) in
            [(Statistic::Percentile(50.0), std::f64::consts::LN_2), (Statistic::Mean, 1.0)]
        {
            let held = (0..200)
                .filter(|&seed| {
                    let pool = Pool::single(exponential(seed, 100));
                    over_calls(&pool, statistic, seed).unwrap().holds(truth)
                })
                .count();
            assert!((170..200).contains(&held), "{statistic}: {held} of 200");
        }
    }

    #[test]
    fn calls_are_resampled_with_all_their_gaps() {
        // 20 calls whose gaps are all alike within a call: as independent values the interval would be far too narrow.
        let calls: Vec<Vec<f64>> = exponential(3, 20).into_iter().map(|gap| vec![gap; 100]).collect();
        let apart = Pool::single(calls.iter().flatten().copied());
        let together = Pool::new(calls);
        let width = |pool| {
            let interval = over_calls(pool, Statistic::Mean, 1).unwrap();
            interval.high.0 - interval.low.0
        };
        assert!(width(&together) > 4.0 * width(&apart));
    }

    #[test]
    fn weights_stand_for_copies() {
        let pool = Pool::new([vec![1.0, 5.0], vec![2.0], vec![9.0]]);
        let mut copies: Vec<f64> = vec![1.0, 5.0, 1.0, 5.0, 9.0];
        copies.sort_by(f64::total_cmp);
        for percent in [0.0, 10.0, 37.5, 50.0, 80.0, 99.0] {
            let expected = percentile(&copies, percent);
            let both = weighted(&pool, &[2, 0, 1], &[Statistic::Percentile(percent), Statistic::Mean]);
            assert_eq!(both, [expected, 21.0 / 5.0], "p{percent}");
        }
        assert_eq!(weighted(&pool, &[2, 0, 1], &[Statistic::Max, Statistic::Min]), [9.0, 1.0]);
        assert!(weighted(&Pool::new([vec![], vec![1.0]]), &[2, 0], &[Statistic::Mean]).is_empty());
    }

    #[test]
    fn failures_make_an_interval_reach_to_infinity() {
        let pool = Pool::single((0..40).map(|i| if i < 38 { f64::from(i) } else { f64::INFINITY }));
        let interval = over_calls(&pool, Statistic::Percentile(95.0), 1).unwrap();
        assert!(interval.low.0.is_finite() && interval.high.0.is_infinite());
    }

    #[test]
    fn many_values_get_fewer_draws_and_one_walk_gives_what_several_would() {
        let pool = Pool::single(exponential(5, 60));
        let statistics = [Statistic::Percentile(90.0), Statistic::Mean, Statistic::Percentile(50.0)];
        let apart: Vec<_> = statistics.iter().map(|&statistic| over_calls(&pool, statistic, 3)).collect();
        assert_eq!(over_calls_each(&pool, &statistics, 3), apart);
        assert_eq!([draws(100), draws(20_000), draws(100_000), draws(10_000_000)], [1000, 1000, 200, 100]);
    }

    #[test]
    fn few_calls_pairs_or_runs_have_no_interval() {
        assert!(over_calls(&Pool::single(exponential(1, 9)), Statistic::Mean, 1).is_none());
        assert!(over_pairs(9, 1, |_| 0.0).is_none());
        assert!(over_runs(&[1.0, 2.0], 1).is_none());
        assert!(over_runs(&[1.0, 2.0, 3.0], 1).unwrap().holds(2.0));
    }
}
