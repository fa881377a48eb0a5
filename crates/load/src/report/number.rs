//! How numbers are written: three significant digits, the unit that fits, and ∞ for what never came.

/// A time in milliseconds, as `850 µs`, `212 ms`, `1.24 s` or `12.5 min`.
pub fn duration(ms: f64) -> String {
    let (value, unit) = scaled(ms);
    if value.is_infinite() { value_text(value) } else { format!("{} {unit}", measured(value)) }
}

/// A number with its unit; times adapt. An absent one is a dash.
pub fn quantity(value: Option<f64>, unit: &str) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if unit == "ms" => duration(value),
        Some(value) if unit.is_empty() => value_text(value),
        Some(value) => format!("{} {unit}", value_text(value)),
    }
}

/// Two ends of an interval in one unit, as `590 – 655 ms`.
pub fn interval(low: f64, high: f64, unit: &str) -> String {
    if unit != "ms" {
        return quantity(Some(high), unit).replacen(
            &value_text(high),
            &format!("{} – {}", value_text(low), value_text(high)),
            1,
        );
    }
    if low.is_infinite() {
        return "∞".to_owned();
    }
    if high.is_infinite() {
        return format!("{} – ∞", duration(low));
    }
    if low > 0.0 && high / low > 100.0 {
        return format!("{} – {}", duration(low), duration(high));
    }
    let (scaled_high, unit) = scaled(high);
    let ratio = if high > 0.0 { scaled_high / high } else { 1.0 };
    let high_text = measured(scaled_high);
    let decimals = high_text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    format!("{:.decimals$} – {high_text} {unit}", low * ratio)
}

/// `value` with three significant digits, and commas between thousands. Whole numbers, such as a load of 8 users, have no
/// zeros behind the point, with which they would look measured.
pub fn value_text(value: f64) -> String {
    let text = measured(value);
    match text.split_once('.') {
        Some((whole, _)) if value.fract() == 0.0 => whole.to_owned(),
        _ => text,
    }
}

/// A round number, such as a load or an axis's label: as [`value_text`], without zeros at the end.
pub fn plain(value: f64) -> String {
    let text = value_text(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// `value` with three significant digits, whole or not.
fn measured(value: f64) -> String {
    if value.is_nan() {
        return "–".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞" } else { "−∞" }.to_owned();
    }
    let rounded = significant(value, 3);
    if rounded == 0.0 {
        return "0".to_owned();
    }
    let digits = rounded.abs().log10().floor() as i32; // 0 for 1 to 9
    if digits >= 3 {
        let whole = value.abs().round();
        let sign = if value < 0.0 { "−" } else { "" };
        return if whole < 1e18 { format!("{sign}{}", count(whole as u64)) } else { format!("{value:.3e}") };
    }
    let text = format!("{rounded:.*}", (2 - digits).clamp(0, 9) as usize);
    text.replacen('-', "−", 1)
}

/// A count with commas between thousands.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share of one, as `12.5 %`; what is not zero is not written as zero.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        value if value > 0.0 && value < 0.05 => "<0.1 %".to_owned(),
        value if (99.95..100.0).contains(&value) => ">99.9 %".to_owned(),
        value => format!("{value:.1} %"),
    }
}

/// `count` things, in the singular for one.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// Text that came from a server or a user, safe to print: control characters, which can drive a terminal, and characters
/// that turn the reading direction are replaced, and what is longer than `max` characters is cut to as many.
pub fn printable(text: &str, max: usize) -> String {
    let mut out = String::new();
    let mut chars = text.chars().enumerate().peekable();
    while let Some((index, char)) = chars.next() {
        if index + 1 >= max && chars.peek().is_some() {
            out.push('…');
            break;
        }
        let turns =
            matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        out.push(match char {
            '\n' | '\t' | '\r' => ' ',
            _ if char.is_control() || turns || matches!(char, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                '\u{fffd}'
            }
            _ => char,
        });
    }
    out
}

/// A time in the unit it is written in. Rounding comes first, so that 999.7 ms is 1 s, never 1000 ms.
fn scaled(ms: f64) -> (f64, &'static str) {
    let rounded = significant(ms, 3).abs();
    if rounded == 0.0 || (1.0..1e3).contains(&rounded) || !rounded.is_finite() {
        (ms, "ms")
    } else if rounded < 1.0 {
        (ms * 1e3, "µs")
    } else if rounded < 120e3 {
        (ms / 1e3, "s")
    } else {
        (ms / 60e3, "min")
    }
}

fn significant(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let power = digits - 1 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(power);
    (value * scale).round() / scale
}

/// JSON has no infinity: it is the string `"inf"` there, and what is absent is `null`.
pub mod serde_absent {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Written;

    pub fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) if value.is_infinite() && *value > 0.0 => serializer.serialize_str("inf"),
            Some(value) if value.is_finite() => serializer.serialize_f64(*value),
            _ => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        Option::<Written>::deserialize(deserializer)?.map(Written::value).transpose()
    }
}

/// As [`serde_absent`], where a number must be there.
pub mod serde_finite_or_inf {
    use serde::{Deserialize, Deserializer, Serializer, ser};

    use super::Written;

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_infinite() && *value > 0.0 {
            serializer.serialize_str("inf")
        } else if value.is_finite() {
            serializer.serialize_f64(*value)
        } else {
            Err(ser::Error::custom("a number of a report is not a number"))
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Written::deserialize(deserializer)?.value()
    }
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Word(String),
}

impl Written {
    fn value<E: serde::de::Error>(self) -> Result<f64, E> {
        match self {
            Written::Number(value) => Ok(value),
            Written::Word(word) if word == "inf" => Ok(f64::INFINITY),
            Written::Word(word) => Err(E::custom(format!("expected a number or \"inf\", found {word:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ms: f64, expected: &str) {
        assert_eq!(duration(ms), expected);
    }

    #[test]
    fn times_take_the_unit_that_fits_and_keep_three_digits() {
        check(0.0, "0 ms");
        check(0.0123, "12.3 µs");
        check(0.99951, "1.00 ms");
        check(1.0, "1.00 ms");
        check(21.25, "21.3 ms");
        check(999.4, "999 ms");
        check(999.7, "1.00 s");
        check(12_345.0, "12.3 s");
        check(119_000.0, "119 s");
        check(750_000.0, "12.5 min");
        check(f64::INFINITY, "∞");
    }

    #[test]
    fn numbers_have_three_digits_or_all_that_stand_before_the_point() {
        assert_eq!(value_text(1234.5), "1,235");
        assert_eq!(value_text(12.345), "12.3");
        assert_eq!(value_text(9.999), "10.0");
        assert_eq!(value_text(8.0), "8");
        assert_eq!((plain(3.5), plain(100.0)), ("3.5".to_owned(), "100".to_owned()));
        assert_eq!(value_text(-0.5), "−0.500");
        assert_eq!(value_text(f64::NAN), "–");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(123), "123");
        assert_eq!(percent(0.0002), "<0.1 %");
        assert_eq!(percent(0.9999), ">99.9 %");
        assert_eq!(percent(1.0), "100.0 %");
    }

    #[test]
    fn intervals_have_one_unit() {
        assert_eq!(interval(590.2, 655.0, "ms"), "590 – 655 ms");
        assert_eq!(interval(950.0, 1_250.0, "ms"), "0.95 – 1.25 s");
        assert_eq!(interval(4.0, 1_250.0, "ms"), "4.00 ms – 1.25 s");
        assert_eq!(interval(950.0, f64::INFINITY, "ms"), "950 ms – ∞");
        assert_eq!(interval(f64::INFINITY, f64::INFINITY, "ms"), "∞");
        assert_eq!(interval(7.5, 8.25, "users"), "7.50 – 8.25 users");
    }

    #[test]
    fn text_from_outside_cannot_drive_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mred\u{7}\nb", 100), "a\u{fffd}[31mred\u{fffd} b");
        assert_eq!(printable("\u{202e}txt", 100), "\u{fffd}txt");
        assert_eq!((printable("häß", 2), printable("häß", 3)), ("h…".to_owned(), "häß".to_owned()));
    }
}
