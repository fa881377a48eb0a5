//! Nanoseconds as people read them: three significant digits and a unit.

/// `ns` in the largest unit that leaves a number of at least 1, such as `4.21 ms`.
pub fn human(ns: u64) -> String {
    let value = ns as f64;
    let (scaled, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (value / 1e3, "µs"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let decimals = if scaled < 10.0 { 2 } else { usize::from(scaled < 100.0) };
    format!("{scaled:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn three_significant_digits_and_a_unit() {
        let cases =
            [(0, "0 ns"), (999, "999 ns"), (1_000, "1.00 µs"), (42_500, "42.5 µs"), (132_400_000, "132 ms")];
        for (ns, expected) in cases {
            assert_eq!(human(ns), expected);
        }
        assert_eq!(human(2_345_000_000), "2.35 s");
    }
}
