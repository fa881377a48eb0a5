//! The compact form that schedules are written in on the command line: `name:value,key=value,key=f(a,b)`.
//!
//! **Invariant:** nothing that was written is ignored: an unknown, doubled or unreadable part is an error that names it
//! and gives the accepted forms.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, anyhow};

/// One such text, taken apart.
pub(crate) struct Compact<'a> {
    /// What it describes, as errors call it.
    what: &'static str,
    whole: &'a str,
    /// Accepted forms, as errors give them.
    forms: &'static str,
    pub name: &'a str,
    value: Option<&'a str>,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> Compact<'a> {
    pub fn parse(what: &'static str, whole: &'a str, forms: &'static str) -> Result<Self> {
        let (name, rest) = whole.split_once(':').unwrap_or((whole, ""));
        let mut compact = Self { what, whole, forms, name, value: None, options: Vec::new() };
        let parts = split(rest).map_err(|why| compact.error(why))?;
        for (at, part) in parts.into_iter().enumerate() {
            match part.split_once('=').filter(|(key, _)| is_key(key)) {
                _ if part.is_empty() => return Err(compact.error("there is nothing between two commas")),
                Some((key, _)) if compact.options.iter().any(|(known, _)| *known == key) => {
                    return Err(compact.error(format!("`{key}` is given twice")));
                }
                Some(option) => compact.options.push(option),
                None if at == 0 => compact.value = Some(part),
                None => return Err(compact.error(format!("`{part}` is not of the form key=value"))),
            }
        }
        Ok(compact)
    }

    pub fn error(&self, why: impl Display) -> anyhow::Error {
        anyhow!("{} `{}`: {why}\naccepted:\n{}", self.what, self.whole, self.forms)
    }

    /// The part directly behind the colon.
    pub fn value(&mut self, meaning: &str) -> Result<&'a str> {
        self.value.take().ok_or_else(|| self.error(format!("{meaning} is missing behind `{}:`", self.name)))
    }

    pub fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.options.iter().position(|(known, _)| *known == key)?;
        Some(self.options.remove(at).1)
    }

    /// An option that may be left out, read by `read`.
    pub fn read<T, E: Display>(
        &mut self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>> {
        let Some(text) = self.take(key) else { return Ok(None) };
        read(text).map(Some).map_err(|why| self.error(format!("`{key}={text}`: {why}")))
    }

    /// An option that must be there.
    pub fn need<T, E: Display>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T, E>) -> Result<T> {
        self.read(key, read)?.ok_or_else(|| self.error(format!("`{key}=` is missing")))
    }

    /// All has been taken, or what is left is an error.
    pub fn end(self) -> Result<()> {
        if let Some(value) = self.value {
            return Err(self.error(format!("`{value}` is not of the form key=value")));
        }
        match self.options.first() {
            Some((key, _)) => Err(self.error(format!("`{}` has no option `{key}`", self.name))),
            None => Ok(()),
        }
    }
}

/// A key is plain letters, so that a path with an `=` behind a `/` or `.` is not taken for one.
fn is_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

/// Splits at commas that are not in parentheses.
pub(crate) fn split(text: &str) -> Result<Vec<&str>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0_u32, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or("a `)` without its `(`")?,
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err("a `(` without its `)`".to_owned());
    }
    parts.push(&text[begin..]);
    Ok(parts)
}

/// A whole number within bounds.
pub(crate) fn whole<T>(text: &str, bounds: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    let outside = || format!("must be a whole number from {} to {}", bounds.start(), bounds.end());
    let number = text.parse::<T>().map_err(|_| outside())?;
    if bounds.contains(&number) { Ok(number) } else { Err(outside()) }
}

/// A finite number within bounds.
pub(crate) fn number(text: &str, bounds: RangeInclusive<f64>) -> Result<f64, String> {
    let outside = || format!("must be a number from {} to {}", bounds.start(), bounds.end());
    let number = text.parse::<f64>().map_err(|_| outside())?;
    if bounds.contains(&number) { Ok(number) } else { Err(outside()) }
}

/// `A..B`, both ends included.
pub(crate) fn range(text: &str) -> Result<(&str, &str), String> {
    text.split_once("..").ok_or_else(|| format!("`{text}` must be a range such as 16..128"))
}

/// A duration with its unit: `500ms`, `60s`, `2m`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 4] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    const LONGEST_S: f64 = 30.0 * 86_400.0;
    let wrong = || "must be a time with its unit, such as 500ms, 60s, 2m or 1h, up to 30 days".to_owned();
    let (digits, unit_s) =
        UNITS.iter().find_map(|(unit, unit_s)| Some((text.strip_suffix(unit)?, unit_s))).ok_or_else(wrong)?;
    let seconds = digits.parse::<f64>().map_err(|_| wrong())? * unit_s;
    if !(0.0..=LONGEST_S).contains(&seconds) {
        return Err(wrong());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// `yes` or `no`.
pub(crate) fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("must be yes or no".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_parentheses_do_not_split() {
        assert_eq!(split("in=f(1,(2,3)),out=4").unwrap(), ["in=f(1,(2,3))", "out=4"]);
        assert_eq!(split("").unwrap(), [""; 0]);
        assert!(split("f(1").unwrap_err().contains("without its `)`"));
        assert!(split("f)1").unwrap_err().contains("without its `(`"));
    }

    #[track_caller]
    fn refuse(text: &str, expected: &str) {
        let told = Compact::parse("arrivals", text, "forms")
            .and_then(|mut compact| {
                compact.need("a", |text| whole(text, 1..=5))?;
                compact.end()
            })
            .unwrap_err()
            .to_string();
        assert!(told.contains(expected), "{told}");
        assert!(told.contains(text) && told.ends_with("forms"), "{told}");
    }

    #[test]
    fn what_is_not_understood_is_named() {
        refuse("x:a=1,a=2", "`a` is given twice");
        refuse("x:a=1,b=2", "`x` has no option `b`");
        refuse("x:7,a=1", "`7` is not of the form key=value");
        refuse("x:a=1,7", "`7` is not of the form key=value");
        refuse("x:a=1,,b=2", "nothing between two commas");
        refuse("x:a=6", "`a=6`: must be a whole number from 1 to 5");
        refuse("x:a=", "`a=`: must be a whole number");
        refuse("x", "`a=` is missing");
    }

    #[test]
    fn a_time_needs_its_unit_and_must_be_finite() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        for wrong in ["60", "", "s", "-1s", "infs", "NaNs", "1e9h", "3 weeks"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
