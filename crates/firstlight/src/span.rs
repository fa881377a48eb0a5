//! Lengths of time, as users write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration such as `500ms`, `30s`, `5m` or `1h`; a bare number is seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a time; write it like 500ms, 30s, 5m or 1h");
        let unit_at = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let seconds = match unit {
            "ms" => number / 1e3,
            "" | "s" => number,
            "m" | "min" => number * 60.0,
            "h" => number * 3600.0,
            _ => return Err(wrong()),
        };
        Duration::try_from_secs_f64(seconds).map(Span).map_err(|_| wrong())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_units_people_write_and_nothing_else_is() {
        let ms = |text: &str| text.parse::<Span>().map(|span| span.0.as_millis());
        assert_eq!(
            (ms("500ms"), ms("1.5s"), ms("2m"), ms("1h"), ms("3")),
            (Ok(500), Ok(1500), Ok(120_000), Ok(3_600_000), Ok(3000))
        );
        for wrong in ["", "s", "-1s", "5 parsecs", "nan", "1e300h"] {
            assert!(ms(wrong).unwrap_err().contains("500ms"), "{wrong}");
        }
    }
}
