//! From a run's snapshots to the live view's, with rates over the last seconds.

use std::collections::VecDeque;
use std::time::Duration;

use load::collect::Figures;
use load::report::live::{self, Live};
use load::run::Progress;
use tokio::sync::watch;

/// Rates are over this long.
const LATELY: Duration = Duration::from_secs(3);

/// Shows every snapshot until there are no more.
pub async fn show(mut watched: watch::Receiver<Progress>, title: String, mut live: Live) {
    let mut earlier: VecDeque<Progress> = VecDeque::from([Progress::default()]);
    while watched.changed().await.is_ok() {
        let now = watched.borrow_and_update().clone();
        while earlier.len() > 1 && earlier[1].elapsed + LATELY < now.elapsed {
            earlier.pop_front();
        }
        live.show(&view(&earlier[0], &now, &title));
        earlier.push_back(now);
    }
}

fn view(then: &Progress, now: &Progress, title: &str) -> live::Progress {
    let seconds = now.elapsed.saturating_sub(then.elapsed).as_secs_f64().max(1e-9);
    let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
    let ms = |figures: &Figures| {
        (figures.count > 0)
            .then(|| [figures.p50_ns, figures.p95_ns, figures.p99_ns].map(|ns| ns as f64 / 1e6))
    };
    live::Progress {
        title: title.to_owned(),
        elapsed: now.elapsed,
        planned: now.duration,
        planned_calls: now.planned,
        sent: now.sent,
        done: now.done.saturating_sub(now.failed),
        failed: now.failed,
        in_flight: now.sent.saturating_sub(now.done),
        sent_per_s: rate(now.sent, then.sent),
        output_tokens_per_s: rate(now.output_tokens, then.output_tokens),
        ttft_ms: ms(&now.ttft),
        itl_ms: ms(&now.itl),
        lag_p99_ms: now.lag_p99_ns as f64 / 1e6,
        last_error: now.last_error.clone(),
    }
}
