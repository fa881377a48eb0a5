//! The distributions of the three latencies: a histogram, and over it the share of calls that came within a time.

use std::fmt::Write;

use super::escape::percent;
use super::open_section;
use super::plot::{Axis, Plot, SIDE, over_label};
use crate::report::number::{count, counted, duration, quantity};
use crate::report::tally::{self, Distribution};
use crate::results::Results;

/// Bars of a histogram.
const BINS: usize = 60;

pub fn section(out: &mut String, results: &Results) {
    let lead = "Bars: how many values lie in each interval; all intervals are equally wide on the logarithmic axis. Line: \
                the share of values that lie at or below a time. Failed calls never came, so where there are any the \
                line does not reach 100 %.";
    open_section(out, "distributions", "Latency distributions", lead);
    if results.samples_dropped > 0 {
        let _ = write!(
            out,
            "<p class=\"caveat\">Drawn from the {} calls whose samples were kept; {} more are in the counts only.</p>",
            count(results.samples.len() as u64),
            count(results.samples_dropped)
        );
    }
    let found = tally::latencies(results);
    out.push_str("<div class=\"three\">");
    one(out, "TTFT", "from the intended time to the first token", &found.ttft);
    one(out, "ITL", "between tokens; a chunk's gap in equal parts", &found.itl);
    one(out, "E2E", "from the intended time to the last token", &found.e2e);
    out.push_str("</div></section>");
}

fn one(out: &mut String, name: &str, what: &str, values: &Distribution) {
    let Some((least, most)) = values.range_ms() else {
        let why = if values.infinite > 0 { "every call failed" } else { "no value was seen" };
        let _ = write!(
            out,
            "<figure class=\"plot\"><figcaption>{name} <small>{what}</small></figcaption><p class=\"empty\">{why}</p></figure>"
        );
        return;
    };
    let x = Axis::log_ms(least, most, 5);
    let y = Axis::linear(100.0, |value| format!("{value:.0} %"));
    let edges = x.edges(BINS);
    let bins = values.counts(&edges);
    let highest = bins.iter().copied().max().unwrap_or(1).max(1) as f64;
    let mut marks = String::from("<g class=\"bars\">");
    let mut line = String::from("M0 1000");
    let mut below = 0u64;
    for (index, n) in bins.iter().enumerate() {
        let (left, right) = (x.at(edges[index]), x.at(edges[index + 1]));
        below += n;
        let share = below as f64 / values.n() as f64;
        if *n > 0 {
            let height = (*n as f64 / highest * 0.86 * SIDE).max(4.0);
            let _ = write!(
                marks,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" data-t=\"{} to {}: {} · {} at or below {}\"/>",
                left + 1.0,
                SIDE - height,
                (right - left - 2.0).max(1.0),
                duration(edges[index]),
                duration(edges[index + 1]),
                counted(*n, "value", "values"),
                percent(share),
                duration(edges[index + 1]),
            );
        }
        let _ = write!(line, "L{right:.1} {:.1}", SIDE * (1.0 - share));
    }
    let _ = write!(marks, "</g><path class=\"cdf\" d=\"{line}\"/>");
    let mut over = String::new();
    let mut stated = Vec::new();
    for (q, label) in [(0.5, "p50"), (0.95, "p95"), (0.99, "p99")] {
        let value = values.quantile_ms(q);
        stated.push(format!("{label} {}", quantity(value, "ms")));
        if let Some(value) = value.filter(|value| value.is_finite()) {
            let at = x.at(value);
            let _ = write!(marks, "<path class=\"mark\" d=\"M{at:.1} 0V{SIDE}\"/>");
            over_label(&mut over, label, at, 0.0, label);
        }
    }
    let failed = match values.infinite {
        0 => String::new(),
        n => format!(", {} of them failed", count(n)),
    };
    let x_name = format!("{} values{failed}", count(values.n()));
    let summary = format!("{what}: {x_name}; {}", stated.join(", "));
    Plot {
        title: name,
        note: what,
        captioned: true,
        summary,
        x_name: &x_name,
        x: &x,
        y: &y,
        height: 190.0,
        marks,
        over,
    }
    .write(out);
}
