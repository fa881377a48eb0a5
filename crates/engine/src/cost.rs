//! What a step costs, learned from the steps there were.
//!
//! A step's time is taken to be linear in five numbers: that there is a step at all, the prompt tokens in it, the positions that
//! these attend to, its decoding rows, and the positions that those attend to. The five prices are those that explain past
//! steps best (least squares of the relative error, none below zero), and old steps fade, so that a machine that gets busier is
//! noticed within some hundred steps.
//!
//! **Invariant:** prices are finite and not negative, so that a step with more in it is never forecast to take less time.

/// What is in a step, as far as it decides how long it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    pub prefill_tokens: usize,
    /// Positions attended to, summed over the prompt tokens.
    pub prefill_positions: f64,
    pub decodes: usize,
    /// The same for decoding rows.
    pub decode_positions: f64,
}

impl Work {
    /// Adds `tokens` of a prompt of which `computed` are there already.
    pub fn add_prefill(&mut self, computed: usize, tokens: usize) {
        self.prefill_tokens += tokens;
        self.prefill_positions += positions(computed, tokens);
    }

    /// Adds a decoding sequence with `computed` tokens.
    pub fn add_decode(&mut self, computed: usize) {
        self.decodes += 1;
        self.decode_positions += (computed + 1) as f64;
    }

    /// In units that make typical steps about 1, so that no number drowns another.
    fn features(&self) -> Features {
        [
            1.0,
            self.prefill_tokens as f64 / 256.0,
            self.prefill_positions / (256.0 * 1024.0),
            self.decodes as f64 / 16.0,
            self.decode_positions / (16.0 * 1024.0),
        ]
    }
}

/// Positions that the next `tokens` after `computed` attend to, themselves included.
fn positions(computed: usize, tokens: usize) -> f64 {
    let (computed, tokens) = (computed as f64, tokens as f64);
    tokens * computed + tokens * (tokens + 1.0) / 2.0
}

const FEATURES: usize = 5;
type Features = [f64; FEATURES];

/// How much of a step's weight is left after the next one: steps count for about 300 steps.
const MEMORY: f64 = 1.0 - 1.0 / 300.0;

/// Pulls prices that nothing is known about to zero.
const RIDGE: f64 = 1e-6;

/// How fast running streams are to go on while prompts are computed beside them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The time that a step is to take at most, as long as it has a decoding row.
    pub target_ns: f64,
    pub prices: Prices,
}

/// Decodes that take longer than this share of the target alone are given so much more time, or prompts would starve.
const DECODES_TO_STEP: f64 = 1.5;

impl Pace {
    /// Nanoseconds that a step with these decoding rows has left for prompts.
    pub fn left(&self, decodes: &Work) -> f64 {
        let alone = self.prices.forecast(decodes);
        self.target_ns.max(DECODES_TO_STEP * alone) - alone
    }
}

/// Prices that fit past steps.
#[derive(Clone, Debug, Default)]
pub struct CostModel {
    /// Weighted sums over past steps of feature times feature, and of feature times time.
    products: [Features; FEATURES],
    targets: Features,
    prices: Prices,
    /// Mean relative error of recent forecasts; `None` before there were any.
    error: Option<f64>,
}

/// Nanoseconds for each feature.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices(Features);

impl CostModel {
    /// Learns from a step.
    pub fn learn(&mut self, work: &Work, ns: u64) {
        let time = ns.max(1) as f64;
        if self.prices != Prices::default() {
            let error = (self.prices.forecast(work) - time).abs() / time;
            self.error = Some(self.error.map_or(error, |before| before + (error - before) / 50.0));
        }
        let features = work.features();
        // Relative errors count: a step of 10 ms is as important as one of 300.
        let weight = 1.0 / (time * time);
        for (row, feature) in features.into_iter().enumerate() {
            for (column, other) in features.into_iter().enumerate() {
                self.products[row][column] = self.products[row][column] * MEMORY + weight * feature * other;
            }
            self.targets[row] = self.targets[row] * MEMORY + weight * feature * time;
        }
        self.fit();
    }

    /// Goes on from the last prices, one coordinate at a time, each to its best value that is not negative.
    fn fit(&mut self) {
        const ROUNDS: usize = 30;
        let Prices(prices) = &mut self.prices;
        for _ in 0..ROUNDS {
            for row in 0..FEATURES {
                let own = self.products[row][row];
                if own <= 0.0 {
                    continue;
                }
                let others: f64 = (0..FEATURES)
                    .filter(|column| *column != row)
                    .map(|column| self.products[row][column] * prices[column])
                    .sum();
                prices[row] = ((self.targets[row] - others) / (own * (1.0 + RIDGE))).max(0.0);
            }
        }
    }

    pub fn prices(&self) -> Prices {
        self.prices
    }

    /// Mean relative error of recent forecasts.
    pub fn error(&self) -> Option<f64> {
        self.error
    }
}

impl Prices {
    /// Nanoseconds that a step with this work is expected to take; zero while nothing is known.
    pub fn forecast(&self, work: &Work) -> f64 {
        work.features().iter().zip(self.0).map(|(feature, price)| feature * price).sum()
    }

    /// How many tokens of a prompt, of which `computed` are there, fit `ns` nanoseconds.
    pub fn prefill_within(&self, ns: f64, computed: usize, wanted: usize) -> usize {
        let (mut fits, mut beyond) = (0, wanted + 1);
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            if self.of_prefill(computed, middle) <= ns { fits = middle } else { beyond = middle }
        }
        fits
    }

    /// What a decoding sequence with `computed` tokens adds to a step.
    pub fn of_decode(&self, computed: usize) -> f64 {
        let mut work = Work::default();
        work.add_decode(computed);
        self.forecast(&work) - self.forecast(&Work::default())
    }

    /// What `tokens` more of a prompt, of which `computed` are there, add to a step.
    pub fn of_prefill(&self, computed: usize, tokens: usize) -> f64 {
        let mut work = Work::default();
        work.add_prefill(computed, tokens);
        self.forecast(&work) - self.forecast(&Work::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Dice;

    /// A machine with known prices: nanoseconds a step, a prompt token, a position, a decode, a position.
    fn machine(work: &Work) -> f64 {
        2e6 + 1e6 * work.prefill_tokens as f64
            + 300.0 * work.prefill_positions
            + 2e6 * work.decodes as f64
            + 700.0 * work.decode_positions
    }

    fn any_work(dice: &mut Dice) -> Work {
        let mut work = Work::default();
        for _ in 0..dice.between(0, 2) {
            work.add_prefill(dice.between(0, 4000), dice.between(1, 256));
        }
        for _ in 0..dice.between(0, 16) {
            work.add_decode(dice.between(1, 4000));
        }
        work
    }

    fn learned(steps: usize, noise: f64) -> (CostModel, Dice) {
        let mut dice = Dice::new(5);
        let mut model = CostModel::default();
        for _ in 0..steps {
            let work = any_work(&mut dice);
            let blur = 1.0 + noise * (dice.between(0, 2000) as f64 / 1000.0 - 1.0);
            model.learn(&work, (machine(&work) * blur) as u64);
        }
        (model, dice)
    }

    #[test]
    fn learns_what_steps_cost() {
        let (model, mut dice) = learned(300, 0.0);
        for _ in 0..200 {
            let work = any_work(&mut dice);
            let (forecast, truth) = (model.prices().forecast(&work), machine(&work));
            assert!((forecast / truth - 1.0).abs() < 0.02, "{work:?}: {forecast} {truth}");
        }
        let (model, mut dice) = learned(300, 0.2);
        let work = any_work(&mut dice);
        assert!((model.prices().forecast(&work) / machine(&work) - 1.0).abs() < 0.15);
        let error = model.error().unwrap();
        assert!((0.05..0.2).contains(&error), "the error is that of the noise: {error}");
    }

    #[test]
    fn forgets_what_is_no_longer_true() {
        let (mut model, mut dice) = learned(500, 0.0);
        for _ in 0..900 {
            let work = any_work(&mut dice);
            model.learn(&work, (2.0 * machine(&work)) as u64);
        }
        let work = any_work(&mut dice);
        assert!((model.prices().forecast(&work) / machine(&work) - 2.0).abs() < 0.3);
    }

    #[test]
    fn prices_are_never_negative_whatever_is_learned() {
        let mut dice = Dice::new(6);
        for _ in 0..200 {
            let mut model = CostModel::default();
            for _ in 0..dice.between(1, 30) {
                let work = any_work(&mut dice);
                model.learn(&work, dice.number() >> dice.between(0, 63));
                let Prices(prices) = model.prices();
                assert!(prices.iter().all(|price| price.is_finite() && *price >= 0.0), "{prices:?}");
            }
        }
    }

    #[test]
    fn a_chunk_is_as_long_as_fits() {
        let (model, mut dice) = learned(300, 0.0);
        let prices = model.prices();
        for _ in 0..100 {
            let (computed, wanted) = (dice.between(0, 4000), dice.between(1, 512));
            let ns = dice.between(0, 500_000_000) as f64;
            let cost = |tokens: usize| prices.of_prefill(computed, tokens);
            let fits = prices.prefill_within(ns, computed, wanted);
            assert!(fits <= wanted && (fits == 0 || cost(fits) <= ns));
            assert!(fits == wanted || cost(fits + 1) > ns);
        }
        assert_eq!(Prices::default().prefill_within(0.0, 0, 77), 77, "nothing is known to cost anything");
    }
}
