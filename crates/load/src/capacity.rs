//! What a search's answer costs: throughput per dollar, users for each GPU, GPUs for each user.
//!
//! **Invariant:** nothing is extrapolated. The figures are of the machines that were measured, at the load that met the
//! objectives; two of them may carry more or less than twice as much.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::search::{Answer, LoadUnit};
use crate::stats::Real;

/// The price of one unit (a GPU or a machine), as `--price` has it: `1.20/h`, `$28.8/day`, `€900/month`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    pub per_hour: f64,
    /// `$` where none is written.
    pub currency: String,
}

/// Hours of a month: a twelfth of 365 days.
const HOURS_PER_MONTH: f64 = 730.0;

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            |what: &str| format!("--price {text:?}: {what}; write an amount and a time, such as 1.20/h");
        let (amount, period) = text.split_once('/').ok_or_else(|| wrong("there is no / in it"))?;
        let digits = amount
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .ok_or_else(|| wrong("there is no amount"))?;
        let (currency, number) = amount.split_at(digits);
        let number: f64 = number.trim().parse().map_err(|_| wrong("the amount is no number"))?;
        if number <= 0.0 {
            return Err(wrong("the amount is not above zero"));
        }
        let hours = match period.trim() {
            "h" | "hour" => 1.0,
            "s" | "second" => 1.0 / 3600.0,
            "min" | "minute" => 1.0 / 60.0,
            "d" | "day" => 24.0,
            "mo" | "month" => HOURS_PER_MONTH,
            _ => return Err(wrong("the time is none of s, min, h, day, month")),
        };
        let currency = if currency.trim().is_empty() { "$" } else { currency.trim() };
        Ok(Price { per_hour: number / hours, currency: currency.to_owned() })
    }
}

/// What the server runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machines {
    pub count: u32,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `--gpus`
    Gpu,
    /// `--machines`
    Machine,
}

impl Machines {
    /// Exactly one of the two flags may be given; without both, one machine is meant.
    ///
    /// # Errors
    /// Both are given, or a count of zero.
    pub fn of(gpus: Option<u32>, machines: Option<u32>) -> Result<Self, String> {
        let (count, kind) = match (gpus, machines) {
            (Some(_), Some(_)) => {
                return Err(
                    "--gpus and --machines are both given; one of them is the unit of price".to_owned()
                );
            }
            (Some(count), None) => (count, Kind::Gpu),
            (None, count) => (count.unwrap_or(1), Kind::Machine),
        };
        if count == 0 {
            return Err("--gpus and --machines count from 1".to_owned());
        }
        Ok(Machines { count, kind })
    }
}

/// A figure with its unit, and the same at the ends of the answer's interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantity {
    pub name: String,
    pub value: Real,
    pub low: Option<Real>,
    pub high: Option<Real>,
    pub unit: String,
}

/// The figures that can be given; what cannot is in `missing` with the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    pub machines: Machines,
    pub price: Option<Price>,
    pub quantities: Vec<Quantity>,
    pub missing: Vec<String>,
}

/// Turns a search's answer into what a planner asks for.
pub fn capacity(answer: &Answer, machines: Machines, price: Option<&Price>) -> Capacity {
    let mut capacity =
        Capacity { machines, price: price.cloned(), quantities: Vec::new(), missing: Vec::new() };
    let Some(load) = answer.load else {
        capacity.missing.push("no load met the objectives, so that there is nothing to divide by".to_owned());
        return capacity;
    };
    let count = f64::from(machines.count);
    let unit = match machines.kind {
        Kind::Gpu => "GPU",
        Kind::Machine => "machine",
    };
    let (what, one) = match answer.unit {
        LoadUnit::Users => ("users", "user"),
        LoadUnit::Qps => ("calls/s", "(call/s)"),
    };
    let mut add = |name: String, unit: String, value: &dyn Fn(f64) -> f64, at: [Option<Real>; 3]| {
        let [middle, low, high] = at.map(|at| at.map(|at| Real(value(at.0))));
        if let Some(middle) = middle {
            capacity.quantities.push(Quantity { name, value: middle, low, high, unit });
        }
    };
    let at_load = [Some(load), answer.low, answer.high];
    add(format!("{what} per {unit} @ SLO"), format!("{what}/{unit}"), &|load| load / count, at_load);
    // More users for each GPU are fewer GPUs for each user, so that the interval's ends change places.
    let turned = [Some(load), answer.high, answer.low];
    add(format!("{unit}s per {one} @ SLO"), format!("{unit}s/{one}"), &|load| count / load, turned);

    let Some(price) = price else {
        capacity.missing.push("no --price, so that nothing is told per dollar".to_owned());
        return capacity;
    };
    let (per_hour, currency) = (price.per_hour * count, &price.currency);
    let per_s = per_hour / 3600.0;
    let tokens = |rate: Option<Real>, over: Option<crate::stats::Interval>| {
        [rate, over.map(|over| over.low), over.map(|over| over.high)]
    };
    let output = tokens(answer.output_tokens_per_s, answer.output_tokens_interval);
    let turned_output = [output[0], output[2], output[1]];
    add(
        format!("output tokens per {currency} @ SLO"),
        format!("tokens/{currency}"),
        &|rate| rate / per_s,
        output,
    );
    add(
        format!("{currency} per million output tokens @ SLO"),
        format!("{currency}/1M tokens"),
        &|rate| per_s / rate * 1e6,
        turned_output,
    );
    add(
        format!("tokens in and out per {currency} @ SLO"),
        format!("tokens/{currency}"),
        &|rate| rate / per_s,
        tokens(answer.total_tokens_per_s, None),
    );
    add(
        format!("{currency} per {one} and hour @ SLO"),
        format!("{currency}/({one} h)"),
        &|load| per_hour / load,
        turned,
    );
    if answer.output_tokens_per_s.is_none() {
        capacity.missing.push("the trials at the answer have too few calls for a throughput".to_owned());
    }
    capacity
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Stopped;
    use crate::stats::{Interval, Over};

    fn answer() -> Answer {
        Answer {
            unit: LoadUnit::Users,
            load: Some(Real(40.0)),
            low: Some(Real(32.0)),
            high: Some(Real(50.0)),
            stopped: Stopped::Found,
            caveat: None,
            levels: Vec::new(),
            binding: None,
            stage: None,
            output_tokens_per_s: Some(Real(1000.0)),
            output_tokens_interval: Some(Interval {
                low: Real(900.0),
                high: Real(1200.0),
                level: 0.95,
                draws: Some(1000),
                over: Over::Runs,
            }),
            total_tokens_per_s: None,
            finished_per_s: None,
        }
    }

    fn quantity(capacity: &Capacity, unit: &str) -> (f64, Option<f64>, Option<f64>) {
        let quantity = capacity.quantities.iter().find(|quantity| quantity.unit == unit);
        let quantity = quantity.unwrap_or_else(|| panic!("no {unit} in {capacity:?}"));
        (quantity.value.0, quantity.low.map(|low| low.0), quantity.high.map(|high| high.0))
    }

    #[test]
    fn prices_are_read_and_refused_with_a_reason() {
        for (text, per_hour, currency) in [
            ("1.20/h", 1.2, "$"),
            ("$28.8/day", 1.2, "$"),
            ("€ 730/month", 1.0, "€"),
            ("EUR2/hour", 2.0, "EUR"),
        ] {
            let price: Price = text.parse().unwrap();
            assert!((price.per_hour - per_hour).abs() < 1e-9, "{text}");
            assert_eq!(price.currency, currency);
        }
        for text in ["1.20", "x/h", "0/h", "1/fortnight", "1.2.3/h"] {
            assert!(text.parse::<Price>().unwrap_err().contains("such as 1.20/h"), "{text}");
        }
    }

    #[test]
    fn users_per_gpu_and_gpus_per_user_are_each_others_inverse() {
        let capacity = capacity(&answer(), Machines::of(Some(4), None).unwrap(), None);
        assert_eq!(quantity(&capacity, "users/GPU"), (10.0, Some(8.0), Some(12.5)));
        assert_eq!(quantity(&capacity, "GPUs/user"), (0.1, Some(0.08), Some(0.125)));
        assert_eq!(capacity.missing.len(), 1);
    }

    #[test]
    fn a_dollar_buys_the_tokens_of_its_seconds() {
        // Two machines at 1.80 an hour are 0.001 a second; 1,000 tokens a second are a million for each dollar.
        let price: Price = "1.80/h".parse().unwrap();
        let capacity = capacity(&answer(), Machines::of(None, Some(2)).unwrap(), Some(&price));
        let (value, low, high) = quantity(&capacity, "tokens/$");
        assert!((value - 1e6).abs() < 1e-3 && (low.unwrap() - 9e5).abs() < 1e-3 && high.unwrap() > 1.19e6);
        let (value, low, high) = quantity(&capacity, "$/1M tokens");
        assert!((value - 1.0).abs() < 1e-9 && low.unwrap() < 1.0 && high.unwrap() > 1.1);
        let (value, ..) = quantity(&capacity, "$/(user h)");
        assert!((value - 0.09).abs() < 1e-9);
    }

    #[test]
    fn calls_a_second_have_units_of_their_own() {
        let open = Answer { unit: LoadUnit::Qps, ..answer() };
        let capacity = capacity(&open, Machines::of(Some(2), None).unwrap(), None);
        assert_eq!(quantity(&capacity, "calls/s/GPU").0, 20.0);
        assert_eq!(quantity(&capacity, "GPUs/(call/s)").0, 0.05);
    }

    #[test]
    fn no_load_gives_no_figures() {
        let none = Answer { load: None, ..answer() };
        let capacity = capacity(&none, Machines::of(None, None).unwrap(), None);
        assert!(capacity.quantities.is_empty() && capacity.missing.len() == 1);
        assert!(Machines::of(Some(1), Some(1)).is_err() && Machines::of(Some(0), None).is_err());
    }
}
