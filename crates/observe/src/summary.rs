//! One line about one answer.

use ledger::{Record, Stage};

use crate::duration::human;

/// Time to first token, speed after it, and the stage that took most, such as
/// `TTFT 132 ms · 48.2 tokens/s · 24 tokens in 612 ms · decode took 71%`.
pub fn summary(record: &Record) -> String {
    let mut parts = Vec::new();
    parts.push(record.ttft_ns.map_or_else(|| "no token".to_owned(), |ns| format!("TTFT {}", human(ns))));
    if let Some(speed) = tokens_per_second(record) {
        parts.push(format!("{speed:.1} tokens/s"));
    }
    parts.push(format!("{} tokens in {}", record.completion_tokens, human(record.e2e_ns)));
    if let Some((stage, ns)) = dominant(record) {
        parts.push(format!("{stage} took {:.0}%", 100.0 * ns as f64 / record.e2e_ns as f64));
    }
    parts.join(" · ")
}

/// Output speed after the first delivery, in tokens per second; `None` with fewer than two deliveries.
pub fn tokens_per_second(record: &Record) -> Option<f64> {
    let delivered = || record.tokens.iter().filter(|unit| unit.tokens > 0);
    let first = delivered().next()?;
    let last = delivered().next_back()?;
    let tokens: usize = delivered().skip(1).map(|unit| unit.tokens).sum();
    let ns = last.delivered_ns - first.delivered_ns;
    (tokens > 0 && ns > 0 && record.tokens_dropped == 0).then(|| tokens as f64 * 1e9 / ns as f64)
}

/// The stage that was charged most, and how much.
pub fn dominant(record: &Record) -> Option<(Stage, u64)> {
    let charged = Stage::ALL.iter().map(|stage| (*stage, record.charged_ns(*stage)));
    charged.filter(|(_, ns)| *ns > 0).max_by_key(|(_, ns)| *ns)
}
