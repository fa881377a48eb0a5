//! The `Server-Timing` header: what is known when an answer's head goes out.

use ledger::{Charge, Stage};

/// One metric per stage in the order of the line, durations in milliseconds, as the W3C's Server-Timing has them.
/// Causes of one stage are added up.
pub fn server_timing(stages: &[Charge]) -> String {
    let metrics = Stage::ALL.iter().filter_map(|stage| {
        let charged: Vec<u64> =
            stages.iter().filter(|charge| charge.stage == *stage).map(|charge| charge.ns).collect();
        let ns: u64 = charged.iter().sum();
        (!charged.is_empty()).then(|| format!("{stage};dur={}", milliseconds(ns)))
    });
    metrics.collect::<Vec<_>>().join(", ")
}

/// Milliseconds with all nanoseconds kept: `1234567` gives `1.234567`.
fn milliseconds(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_every_nanosecond_and_the_order_of_the_line() {
        let charge = |stage, ns| Charge { stage, ns, cause: None };
        let stages =
            [charge(Stage::Prefill, 1_234_567), charge(Stage::Accept, 42), charge(Stage::Prefill, 1)];
        assert_eq!(server_timing(&stages), "accept;dur=0.000042, prefill;dur=1.234568");
    }
}
