//! The largest load that meets the objectives: users in a closed loop, calls a second in an open one.
//!
//! The load is doubled until a level fails, then the bracket is halved until it is as narrow as the resolution. Trials are
//! noisy, so a level is decided by several: once passes and fails differ by [`Plan::lead`], or after [`Plan::level_trials`]
//! by the majority (a tie fails). Whether a level meets the objectives can only become rarer as load grows; where the
//! shares of passes say otherwise, neighbouring levels are pooled until they do not (isotonic regression by pooling
//! adjacent violators: Ayer et al., The Annals of Mathematical Statistics 26, 1955). The answer is the largest level tried
//! whose pooled share is at least a half; it and the next level above are tried [`Plan::confirm`] times.
//!
//! **The interval** is of the load at which half of all trials would pass. Since passes only become rarer, trials at higher
//! levels that pass speak for a level too, and failures at lower levels speak against it: its lower end is the largest
//! level for which some run of levels from it upward has passed more often than half by Wilson's 95% interval, its upper
//! end the smallest for which some run of levels up to it has failed as surely. Where an end is still open when the answer is
//! found, the outermost level is tried again, and then levels beyond it.
//!
//! **Invariant:** [`next`] is a pure function of what was tried, every search ends, and a void trial decides nothing.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::results::Results;
use crate::slo::{Met, Slo};
use crate::stats::{Real, wilson};

pub mod answer;

pub use answer::{Answer, LevelReport};

/// A load in the grid of a search: users, or thousandths of a call a second.
pub type Level = u64;

/// What the load is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadUnit {
    /// Concurrent users of a closed loop.
    Users,
    /// Calls a second of an open loop.
    Qps,
}

impl LoadUnit {
    /// The load that a level stands for.
    pub fn load(self, level: Level) -> f64 {
        match self {
            LoadUnit::Users => level as f64,
            LoadUnit::Qps => level as f64 / 1000.0,
        }
    }

    pub fn level(self, load: f64) -> Level {
        match self {
            LoadUnit::Users => load.round() as Level,
            LoadUnit::Qps => (load * 1000.0).round() as Level,
        }
    }
}

/// How to search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub unit: LoadUnit,
    /// The first load tried, and the bounds, in the unit.
    pub start: f64,
    pub min: f64,
    pub max: f64,
    /// The bracket's width at which the search ends, as a share of the load (and at least one user).
    pub resolution: f64,
    /// Passes over fails, or fails over passes, that decide a level.
    pub lead: usize,
    /// Trials after which the majority decides.
    pub level_trials: usize,
    /// Trials that the answer and the level above it get.
    pub confirm: usize,
    /// Attempts after a void trial, or one with too few samples, before the level is given up.
    pub retries: usize,
    /// Bounds of the search as a whole.
    pub trials_max: usize,
    pub seconds_max: f64,
}

impl Plan {
    /// The defaults, for users from 1 or calls from 1 a second.
    pub fn new(unit: LoadUnit) -> Self {
        Plan {
            unit,
            start: 1.0,
            min: if unit == LoadUnit::Users { 1.0 } else { 0.01 },
            max: 4096.0,
            resolution: 0.05,
            lead: 2,
            level_trials: 5,
            confirm: 4,
            retries: 2,
            trials_max: 64,
            seconds_max: 3600.0,
        }
    }

    fn bounds(&self) -> (Level, Level) {
        (self.unit.level(self.min).max(1), self.unit.level(self.max).max(1))
    }
}

/// What became of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Pass,
    Fail,
    /// The client did not keep up: nothing is known of the server.
    Void(String),
    /// Too few samples to judge an objective.
    TooFew(String),
}

/// The trials at one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub passes: usize,
    pub fails: usize,
    pub voids: usize,
    pub too_few: usize,
}

impl Tally {
    pub fn decided_trials(self) -> usize {
        self.passes + self.fails
    }

    pub fn all(self) -> usize {
        self.decided_trials() + self.voids + self.too_few
    }

    fn add(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Pass => self.passes += 1,
            Verdict::Fail => self.fails += 1,
            Verdict::Void(_) => self.voids += 1,
            Verdict::TooFew(_) => self.too_few += 1,
        }
    }

    fn is_decided(self, plan: &Plan) -> bool {
        self.passes.abs_diff(self.fails) >= plan.lead || self.decided_trials() >= plan.level_trials
    }

    /// Given up: neither passes nor fails could be had.
    fn is_void(self, plan: &Plan) -> bool {
        self.voids > plan.retries
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Trial(Level),
    Done(Stopped),
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// The bracket is as narrow as was asked, and both ends are confirmed.
    Found,
    /// Even the largest load allowed passes.
    AtMax,
    /// Even the smallest load allowed fails.
    BelowMin,
    /// The client could not carry the load above the answer, so that the server was not brought to its limit.
    ClientLimit,
    /// Trials have too few samples for the objectives: make them longer.
    TooFewSamples,
    TrialsSpent,
    TimeSpent,
}

/// The next step after what was tried.
pub fn next(plan: &Plan, tried: &BTreeMap<Level, Tally>, seconds: f64) -> Next {
    if tried.values().map(|tally| tally.all()).sum::<usize>() >= plan.trials_max {
        return Next::Done(Stopped::TrialsSpent);
    }
    if seconds >= plan.seconds_max {
        return Next::Done(Stopped::TimeSpent);
    }
    if tried.values().any(|tally| tally.too_few > plan.retries) {
        return Next::Done(Stopped::TooFewSamples);
    }
    let (min, max) = plan.bounds();
    // A level that was begun is decided before another is chosen.
    if let Some((level, _)) = tried.iter().find(|(_, tally)| !tally.is_decided(plan) && !tally.is_void(plan))
    {
        return Next::Trial(*level);
    }
    if tried.is_empty() {
        return Next::Trial(plan.unit.level(plan.start).clamp(min, max));
    }
    let (low, high) = bracket(plan, tried);
    let confirmed = |level: &Level| {
        tried.get(level).is_some_and(|tally| tally.is_void(plan) || tally.decided_trials() >= plan.confirm)
    };
    match (low, high) {
        (Some(low), None) if low >= max => confirm_or(confirmed(&low), low, Stopped::AtMax),
        (Some(low), None) => Next::Trial((low * 2).min(max)),
        (None, Some(high)) if high <= min => {
            let stopped =
                if is_client_limit(plan, tried, high) { Stopped::ClientLimit } else { Stopped::BelowMin };
            confirm_or(confirmed(&high), high, stopped)
        }
        (None, Some(high)) => Next::Trial((high / 2).max(min)),
        (Some(low), Some(high)) if high - low > width(plan, low) => {
            // The middle by ratio, which is where a share of the load is halved.
            let middle = ((low as f64 * high as f64).sqrt().round() as Level).clamp(low + 1, high - 1);
            Next::Trial(middle)
        }
        (Some(low), Some(_)) if !confirmed(&low) => Next::Trial(low),
        (Some(_), Some(high)) if is_client_limit(plan, tried, high) => Next::Done(Stopped::ClientLimit),
        (Some(_), Some(high)) if !confirmed(&high) => Next::Trial(high),
        (Some(_), Some(_)) => bound_interval(plan, tried).map_or(Next::Done(Stopped::Found), Next::Trial),
        (None, None) => Next::Done(Stopped::ClientLimit),
    }
}

/// A level that helps to bound the interval where the search has left an end open: the outermost one until it is confirmed,
/// then one farther out.
fn bound_interval(plan: &Plan, tried: &BTreeMap<Level, Tally>) -> Option<Level> {
    let (min, max) = plan.bounds();
    let (low, high) = interval(tried);
    let (smallest, first) = tried.first_key_value()?;
    let (largest, last) = tried.last_key_value()?;
    let outward = |level: Level, tally: &Tally, next: Level| {
        let tries = [level, next].into_iter().zip([tally.decided_trials() < plan.confirm, next != level]);
        tries.filter(|(_, useful)| *useful).map(|(level, _)| level).next()
    };
    match (low, high) {
        (None, _) => outward(*smallest, first, (smallest / 2).max(min)),
        (_, None) if !last.is_void(plan) => outward(*largest, last, (largest * 2).min(max)),
        _ => None,
    }
}

fn confirm_or(confirmed: bool, level: Level, stopped: Stopped) -> Next {
    if confirmed { Next::Done(stopped) } else { Next::Trial(level) }
}

fn width(plan: &Plan, low: Level) -> Level {
    ((low as f64 * plan.resolution) as Level).max(1)
}

fn is_client_limit(plan: &Plan, tried: &BTreeMap<Level, Tally>, level: Level) -> bool {
    tried.get(&level).is_some_and(|tally| tally.is_void(plan))
}

/// The largest level that passes and the smallest above it that does not, by the pooled shares. A level that the client
/// could not carry bounds the search from above.
pub fn bracket(plan: &Plan, tried: &BTreeMap<Level, Tally>) -> (Option<Level>, Option<Level>) {
    let shares = pass_shares(tried);
    // A level with as many passes as fails has a share of a half, and fails: doubt is not a promise.
    let low = shares.iter().filter(|(_, share)| *share > 0.5).map(|(level, _)| *level).max();
    let failing = shares.iter().filter(|(_, share)| *share <= 0.5).map(|(level, _)| *level);
    let void = tried.iter().filter(|(_, tally)| tally.is_void(plan)).map(|(level, _)| *level);
    let high = failing.chain(void).filter(|level| low.is_none_or(|low| *level > low)).min();
    (low, high)
}

/// The share of passes at each level with trials that count, made to fall with the load by pooling adjacent violators.
pub fn pass_shares(tried: &BTreeMap<Level, Tally>) -> Vec<(Level, f64)> {
    let mut blocks: Vec<(Vec<Level>, usize, usize)> = Vec::new(); // levels, passes, trials
    for (level, tally) in tried.iter().filter(|(_, tally)| tally.decided_trials() > 0) {
        let mut block = (vec![*level], tally.passes, tally.decided_trials());
        // Shares are compared as products, which are exact.
        while let Some((levels, passes, trials)) =
            blocks.pop_if(|(_, passes, trials)| *passes * block.2 < block.1 * *trials)
        {
            block = ([levels, block.0].concat(), passes + block.1, trials + block.2);
        }
        blocks.push(block);
    }
    blocks
        .into_iter()
        .flat_map(|(levels, passes, trials)| {
            levels.into_iter().map(move |level| (level, passes as f64 / trials as f64))
        })
        .collect()
}

/// Quantile of a 95% interval on both sides.
const Z: f64 = 1.96;

/// The interval of the load at which half of all trials pass: None where no trial bounds it on that side.
pub fn interval(tried: &BTreeMap<Level, Tally>) -> (Option<Level>, Option<Level>) {
    let levels: Vec<(Level, Tally)> = tried.iter().map(|(level, tally)| (*level, *tally)).collect();
    let surely = |run: &[(Level, Tally)], of: fn(&Tally) -> usize| {
        let hits = run.iter().map(|(_, tally)| of(tally)).sum();
        let trials = run.iter().map(|(_, tally)| tally.decided_trials()).sum();
        wilson(hits, trials, Z).0 > 0.5
    };
    let count = levels.len();
    let passes = |from: usize| (from + 1..=count).any(|to| surely(&levels[from..to], |tally| tally.passes));
    let fails = |last: usize| (0..=last).any(|from| surely(&levels[from..=last], |tally| tally.fails));
    let low = (0..count).rev().find(|&from| passes(from)).map(|from| levels[from].0);
    let high = (0..count).find(|&last| fails(last)).map(|last| levels[last].0);
    (low, high)
}

/// What a finished run says of its level.
pub fn verdict(results: &Results, slo: &Slo) -> (Verdict, crate::slo::Judgement) {
    let judgement = slo.judge(results, false);
    let verdict = if let Some(reason) = results.health.void.first() {
        Verdict::Void(reason.clone())
    } else {
        match judgement.met {
            Met::Yes => Verdict::Pass,
            Met::No => Verdict::Fail,
            Met::Unknown => {
                let unjudged = judgement.objectives.iter().find(|one| one.met == Met::Unknown);
                Verdict::TooFew(
                    unjudged
                        .map_or_else(String::new, |one| format!("{}: {:?}", one.objective.text, one.value)),
                )
            }
        }
    };
    (verdict, judgement)
}

/// Searches. `trial` sends the load (users, or calls a second) and gives the run; `attempt` counts the trials of a level,
/// for the seed. Its error ends the search.
pub async fn run<F>(plan: &Plan, slo: &Slo, mut trial: F) -> anyhow::Result<Answer>
where
    F: AsyncFnMut(f64, usize) -> anyhow::Result<Results>,
{
    let began = Instant::now();
    let mut book = answer::Book::new(plan.clone());
    loop {
        match next(plan, book.tried(), began.elapsed().as_secs_f64()) {
            Next::Done(stopped) => return Ok(book.close(stopped)),
            Next::Trial(level) => {
                let attempt = book.tried().get(&level).map_or(0, |tally| tally.all());
                let results = trial(plan.unit.load(level), attempt).await?;
                book.record(level, &results, slo);
            }
        }
    }
}

/// A bound of the answer, in the plan's unit.
fn bound(plan: &Plan, level: Option<Level>) -> Option<Real> {
    level.map(|level| Real(plan.unit.load(level)))
}

#[cfg(test)]
mod tests;
