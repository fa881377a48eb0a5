//! Sizes as people write and read them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes, written as `2GiB`, `512MiB`, `64K`, `1.5G` (powers of 1024) or plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a size: write a number and B, KiB, MiB, GiB or TiB, such as 2GiB");
        let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
        let shift = match text[digits..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(wrong()),
        };
        let bytes = number * (1u64 << shift) as f64;
        if bytes.is_finite() && bytes < u64::MAX as f64 { Ok(ByteSize(bytes as u64)) } else { Err(wrong()) }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match units.iter().find(|(_, shift)| self.0 >= 1 << shift) {
            Some((unit, shift)) => {
                let value = self.0 as f64 / (1u64 << shift) as f64;
                let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
                write!(f, "{value:.decimals$} {unit}")
            }
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ByteSize;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for (text, bytes) in [("2GiB", 2 << 30), ("1.5k", 1536), ("64 MiB", 64 << 20), ("17", 17)] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "GiB", "2 parsecs", "-1", "1e9"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        assert_eq!(ByteSize(1_117_320_768).to_string(), "1.04 GiB");
    }
}
