//! Randomness without state: a number for each (seed, position), in whatever order they are asked for.

/// A number in `0.0..1.0`, the same for the same seed and position on every machine.
pub fn uniform(seed: u64, position: u64) -> f64 {
    // The seed is mixed first: neighbouring seeds (the choices of one request) must not share a stretch of one stream.
    let stream = mix(seed.wrapping_add(STEP));
    let bits = mix(stream.wrapping_add(position.wrapping_add(1).wrapping_mul(STEP)));
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The increment of SplitMix64: the odd number nearest to 2^64 over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output function (Steele, Lea and Flood 2014, with Stafford's 13th set of constants).
pub fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws along both axes and checks mean and variance against those of the uniform distribution.
    fn check(draws: impl Iterator<Item = f64>) {
        let draws: Vec<f64> = draws.collect();
        let count = draws.len() as f64;
        let mean = draws.iter().sum::<f64>() / count;
        let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / count;
        // Five standard errors of the mean of a uniform variable.
        assert!((mean - 0.5).abs() < 5.0 * (1.0 / 12.0 / count).sqrt(), "mean {mean}");
        assert!((variance - 1.0 / 12.0).abs() < 0.002, "variance {variance}");
        let pairs = draws.windows(2).map(|pair| (pair[0] - 0.5) * (pair[1] - 0.5)).sum::<f64>() / count;
        assert!(pairs.abs() < 0.002, "neighbours correlate by {pairs}");
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
    }

    #[test]
    fn numbers_are_uniform_along_positions_and_along_seeds() {
        check((0..100_000).map(|position| uniform(42, position)));
        check((0..100_000).map(|seed| uniform(seed, 7)));
        check((0..100_000).map(|both| uniform(both, both)));
    }
}
