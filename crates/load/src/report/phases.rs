//! What a call was waiting for, from the intended moment to its last byte: by the server's own account where there is
//! one, else by what a client can see. The phases of one call sum to the time between its boundaries.

use ledger::Stage;

use crate::sample::{Ns, Sample};

/// A part of a call's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// From the intended moment until the client sent it.
    Unsent,
    /// From sending to the answer's first byte, of a server that does not say more.
    Waiting,
    /// From the answer's first byte to the first token, of a server that does not say more.
    FirstByte,
    /// A stage of the server's account.
    Server(Stage),
    /// Seen by the client, but not in the server's account: the network, and what the account leaves out.
    Outside,
    /// From the first token to the last.
    Streaming,
    /// A pause in the stream.
    Pause,
    /// From the last token to the answer's last byte.
    Tail,
}

impl Phase {
    /// As legends print it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Unsent => "not sent yet",
            Phase::Waiting => "waiting",
            Phase::FirstByte => "first byte, no token",
            Phase::Server(stage) => stage.name(),
            Phase::Outside => "outside the account",
            Phase::Streaming => "streaming",
            Phase::Pause => "pause in the stream",
            Phase::Tail => "after the last token",
        }
    }

    /// Its class in the page's style sheet, which gives it the same colour everywhere.
    pub fn slug(self) -> String {
        match self {
            Phase::Unsent => "p-unsent".to_owned(),
            Phase::Waiting => "p-waiting".to_owned(),
            Phase::FirstByte => "p-firstbyte".to_owned(),
            Phase::Server(stage) => format!("s-{}", stage.name()),
            Phase::Outside => "p-outside".to_owned(),
            Phase::Streaming => "p-streaming".to_owned(),
            Phase::Pause => "p-pause".to_owned(),
            Phase::Tail => "p-tail".to_owned(),
        }
    }

    /// What happens in it, in one sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Phase::Unsent => "From the moment the schedule wanted the call sent until the client sent it.",
            Phase::Waiting => {
                "From sending to the answer's first byte; the server does not say what happens in it."
            }
            Phase::FirstByte => "From the answer's first byte to its first token; the server says no more.",
            Phase::Server(stage) => stage.meaning(),
            Phase::Outside => {
                "Seen by the client, but not in the server's account: the network, and what the account leaves out."
            }
            Phase::Streaming => "From the first token to the last.",
            Phase::Pause => {
                "A pause between two chunks of more than four times the call's median pause, and of at least 100 ms."
            }
            Phase::Tail => "From the last token to the answer's last byte: usage, the end of the stream.",
        }
    }
}

/// How far a call's phases come from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// The server's stages are shown.
    Shown,
    /// There is none.
    Absent,
    /// The server claims more time than passed at the client; what it says is not used.
    Contradicts,
}

/// A finished call's time by phase, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Breakdown {
    /// From the intended moment to the first token.
    pub to_first_token: Vec<(Phase, u64)>,
    /// From then to the last byte.
    pub after_it: Vec<(Phase, u64)>,
    pub account: Account,
}

/// The phases of a call that gave at least one token; None for others.
pub fn breakdown(sample: &Sample) -> Option<Breakdown> {
    let sent = sample.sent_ns?;
    let (first, last) = (sample.chunks.first()?.at_ns, sample.chunks.last()?.at_ns);
    let end = sample.last_byte_ns.unwrap_or(last).max(last);
    let mut to_first_token = vec![(Phase::Unsent, sent.saturating_sub(sample.intended_ns))];
    let mut after_it = Vec::new();
    let before = fitted(&sample.server.to_first_token, first.saturating_sub(sent));
    let after = fitted(&sample.server.after_it, end - first);
    let account = match (&before, &after) {
        (Fit::Over, _) | (_, Fit::Over) => Account::Contradicts,
        (Fit::None, Fit::None) => Account::Absent,
        _ => Account::Shown,
    };
    match before {
        Fit::Within(stages) if account == Account::Shown => to_first_token.extend(stages),
        _ => {
            let byte = sample.first_byte_ns.unwrap_or(first).clamp(sent, first.max(sent));
            to_first_token.push((Phase::Waiting, byte - sent));
            to_first_token.push((Phase::FirstByte, first.saturating_sub(byte)));
        }
    }
    match after {
        Fit::Within(stages) if account == Account::Shown => after_it.extend(stages),
        _ => {
            after_it.push((Phase::Streaming, last - first));
            after_it.push((Phase::Tail, end - last));
        }
    }
    to_first_token.retain(|(_, ns)| *ns > 0);
    after_it.retain(|(_, ns)| *ns > 0);
    Some(Breakdown { to_first_token, after_it, account })
}

enum Fit {
    None,
    /// The stages, and what is left of the time.
    Within(Vec<(Phase, u64)>),
    Over,
}

/// An account's stages in the order of the line, and what they leave of `total_ns`.
fn fitted(stages: &[(Stage, u64)], total_ns: u64) -> Fit {
    if stages.is_empty() {
        return Fit::None;
    }
    let claimed = stages.iter().fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
    // A millisecond of grace for accounts that round; the rest would then be negative, and is shown as none.
    if claimed > total_ns + 1_000_000 {
        return Fit::Over;
    }
    let mut sorted = stages.to_vec();
    sorted.sort_by_key(|(stage, _)| *stage);
    let mut phases: Vec<(Phase, u64)> =
        sorted.into_iter().map(|(stage, ns)| (Phase::Server(stage), ns)).collect();
    phases.push((Phase::Outside, total_ns.saturating_sub(claimed)));
    Fit::Within(phases)
}

/// A phase at its place in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub phase: Phase,
    pub from_ns: Ns,
    pub to_ns: Ns,
}

/// The most pauses of a call that are shown at their place; the longest.
pub const PAUSES_MAX: usize = 8;
/// A pause is this many times the call's median gap between chunks, or longer,
const PAUSE_TIMES: u64 = 4;
/// and at least this long.
const PAUSE_MIN_NS: u64 = 100_000_000;

/// A call as spans one after the other, for a lane of its own. Accounts give durations without their place: the stages
/// until the first token are laid down in the order of the line from the moment of sending, which is where they are
/// where a server goes through them once. What the server did later has no place, so the stream is shown as the client
/// saw it. `run_ns` is the end of calls that were still under way.
pub fn spans(sample: &Sample, run_ns: Ns) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut at = sample.intended_ns;
    let mut push = |phase, to_ns: Ns| {
        if to_ns > at {
            spans.push(Span { phase, from_ns: at, to_ns });
            at = to_ns;
        }
    };
    if let Some(parts) = breakdown(sample) {
        let mut to = sample.intended_ns;
        for (phase, ns) in parts.to_first_token {
            to += ns;
            push(phase, to);
        }
        let last = sample.chunks.last().map_or(to, |chunk| chunk.at_ns);
        for (from_ns, to_ns) in pauses(sample) {
            push(Phase::Streaming, from_ns);
            push(Phase::Pause, to_ns);
        }
        push(Phase::Streaming, last);
        push(Phase::Tail, sample.last_byte_ns.unwrap_or(last));
    } else if let Some(sent) = sample.sent_ns {
        push(Phase::Unsent, sent);
        push(Phase::Waiting, sample.first_byte_ns.or(sample.headers_ns).unwrap_or(sent));
        push(Phase::FirstByte, sample.last_byte_ns.unwrap_or(sent));
    }
    if sample.outcome == crate::sample::Outcome::InFlight {
        let phase = match (sample.sent_ns, sample.chunks.is_empty()) {
            (None, _) => Phase::Unsent,
            (Some(_), true) => Phase::Waiting,
            (Some(_), false) => Phase::Streaming,
        };
        push(phase, run_ns);
    }
    spans
}

/// The longest pauses of a stream, in order.
fn pauses(sample: &Sample) -> Vec<(Ns, Ns)> {
    let gap = |pair: &[crate::sample::Chunk]| pair[1].at_ns.saturating_sub(pair[0].at_ns);
    let mut gaps: Vec<u64> = sample.chunks.windows(2).map(gap).collect();
    if gaps.is_empty() {
        return Vec::new();
    }
    let middle = gaps.len() / 2;
    let threshold = (*gaps.select_nth_unstable(middle).1).saturating_mul(PAUSE_TIMES).max(PAUSE_MIN_NS);
    let mut long: Vec<(Ns, Ns)> = sample
        .chunks
        .windows(2)
        .filter(|pair| gap(pair) >= threshold)
        .map(|pair| (pair[0].at_ns, pair[1].at_ns))
        .collect();
    long.sort_by_key(|(from, to)| std::cmp::Reverse(to - from));
    long.truncate(PAUSES_MAX);
    long.sort_unstable();
    long
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tally::tests::{MS, sample};

    #[track_caller]
    fn check(sample: &Sample, to_first_token: &[(Phase, u64)], after_it: &[(Phase, u64)], account: Account) {
        let ms = |parts: &[(Phase, u64)]| -> Vec<(Phase, u64)> {
            parts.iter().map(|(phase, ns)| (*phase, ns / MS)).collect()
        };
        let parts = breakdown(sample).unwrap();
        assert_eq!(
            (ms(&parts.to_first_token), ms(&parts.after_it)),
            (to_first_token.into(), after_it.into())
        );
        assert_eq!(parts.account, account);
        let sum: u64 = parts.to_first_token.iter().chain(&parts.after_it).map(|(_, ns)| ns).sum();
        assert_eq!(sum, sample.last_byte_ns.unwrap() - sample.intended_ns, "phases sum to the whole");
    }

    #[test]
    fn an_opaque_server_shows_what_the_client_saw() {
        let call = sample(0, 100, &[140, 150, 160]); // sent 10 ms late, first byte 5 ms before the first token
        let before = [(Phase::Unsent, 10), (Phase::Waiting, 25), (Phase::FirstByte, 5)];
        check(&call, &before, &[(Phase::Streaming, 20), (Phase::Tail, 2)], Account::Absent);
    }

    #[test]
    fn an_account_is_shown_in_the_order_of_the_line_with_what_it_leaves_out() {
        let mut call = sample(0, 100, &[140, 150, 160]);
        call.server.to_first_token = vec![(Stage::Prefill, 12 * MS), (Stage::Queue, 14 * MS)];
        call.server.after_it = vec![(Stage::Decode, 15 * MS)];
        let before = [
            (Phase::Unsent, 10),
            (Phase::Server(Stage::Queue), 14),
            (Phase::Server(Stage::Prefill), 12),
            (Phase::Outside, 4),
        ];
        let after = [(Phase::Server(Stage::Decode), 15), (Phase::Outside, 7)];
        check(&call, &before, &after, Account::Shown);
    }

    #[test]
    fn an_account_that_claims_more_time_than_passed_is_not_used() {
        let mut call = sample(0, 100, &[140, 150, 160]);
        call.server.to_first_token = vec![(Stage::Prefill, 90 * MS)];
        let before = [(Phase::Unsent, 10), (Phase::Waiting, 25), (Phase::FirstByte, 5)];
        check(&call, &before, &[(Phase::Streaming, 20), (Phase::Tail, 2)], Account::Contradicts);
    }

    #[test]
    fn a_pause_stands_at_its_place_in_the_lane() {
        let call = sample(0, 100, &[140, 150, 160, 300, 310]);
        let found: Vec<(Phase, u64, u64)> = spans(&call, 0)
            .iter()
            .map(|span| (span.phase, span.from_ns / MS, span.to_ns / MS))
            .skip(3)
            .collect();
        let expected = [
            (Phase::Streaming, 140, 160),
            (Phase::Pause, 160, 300),
            (Phase::Streaming, 300, 310),
            (Phase::Tail, 310, 312),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_call_without_an_end_has_none_drawn_unless_the_run_ended_first() {
        let mut call = sample(0, 100, &[]);
        call.first_byte_ns = None;
        call.last_byte_ns = None;
        call.outcome = crate::sample::Outcome::TimedOut;
        assert_eq!(spans(&call, 900 * MS).len(), 1, "only what was seen: the time until it was sent");
        call.outcome = crate::sample::Outcome::InFlight;
        let last = *spans(&call, 900 * MS).last().unwrap();
        assert_eq!(last, Span { phase: Phase::Waiting, from_ns: 110 * MS, to_ns: 900 * MS });
    }
}
