//! Intervals by resampling: the percentile bootstrap of Efron (The Annals of Statistics 7, 1979), seeded, with a fixed number
//! of draws. For what no formula is known of: figures of pairs, and of a few whole runs.

use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};

use super::interval::{INTERVAL_SAMPLES_MIN, Interval, LEVEL, Over};
use super::{Real, mean, percentile};

/// Resamples of an interval.
pub const DRAWS: usize = 1000;
/// Values that all resamples of an interval may touch: above a thousandth of this there are fewer draws, so that a
/// comparison of long runs does not take minutes. The more values, the less the missing draws matter.
pub const WORK_MAX: usize = 20_000_000;
/// And never fewer than this.
pub const DRAWS_MIN: usize = 100;
/// Runs are few by nature; below this many there is no interval.
pub const INTERVAL_RUNS_MIN: usize = 3;

/// Resamples of so many values.
fn draws(values: usize) -> usize {
    (WORK_MAX / values.max(1)).clamp(DRAWS_MIN, DRAWS)
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

/// The interval of what `statistic` tells of resamples of `count` things, whose indices it gets.
pub(super) fn resample(count: usize, seed: u64, over: Over, statistic: impl Fn(&[usize]) -> f64) -> Interval {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut picked = vec![0; count];
    let mut statistics: Vec<f64> = (0..draws(count))
        .map(|_| {
            picked.fill_with(|| rng.random_range(0..count));
            statistic(&picked)
        })
        .collect();
    statistics.sort_by(f64::total_cmp);
    let tail = 50.0 * (1.0 - LEVEL);
    Interval {
        low: Real(percentile(&statistics, tail)),
        high: Real(percentile(&statistics, 100.0 - tail)),
        level: LEVEL,
        draws: Some(statistics.len()),
        over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_pairs_or_runs_have_no_interval() {
        assert!(over_pairs(9, 1, |_| 0.0).is_none());
        assert!(over_runs(&[1.0, 2.0], 1).is_none());
        assert!(over_runs(&[1.0, 2.0, 3.0], 1).unwrap().holds(2.0));
    }

    #[test]
    fn one_seed_gives_one_interval_and_many_things_get_fewer_draws() {
        let interval = |seed| over_pairs(50, seed, |picked| picked.iter().sum::<usize>() as f64);
        assert_eq!(interval(7), interval(7));
        assert_ne!(interval(7), interval(8));
        assert_eq!([draws(100), draws(20_000), draws(100_000), draws(10_000_000)], [1000, 1000, 200, 100]);
    }
}
