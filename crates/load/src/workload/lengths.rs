//! Lengths in tokens, drawn from a distribution.
//!
//! **Invariant:** a length is at least 1 and at most [`LENGTH_MAX`], whatever the distribution.

use std::fmt::{self, Display, Formatter};

use rand::RngExt;
use rand::rngs::ChaCha12Rng;
use rand_distr::{Distribution, LogNormal, Normal};

use crate::compact;

/// Tokens of the longest prompt or answer.
pub const LENGTH_MAX: u32 = 1 << 20;
const ENTRIES_MAX: usize = 1024;

/// The forms that [`Lengths::parse`] accepts.
pub const LENGTH_FORMS: &str = "200, uniform(16..128), normal(MEAN,DEVIATION[,16..400]), \
     lognormal(MEDIAN,SIGMA[,16..4000]), list(16,32,64) or histogram(16:5,100..200:1)";

/// A distribution of lengths in tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum Lengths {
    Constant(u32),
    /// Every length of the range as often.
    Uniform(Range),
    /// Rounded; what falls outside the range is put at its end.
    Normal {
        mean: f64,
        deviation: f64,
        within: Range,
    },
    /// `ln` of a length is normal around `ln(median)` with deviation `sigma`. Rounded; what falls outside the range
    /// is put at its end.
    LogNormal {
        median: f64,
        sigma: f64,
        within: Range,
    },
    /// An entry as often as its weight says; in a range, every length as often.
    Histogram(Vec<Entry>),
}

/// From one length to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub from: u32,
    pub to: u32,
}

/// A part of a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    pub lengths: Range,
    pub weight: f64,
}

impl Lengths {
    /// Reads one of [`LENGTH_FORMS`]; the error is a reason without its place.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::parse_form(text).map_err(|why| format!("{why}; a length is {LENGTH_FORMS}"))
    }

    fn parse_form(text: &str) -> Result<Self, String> {
        let Some((name, inside)) = text.split_once('(') else { return length(text).map(Self::Constant) };
        let inside = inside.strip_suffix(')').ok_or("the closing `)` is missing")?;
        let parts = compact::split(inside)?;
        match (name, parts.as_slice()) {
            ("uniform", [range]) => Range::parse(range).map(Self::Uniform),
            ("normal", [mean, deviation, within @ ..]) => Ok(Self::Normal {
                mean: number(mean, 1.0)?,
                deviation: number(deviation, 0.0)?,
                within: limits(within)?,
            }),
            ("lognormal", [median, sigma, within @ ..]) => Ok(Self::LogNormal {
                median: number(median, 1.0)?,
                sigma: compact::number(sigma, 0.0..=10.0).map_err(|why| format!("`{sigma}` {why}"))?,
                within: limits(within)?,
            }),
            ("list", [_, ..]) => entries(&parts, |part| {
                length(part).map(|at| Entry { lengths: Range { from: at, to: at }, weight: 1.0 })
            }),
            ("histogram", [_, ..]) => entries(&parts, |part| {
                let (lengths, weight) =
                    part.rsplit_once(':').ok_or_else(|| format!("`{part}` must be LENGTH:WEIGHT"))?;
                let lengths = match lengths.contains("..") {
                    true => Range::parse(lengths)?,
                    false => length(lengths).map(|at| Range { from: at, to: at })?,
                };
                let weight = compact::number(weight, 1e-9..=1e12)
                    .map_err(|why| format!("the weight `{weight}` {why}"))?;
                Ok(Entry { lengths, weight })
            }),
            ("uniform" | "normal" | "lognormal" | "list" | "histogram", _) => {
                Err(format!("`{name}` has the wrong number of parts"))
            }
            _ => Err(format!("there is no distribution `{name}`")),
        }
    }

    /// One length.
    pub fn draw(&self, random: &mut ChaCha12Rng) -> u32 {
        match self {
            Self::Constant(length) => *length,
            Self::Uniform(range) => range.draw(random),
            Self::Normal { mean, deviation, within } => {
                let normal = Normal::new(*mean, *deviation).expect("parsed: the deviation is finite");
                within.nearest(normal.sample(random))
            }
            Self::LogNormal { median, sigma, within } => {
                let lognormal = LogNormal::new(median.ln(), *sigma).expect("parsed: sigma is finite");
                within.nearest(lognormal.sample(random))
            }
            Self::Histogram(entries) => {
                let whole: f64 = entries.iter().map(|entry| entry.weight).sum();
                let mut at = random.random_range(0.0..whole);
                let chosen = entries.iter().find(|entry| {
                    at -= entry.weight;
                    at < 0.0
                });
                // Rounding may leave a remainder behind the last entry.
                chosen.or(entries.last()).map_or(1, |entry| entry.lengths.draw(random))
            }
        }
    }
}

impl Range {
    const ALL: Self = Self { from: 1, to: LENGTH_MAX };

    fn parse(text: &str) -> Result<Self, String> {
        let (from, to) = compact::range(text)?;
        let range = Self { from: length(from)?, to: length(to)? };
        if range.from > range.to { Err(format!("`{text}` goes backwards")) } else { Ok(range) }
    }

    fn draw(self, random: &mut ChaCha12Rng) -> u32 {
        random.random_range(self.from..=self.to)
    }

    fn nearest(self, length: f64) -> u32 {
        length.round().clamp(f64::from(self.from), f64::from(self.to)) as u32
    }
}

fn length(text: &str) -> Result<u32, String> {
    compact::whole(text, 1..=LENGTH_MAX).map_err(|why| format!("`{text}` {why}"))
}

fn number(text: &str, least: f64) -> Result<f64, String> {
    compact::number(text, least..=f64::from(LENGTH_MAX)).map_err(|why| format!("`{text}` {why}"))
}

fn limits(parts: &[&str]) -> Result<Range, String> {
    match parts {
        [] => Ok(Range::ALL),
        [range] => Range::parse(range),
        [_, further, ..] => Err(format!("`{further}` is one part too many")),
    }
}

fn entries(parts: &[&str], read: impl Fn(&str) -> Result<Entry, String>) -> Result<Lengths, String> {
    if parts.len() > ENTRIES_MAX {
        return Err(format!("more than {ENTRIES_MAX} entries"));
    }
    parts.iter().map(|part| read(part)).collect::<Result<_, _>>().map(Lengths::Histogram)
}

impl Display for Lengths {
    /// A form that [`Lengths::parse`] reads back.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(length) => write!(f, "{length}"),
            Self::Uniform(range) => write!(f, "uniform({range})"),
            Self::Normal { mean, deviation, within } => write!(f, "normal({mean},{deviation},{within})"),
            Self::LogNormal { median, sigma, within } => write!(f, "lognormal({median},{sigma},{within})"),
            Self::Histogram(entries) => {
                f.write_str("histogram(")?;
                for (at, Entry { lengths, weight }) in entries.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{lengths}:{weight}")?;
                }
                f.write_str(")")
            }
        }
    }
}

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.from, self.to)
    }
}
