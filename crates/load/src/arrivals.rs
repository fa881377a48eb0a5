//! When an open loop's calls are wanted: even, Poisson, gamma, a ramp, or a recorded trace.
//!
//! All but the trace are one construction: points of a process with unit rate, whose time is then stretched so that the
//! wanted rate comes out. Gaps of the unit process are gamma distributed with mean 1 and shape `burstiness`; this is the
//! meaning that `--burstiness` has in `vllm bench serve` (its `get_request` draws gaps from a gamma distribution of shape
//! `burstiness` and scale `1 / (rate * burstiness)`; vllm/benchmarks/serve.py). 1 is Poisson, less is more bursty, and
//! without bound the gaps become even. vLLM then scales the whole series so that its last call comes at `calls / rate`;
//! a schedule here has no last call, so the mean rate holds only in the long run, as with any Poisson process.
//!
//! **Invariant:** times ascend, and the same specification and seed give the same times.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use rand::rngs::ChaCha12Rng;
use rand_distr::{Distribution, Gamma};
use serde_json::Value;

use crate::compact::{self, Compact};
use crate::jsonl;
use crate::schedule::{Arrivals, Pacing, Purpose, random_stream};

/// The forms that [`ArrivalSpec::parse`] accepts, one a line.
pub const ARRIVAL_FORMS: &str = "  constant:RATE                          one call every 1/RATE seconds
  poisson:RATE                           random gaps, as many users that know nothing of each other
  gamma:RATE,burstiness=B                less than 1: more bursty than Poisson; more: more even
  ramp:FROM..TO,over=60s[,burstiness=B]  the rate moves evenly, then stays; Poisson unless B is given (inf: even)
  trace:FILE[,speed=2][,unit=s|ms]       the field `timestamp` of each line of a JSONL file
RATE is in calls per second";

/// Calls per second, at most.
const RATE_MAX: f64 = 1e6;
/// Calls per second of a rate that is not zero, at least.
const RATE_MIN: f64 = 1e-6;
const BURSTINESS: std::ops::RangeInclusive<f64> = 0.001..=1e6;

/// When calls are wanted.
#[derive(Clone, Debug, PartialEq)]
pub enum ArrivalSpec {
    /// Calls come at a rate that is the same all the time.
    Steady { per_s: f64, gaps: Gaps },
    /// The rate goes in a line from one to the other, calls per second, and then stays. A rate of 0 at the end ends the
    /// schedule.
    Ramp { from_per_s: f64, to_per_s: f64, over: Duration, gaps: Gaps },
    /// A recorded schedule; its first call comes at once.
    Trace { path: PathBuf, speed: f64, unit: TraceUnit },
}

/// How the gaps between calls are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gaps {
    /// All the same; the first call comes at once.
    Even,
    /// Exponential: a Poisson process.
    Exponential,
    /// Gamma with this shape; the coefficient of variation of the gaps is `1 / sqrt(shape)`.
    Gamma(f64),
}

/// What a trace counts its time in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceUnit {
    Seconds,
    Milliseconds,
}

/// An open loop's times, and what reports say of them.
pub struct Open {
    pub arrivals: Arrivals,
    /// Always [`Pacing::Open`].
    pub pacing: Pacing,
}

impl ArrivalSpec {
    /// Reads one of [`ARRIVAL_FORMS`].
    pub fn parse(text: &str) -> Result<Self> {
        let mut spec = Compact::parse("arrivals", text, ARRIVAL_FORMS)?;
        let parsed = match spec.name {
            "constant" => Self::Steady { per_s: steady_rate(&mut spec)?, gaps: Gaps::Even },
            "poisson" => Self::Steady { per_s: steady_rate(&mut spec)?, gaps: Gaps::Exponential },
            "gamma" => Self::Steady {
                per_s: steady_rate(&mut spec)?,
                gaps: spec.need("burstiness", Gaps::of_burstiness)?,
            },
            "ramp" => ramp(&mut spec)?,
            "trace" => Self::Trace {
                path: spec.value("the trace's file")?.into(),
                speed: spec.read("speed", |text| compact::number(text, 1e-6..=1e6))?.unwrap_or(1.0),
                unit: spec.read("unit", TraceUnit::parse)?.unwrap_or(TraceUnit::Seconds),
            },
            name => return Err(spec.error(format!("there is no kind `{name}`"))),
        };
        spec.end()?;
        Ok(parsed)
    }

    /// The times of a schedule from this seed. Only a trace can fail: its file is read here.
    pub fn open(&self, seed: u64) -> Result<Open> {
        let arrivals: Arrivals = match self {
            Self::Steady { per_s, gaps } => Box::new(Stretched::new(*gaps, Rate::steady(*per_s), seed)),
            Self::Ramp { from_per_s, to_per_s, over, gaps } => {
                let rate = Rate { from: *from_per_s, to: *to_per_s, over_s: over.as_secs_f64() };
                Box::new(Stretched::new(*gaps, rate, seed))
            }
            Self::Trace { path, speed, unit } => {
                Box::new(read_trace(path, *speed, *unit)?.into_iter().map(Duration::from_nanos))
            }
        };
        let pacing = Pacing::Open { description: self.to_string(), mean_per_s: self.mean_per_s() };
        Ok(Open { arrivals, pacing })
    }

    /// Calls per second, where there is one figure for the whole schedule.
    pub fn mean_per_s(&self) -> Option<f64> {
        match self {
            Self::Steady { per_s, .. } => Some(*per_s),
            Self::Ramp { .. } | Self::Trace { .. } => None,
        }
    }

    /// The same kind of arrivals at another rate, as a search needs; None for what has no one rate.
    pub fn at_rate(&self, per_s: f64) -> Option<Self> {
        match self {
            Self::Steady { gaps, .. } => Some(Self::Steady { per_s, gaps: *gaps }),
            Self::Ramp { .. } | Self::Trace { .. } => None,
        }
    }
}

impl Display for ArrivalSpec {
    /// A form that [`ArrivalSpec::parse`] reads back.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steady { per_s, gaps: Gaps::Even } => write!(f, "constant:{per_s}"),
            Self::Steady { per_s, gaps: Gaps::Exponential } => write!(f, "poisson:{per_s}"),
            Self::Steady { per_s, gaps } => write!(f, "gamma:{per_s},burstiness={gaps}"),
            Self::Ramp { from_per_s, to_per_s, over, gaps } => {
                let over_s = over.as_secs_f64();
                write!(f, "ramp:{from_per_s}..{to_per_s},over={over_s}s,burstiness={gaps}")
            }
            Self::Trace { path, speed, unit } => {
                let unit = match unit {
                    TraceUnit::Seconds => "s",
                    TraceUnit::Milliseconds => "ms",
                };
                write!(f, "trace:{},speed={speed},unit={unit}", path.display())
            }
        }
    }
}

impl Display for Gaps {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Gaps::Even => write!(f, "inf"),
            Gaps::Exponential => write!(f, "1"),
            Gaps::Gamma(shape) => write!(f, "{shape}"),
        }
    }
}

impl Gaps {
    fn of_burstiness(text: &str) -> Result<Self, String> {
        if text == "inf" {
            return Ok(Gaps::Even);
        }
        let shape = compact::number(text, BURSTINESS).map_err(|why| format!("{why}, or inf"))?;
        Ok(if shape == 1.0 { Gaps::Exponential } else { Gaps::Gamma(shape) })
    }
}

impl TraceUnit {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "s" => Ok(Self::Seconds),
            "ms" => Ok(Self::Milliseconds),
            _ => Err("must be s or ms".to_owned()),
        }
    }
}

fn steady_rate(spec: &mut Compact<'_>) -> Result<f64> {
    let text = spec.value("the rate")?;
    compact::number(text, RATE_MIN..=RATE_MAX).map_err(|why| spec.error(format!("the rate `{text}` {why}")))
}

fn ramp(spec: &mut Compact<'_>) -> Result<ArrivalSpec> {
    let text = spec.value("the rates, such as 5..50,")?;
    let ends = compact::range(text).map_err(|why| spec.error(why))?;
    let end = |text: &str| match compact::number(text, 0.0..=RATE_MAX) {
        Ok(rate) if rate == 0.0 || rate >= RATE_MIN => Ok(rate),
        _ => Err(spec.error(format!("the rate `{text}` must be 0, or from {RATE_MIN} to {RATE_MAX}"))),
    };
    let (from_per_s, to_per_s) = (end(ends.0)?, end(ends.1)?);
    if from_per_s == 0.0 && to_per_s == 0.0 {
        return Err(spec.error("a ramp from 0 to 0 has no calls"));
    }
    let over = spec.need("over", compact::duration)?;
    if over.is_zero() {
        return Err(spec.error("`over` must be more than 0s"));
    }
    let gaps = spec.read("burstiness", Gaps::of_burstiness)?.unwrap_or(Gaps::Exponential);
    Ok(ArrivalSpec::Ramp { from_per_s, to_per_s, over, gaps })
}

/// A rate that moves in a line, calls per second, and then stays.
#[derive(Clone, Copy)]
struct Rate {
    from: f64,
    to: f64,
    over_s: f64,
}

impl Rate {
    fn steady(per_s: f64) -> Self {
        Self { from: per_s, to: per_s, over_s: 0.0 }
    }

    /// The time at which `calls` have been due, seconds; the inverse of the rate's integral. None where so many never
    /// are.
    fn time_s(&self, calls: f64) -> Option<f64> {
        let in_ramp = (self.from + self.to) / 2.0 * self.over_s;
        if calls > in_ramp || self.over_s == 0.0 {
            return (self.to > 0.0).then(|| self.over_s + (calls - in_ramp) / self.to);
        }
        if calls == 0.0 {
            return Some(0.0);
        }
        // from·t + slope·t²/2 = calls, solved in the form that does not cancel and holds for a slope of 0 as well.
        let slope = (self.to - self.from) / self.over_s;
        let root = (self.from * self.from + 2.0 * slope * calls).max(0.0).sqrt();
        Some(2.0 * calls / (self.from + root))
    }
}

/// A process of unit rate, stretched to a rate.
struct Stretched {
    gaps: UnitGaps,
    rate: Rate,
    /// The last point of the unit process.
    at: f64,
    random: ChaCha12Rng,
}

enum UnitGaps {
    /// Points at 0, 1, 2 and so on; counted, so that no error adds up.
    Even {
        next: u64,
    },
    Random(Gamma<f64>),
}

impl Stretched {
    fn new(gaps: Gaps, rate: Rate, seed: u64) -> Self {
        let shape = match gaps {
            Gaps::Even => None,
            Gaps::Exponential => Some(1.0),
            Gaps::Gamma(shape) => Some(shape.clamp(*BURSTINESS.start(), *BURSTINESS.end())),
        };
        let gaps = match shape {
            None => UnitGaps::Even { next: 0 },
            Some(shape) => UnitGaps::Random(
                Gamma::new(shape, 1.0 / shape).expect("a shape within BURSTINESS is positive and finite"),
            ),
        };
        Self { gaps, rate, at: 0.0, random: random_stream(seed, Purpose::Arrivals, 0) }
    }
}

impl Iterator for Stretched {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        match &mut self.gaps {
            UnitGaps::Even { next } => {
                self.at = *next as f64;
                *next += 1;
            }
            UnitGaps::Random(gamma) => self.at += gamma.sample(&mut self.random),
        }
        Duration::try_from_secs_f64(self.rate.time_s(self.at)?).ok()
    }
}

/// A trace's times since its first one, nanoseconds.
fn read_trace(path: &Path, speed: f64, unit: TraceUnit) -> Result<Vec<u64>> {
    let unit_ns = match unit {
        TraceUnit::Seconds => 1e9,
        TraceUnit::Milliseconds => 1e6,
    };
    let mut times: Vec<u64> = Vec::new();
    let mut first_and_last: Option<(f64, f64)> = None;
    jsonl::for_each_line(path, |line| {
        let at = match timestamp(line.bytes) {
            Ok(at) => at,
            Err(why) => bail!("{}, line {}: {why}", path.display(), line.number),
        };
        let (first, last) = *first_and_last.get_or_insert((at, at));
        if at < last {
            bail!(
                "{}, line {}: `timestamp` {at} is before {last} of the line above; sort the file by time",
                path.display(),
                line.number
            );
        }
        first_and_last = Some((first, at));
        let since_ns = (at - first) * unit_ns / speed;
        // Exact for 104 days, and far within u64.
        if since_ns > (1_u64 << 53) as f64 {
            bail!(
                "{}, line {}: lies more than 104 days behind the first one; is `unit` right?",
                path.display(),
                line.number
            );
        }
        times.push(since_ns.round() as u64);
        Ok(())
    })?;
    if times.is_empty() {
        bail!("{} has no lines", path.display());
    }
    Ok(times)
}

fn timestamp(line: &[u8]) -> Result<f64, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| format!("not JSON: {error}"))?;
    let at = value.get("timestamp").ok_or("the field `timestamp` is missing")?;
    at.as_f64().ok_or_else(|| format!("`timestamp` must be a number, and is {at}"))
}
