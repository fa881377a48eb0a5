//! What a server tells only in sum: histograms in Prometheus' text form, read before and after a run. Sums over counts are
//! means over the requests that ended in between, of all clients, and say nothing of a single one.

use ledger::Stage;
use serde::{Deserialize, Serialize};

use super::number::ns_of_s;

/// Mean time by stage over the requests that ended between two readings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMeans {
    /// How many requests ended in between, by the histogram that saw most.
    pub requests: u64,
    /// Mean nanoseconds by stage; a stage without a histogram is missing.
    pub stages: Vec<(Stage, u64)>,
    /// What the numbers are, in words.
    pub label: String,
}

/// A kind's histograms, in seconds, by the stage that each measures.
fn histograms(kind: &str) -> &'static [(&'static str, Stage)] {
    match kind {
        // vLLM, `vllm/v1/metrics/loggers.py`. Its inference time is the sum of the last two.
        "vllm" => &[
            ("vllm:request_queue_time_seconds", Stage::Queue),
            ("vllm:request_prefill_time_seconds", Stage::Prefill),
            ("vllm:request_decode_time_seconds", Stage::Decode),
        ],
        // SGLang, with --enable-metrics. Its others are by stages that overlap ours.
        "sglang" => &[("sglang:queue_time_seconds", Stage::Queue)],
        _ => &[],
    }
}

/// Whether a server of this kind has totals at `/metrics`.
pub fn has_totals(kind: &str) -> bool {
    !histograms(kind).is_empty()
}

/// The means of what happened between two readings of `/metrics`; None where there is nothing to divide, or where a
/// counter ran backwards, which means that the server was started anew.
pub fn between(kind: &str, before: &str, after: &str) -> Option<RunMeans> {
    let mut means = RunMeans { requests: 0, stages: Vec::new(), label: String::new() };
    for (name, stage) in histograms(kind) {
        let Some(end) = totals(after, name) else { continue };
        // A histogram appears with its first observation.
        let start = totals(before, name).unwrap_or_default();
        let (sum, count) = (end.sum - start.sum, end.count - start.count);
        if sum < 0.0 || count < 0.0 {
            return None;
        }
        if count > 0.0 {
            means.stages.push((*stage, ns_of_s(sum / count)?));
            means.requests = means.requests.max(count as u64);
        }
    }
    means.label =
        format!("means over the {} requests that ended during the run, by {kind}'s /metrics", means.requests);
    (!means.stages.is_empty()).then_some(means)
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    sum: f64,
    count: f64,
}

/// A histogram's sum and count over all its label sets; None if it is not there.
fn totals(text: &str, name: &str) -> Option<Totals> {
    let mut found = None;
    for line in text.lines().filter(|line| line.starts_with(name)) {
        let Some((suffix, value)) = sample(&line[name.len()..]) else { continue };
        let totals: &mut Totals = match suffix {
            "_sum" | "_count" => found.get_or_insert_default(),
            _ => continue,
        };
        if suffix == "_sum" {
            totals.sum += value;
        } else {
            totals.count += value;
        }
    }
    found
}

/// A line's rest behind the histogram's name: its suffix and value, with the labels between them skipped.
fn sample(rest: &str) -> Option<(&str, f64)> {
    let end = rest.find(['{', ' ', '\t'])?;
    let (suffix, rest) = rest.split_at(end);
    let values = match rest.strip_prefix('{') {
        Some(labels) => &labels[labels_end(labels)? + 1..],
        None => rest,
    };
    let value = values.split_ascii_whitespace().next()?.parse().ok()?;
    Some((suffix, value))
}

/// Where the labels' closing brace is; one within a quoted value is none.
fn labels_end(labels: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (index, byte) in labels.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(index),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(f64, f64)>) {
        let expected = expected.map(|(sum, count)| Totals { sum, count });
        assert_eq!(totals(text, "vllm:t_seconds"), expected, "{text}");
    }

    #[test]
    fn label_sets_are_added_up_and_buckets_are_not() {
        check("vllm:t_seconds_sum 1.5\nvllm:t_seconds_count 3\n", Some((1.5, 3.0)));
        check(
            "vllm:t_seconds_sum{e=\"0\"} 1e-1\nvllm:t_seconds_sum{e=\"1\"} 2 1700000000\n",
            Some((2.1, 0.0)),
        );
        check("vllm:t_seconds_bucket{le=\"+Inf\"} 3\n", None);
        check("# TYPE vllm:t_seconds histogram\nvllm:t_seconds_sum nonsense\n", None);
    }

    #[test]
    fn a_longer_name_is_another_histogram() {
        check("vllm:t_seconds_more_sum 1\n", None);
    }

    #[test]
    fn a_brace_or_a_quote_within_a_label_ends_nothing() {
        check("vllm:t_seconds_sum{m=\"a}b\\\"} 7\",n=\"x\"} 4\n", Some((4.0, 0.0)));
    }

    #[test]
    fn a_server_that_was_started_anew_has_no_means() {
        let at = |sum: f64, count: f64| {
            format!(
                "vllm:request_queue_time_seconds_sum {sum}\nvllm:request_queue_time_seconds_count {count}\n"
            )
        };
        assert_eq!(between("vllm", &at(4.0, 9.0), &at(1.0, 2.0)), None);
        assert_eq!(between("vllm", &at(4.0, 9.0), &at(4.0, 9.0)), None);
        let means = between("vllm", "", &at(4.0, 2.0)).unwrap();
        assert_eq!((means.requests, means.stages), (2, vec![(Stage::Queue, 2_000_000_000)]));
        assert_eq!(between("opaque", "", &at(4.0, 2.0)), None);
    }
}
