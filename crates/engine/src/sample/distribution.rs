//! What can be done to one row of logits or weights, each in a few passes over the vocabulary and never a full sort.
//!
//! Weights are unnormalized probabilities: the best token's is 1, a dropped token's is 0. Loops that touch every token
//! run over fixed lanes, so that the compiler can use vector instructions.
//!
//! **Invariant:** ties go to the lower token id, everywhere.

use std::cmp::Ordering;

use protocol::TokenId;

/// A token with its logit or weight.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub token: TokenId,
    pub value: f32,
}

impl Candidate {
    /// Best first.
    pub fn order(&self, other: &Self) -> Ordering {
        other.value.total_cmp(&self.value).then(self.token.cmp(&other.token))
    }
}

const LANES: usize = 16;

/// The largest logit, `None` if one of them is not a number.
pub fn maximum(logits: &[f32]) -> Option<f32> {
    let (chunks, rest) = logits.as_chunks::<LANES>();
    let mut best = [f32::NEG_INFINITY; LANES];
    let mut broken = [false; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            best[lane] = if chunk[lane] > best[lane] { chunk[lane] } else { best[lane] };
            broken[lane] |= chunk[lane].is_nan();
        }
    }
    let broken = broken.contains(&true) || rest.iter().any(|logit| logit.is_nan());
    (!broken).then(|| best.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max))
}

/// The first token whose logit is `best`.
pub fn first(logits: &[f32], best: f32) -> TokenId {
    let token = logits.iter().position(|logit| *logit == best);
    TokenId(token.expect("the best logit is one of the logits") as u32)
}

/// Leaves the `count` best tokens in `candidates`, in no order. Impossible tokens are never among them.
pub fn top(logits: &[f32], count: usize, candidates: &mut Vec<Candidate>) {
    candidates.clear();
    if count == 0 {
        return;
    }
    let mut floor = f32::NEG_INFINITY;
    for (token, &value) in logits.iter().enumerate() {
        // Later tokens that equal the floor lose the tie.
        if value > floor {
            candidates.push(Candidate { token: TokenId(token as u32), value });
            if candidates.len() >= 2 * count + 64 {
                floor = cut(candidates, count);
            }
        }
    }
    cut(candidates, count);
}

/// Cuts to the `count` best; returns the worst kept value.
fn cut(candidates: &mut Vec<Candidate>, count: usize) -> f32 {
    if candidates.len() <= count {
        return f32::NEG_INFINITY;
    }
    let worst = candidates.select_nth_unstable_by(count - 1, Candidate::order).1.value;
    candidates.truncate(count);
    worst
}

/// Writes each token's weight at `temperature`.
pub fn weights(logits: &[f32], best: f32, temperature: f32, weights: &mut Vec<f32>) {
    weights.clear();
    weights.extend(logits.iter().map(|logit| exponential((logit - best) / temperature)));
}

/// Drops all but the tokens of the `count` best logits. (Their weights may have become equal, or 0.)
pub fn keep_top(logits: &[f32], count: usize, weights: &mut [f32], candidates: &mut Vec<Candidate>) {
    top(logits, count, candidates);
    for kept in candidates.iter_mut() {
        kept.value = weights[kept.token.index()];
    }
    weights.fill(0.0);
    for kept in candidates.iter() {
        weights[kept.token.index()] = kept.value;
    }
}

/// The sum over all tokens of `exp(logit - best)`.
pub fn exponential_sum(logits: &[f32], best: f32) -> f64 {
    lane_sum(logits, |logit| exponential(logit - best))
}

/// Drops all but the smallest set of heaviest tokens whose weight reaches `share` of the whole.
pub fn keep_nucleus(weights: &mut [f32], share: f32, candidates: &mut Vec<Candidate>) {
    let total = mass(weights);
    let mut wanted = total * f64::from(share);
    // Tokens lighter than this weigh less together than may be dropped, so the set is complete without them.
    let floor = ((total - wanted) / weights.len() as f64) as f32;
    candidates.clear();
    let tokens = weights.iter().enumerate().filter(|(_, weight)| **weight >= floor && **weight > 0.0);
    candidates.extend(tokens.map(|(token, value)| Candidate { token: TokenId(token as u32), value: *value }));
    // Halve the part in which the heaviest tokens' sum crosses the wanted weight, until it is small.
    let mut part = &mut candidates[..];
    while part.len() > 16 {
        let middle = part.len() / 2;
        part.select_nth_unstable_by(middle, Candidate::order);
        let heavier: f64 = part[..middle].iter().map(|candidate| f64::from(candidate.value)).sum();
        if heavier >= wanted {
            part = &mut part[..middle];
        } else {
            wanted -= heavier;
            part = &mut part[middle..];
        }
    }
    part.sort_unstable_by(Candidate::order);
    let crossing = part.iter().position(|candidate| {
        wanted -= f64::from(candidate.value);
        wanted <= 0.0
    });
    // Rounding may leave the sum just short of a share near 1: then all of the part is kept.
    let Some(last) = crossing.map(|index| part[index]).or(part.last().copied()) else { return };
    for (token, weight) in weights.iter_mut().enumerate() {
        let candidate = Candidate { token: TokenId(token as u32), value: *weight };
        if candidate.order(&last).is_gt() {
            *weight = 0.0;
        }
    }
}

/// Drops tokens lighter than `share` of the heaviest, whose weight is 1.
pub fn keep_above(weights: &mut [f32], share: f32) {
    for weight in weights.iter_mut() {
        *weight = if *weight < share { 0.0 } else { *weight };
    }
}

/// The token at which the running sum of weights, in the order of ids, passes `point` (of `0.0..1.0`) of the whole.
pub fn draw(weights: &[f32], point: f64) -> TokenId {
    const BLOCK: usize = 16 * LANES;
    let mut left = point * weights.chunks(BLOCK).map(mass).sum::<f64>();
    for (index, block) in weights.chunks(BLOCK).enumerate() {
        let block_mass = mass(block);
        if left >= block_mass {
            left -= block_mass;
            continue;
        }
        for (offset, weight) in block.iter().enumerate() {
            left -= f64::from(*weight);
            if left < 0.0 {
                return TokenId((index * BLOCK + offset) as u32);
            }
        }
        // Rounding: the block's sum passed the point in another order of addition.
        left = 0.0;
    }
    let last = weights.iter().rposition(|weight| *weight > 0.0);
    TokenId(last.expect("the best token's weight is 1") as u32)
}

/// The sum of all weights.
fn mass(weights: &[f32]) -> f64 {
    lane_sum(weights, |weight| weight)
}

fn lane_sum(values: &[f32], of: impl Fn(f32) -> f32) -> f64 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut sums = [0f64; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] += f64::from(of(chunk[lane]));
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|value| f64::from(of(*value))).sum::<f64>()
}

/// `exp(x)` for `x <= 0`, within 3e-7 of its value; 0 below -87. The standard library's cannot be vectorized.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`; then `exp(r)` by its Taylor series and `2^n` by the exponent's bits.
fn exponential(x: f32) -> f32 {
    // Adding this rounds to an integer and leaves it in the lowest bits.
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23
    // ln 2 in two parts, the first with so few bits that its product with n is exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let clamped = if x < -87.0 { -87.0 } else { x };
    let rounded = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = clamped - n * LN_2_HIGH - n * LN_2_LOW;
    let series = 1.0 / 5040.0;
    let series = series * r + 1.0 / 720.0;
    let series = series * r + 1.0 / 120.0;
    let series = series * r + 1.0 / 24.0;
    let series = series * r + 1.0 / 6.0;
    let series = series * r + 0.5;
    let series = series * r + 1.0;
    let series = series * r + 1.0;
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23));
    if x < -87.0 { 0.0 } else { series * power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_the_exponential() {
        for step in 0..870_000 {
            let x = -(step as f32) * 1e-4;
            let error = (f64::from(exponential(x)) / f64::from(x).exp() - 1.0).abs();
            assert!(error < 3e-7, "exp({x}) is off by {error}");
        }
        assert_eq!(exponential(0.0), 1.0);
        assert_eq!(exponential(-87.5), 0.0);
        assert_eq!(exponential(f32::NEG_INFINITY), 0.0);
        assert_eq!(exponential(f32::MIN), 0.0);
    }

    #[test]
    fn a_draw_at_the_very_end_still_lands_on_a_possible_token() {
        let below_one = 1.0 - f64::EPSILON / 2.0;
        assert_eq!(draw(&[1.0, 0.0, 1.0, 0.0], below_one), TokenId(2));
        assert_eq!(draw(&[0.0, 1.0], 0.0), TokenId(1));
        let mut wide = vec![0.0; 1000];
        wide[700] = 1.0;
        for point in [0.0, 0.5, below_one] {
            assert_eq!(draw(&wide, point), TokenId(700));
        }
    }
}
