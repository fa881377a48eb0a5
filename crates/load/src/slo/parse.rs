//! `"ttft_p95<500ms,itl_p95<50ms,errors<1%"` to [`Slo`].
//!
//! **Invariant:** an error names the term, what is wrong with it, and what would be accepted.

use std::str::FromStr;

use super::{Bound, Objective, Slo, Subject};
use crate::metrics::{Metric, Unit};
use crate::stats::Statistic;

/// Objectives of one SLO at most.
pub const OBJECTIVES_MAX: usize = 32;

const RUN_SUBJECTS: &str = "errors, goodput, qps, throughput, throughput_in, throughput_total";

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let terms: Vec<&str> = text.split(',').map(str::trim).filter(|term| !term.is_empty()).collect();
        if terms.is_empty() {
            return Err("--slo is empty; write objectives such as ttft_p95<500ms,errors<1%".to_owned());
        }
        if terms.len() > OBJECTIVES_MAX {
            return Err(format!("--slo has {} objectives, at most {OBJECTIVES_MAX} are judged", terms.len()));
        }
        let objectives = terms
            .into_iter()
            .map(|term| objective(term).map_err(|reason| format!("--slo, in {term:?}: {reason}")))
            .collect::<Result<_, _>>()?;
        Ok(Slo { objectives })
    }
}

fn objective(term: &str) -> Result<Objective, String> {
    let at = term.find(['<', '>']).ok_or("there is no <, <=, > or >= in it; write such as ttft_p95<500ms")?;
    let (name, rest) = term.split_at(at);
    let (bound, limit) = match rest.as_bytes() {
        [b'<', b'=', ..] => (Bound::AtMost, &rest[2..]),
        [b'>', b'=', ..] => (Bound::AtLeast, &rest[2..]),
        [b'<', ..] => (Bound::Below, &rest[1..]),
        _ => (Bound::Above, &rest[1..]),
    };
    let (amount, unit) = amount(limit.trim())?;
    let subject = subject(name.trim(), unit)?;
    check_direction(subject, bound)?;
    let limit = in_unit_of(subject, amount, unit)?;
    Ok(Objective { text: term.to_owned(), subject, bound, limit })
}

fn amount(text: &str) -> Result<(f64, &str), String> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is no limit; write a number with a unit, such as 500ms"))?;
    Ok((number, unit.trim()))
}

fn subject(name: &str, unit: &str) -> Result<Subject, String> {
    match name {
        "errors" => return Ok(Subject::Errors),
        "goodput" if unit == "%" => return Ok(Subject::GoodputShare),
        "goodput" => return Ok(Subject::GoodputRate),
        "qps" => return Ok(Subject::Qps),
        "throughput" => return Ok(Subject::Throughput),
        "throughput_in" => return Ok(Subject::ThroughputIn),
        "throughput_total" => return Ok(Subject::ThroughputTotal),
        _ => {}
    }
    let unknown = || {
        let metrics: Vec<&str> = Metric::ALL.iter().map(|metric| metric.name()).collect();
        format!(
            "{name:?} is not known; accepted are {RUN_SUBJECTS}, and with _mean, _min, _max or a percentile such as _p95: {}",
            metrics.join(", ")
        )
    };
    if name.parse::<Metric>().is_ok() {
        return Err(format!(
            "{name} has many values; say which is meant: {name}_p95, {name}_mean, {name}_max, {name}_min"
        ));
    }
    let (metric, statistic) = name.rsplit_once('_').ok_or_else(unknown)?;
    let metric: Metric = metric.parse().map_err(|_| unknown())?;
    let statistic = match statistic {
        "mean" | "avg" => Statistic::Mean,
        "min" => Statistic::Min,
        "max" => Statistic::Max,
        "median" => Statistic::Percentile(50.0),
        _ => {
            let percent = statistic.strip_prefix('p').and_then(|percent| percent.parse::<f64>().ok());
            match percent {
                Some(percent) if 0.0 < percent && percent < 100.0 => Statistic::Percentile(percent),
                Some(_) => {
                    return Err(format!(
                        "{statistic} is not between p0 and p100; the ends are _min and _max"
                    ));
                }
                None => return Err(unknown()),
            }
        }
    };
    Ok(Subject::Call { metric, statistic })
}

/// A latency has an upper limit and a speed a lower one: the other way round is a slip of the hand.
fn check_direction(subject: Subject, bound: Bound) -> Result<(), String> {
    let larger_is_better = match subject {
        Subject::Call { metric, .. } => metric.definition().unit.larger_is_better(),
        Subject::Errors => false,
        _ => true,
    };
    let is_lower_limit = matches!(bound, Bound::Above | Bound::AtLeast);
    match (larger_is_better, is_lower_limit) {
        (true, false) => Err("more of it is better, so that the limit is a lower one: write >".to_owned()),
        (false, true) => Err("less of it is better, so that the limit is an upper one: write <".to_owned()),
        _ => Ok(()),
    }
}

fn in_unit_of(subject: Subject, amount: f64, unit: &str) -> Result<f64, String> {
    let wrong = |accepted: &str| {
        let got =
            if unit.is_empty() { "there is no unit".to_owned() } else { format!("{unit:?} is not its unit") };
        Err(format!("{got}; accepted are {accepted}"))
    };
    let factor = match subject {
        Subject::Call { metric, .. } if metric.definition().unit == Unit::Ms => match unit {
            "us" | "µs" => 1e-3,
            "ms" => 1.0,
            "s" => 1e3,
            "m" | "min" => 60e3,
            _ => return wrong("us, ms, s, min"),
        },
        Subject::Errors | Subject::GoodputShare => match unit {
            "%" if amount <= 100.0 => 0.01,
            "%" => return Err(format!("{amount}% is more than all")),
            "" if amount <= 1.0 => 1.0,
            _ => return wrong("% (or a share from 0 to 1)"),
        },
        Subject::GoodputRate | Subject::Qps => match unit {
            "/s" | "qps" | "rps" | "req/s" => 1.0,
            "" if subject == Subject::Qps => 1.0,
            "/min" => 1.0 / 60.0,
            _ if subject == Subject::GoodputRate => return wrong("% (of calls), /s, /min"),
            _ => return wrong("/s, /min"),
        },
        _ => match unit {
            "" | "tok/s" | "tokens/s" | "t/s" | "/s" => 1.0,
            _ => return wrong("tok/s"),
        },
    };
    Ok(amount * factor)
}
