//! Intended times, each told when it has come. A thread of its own sleeps for them: the runtime's timers are a
//! millisecond coarse, and what they are late would look like the server's.

use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::client::Clock;
use crate::sample::Ns;
use crate::schedule::Arrivals;

/// Ticks that wait to be taken; the thread waits behind them, and times stay as intended.
const AHEAD_MAX: usize = 1024;
/// The longest sleep, so that the thread ends soon after nobody listens.
const NAP_MAX: Duration = Duration::from_millis(50);

/// The times of `arrivals`, in nanoseconds since the run's start, as they come. Ends behind the last one.
pub(super) fn ticks(clock: Clock, arrivals: Arrivals) -> mpsc::Receiver<Ns> {
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    let tick = move || {
        for intended in arrivals {
            let intended = u64::try_from(intended.as_nanos()).unwrap_or(u64::MAX);
            let at = clock.instant(intended);
            loop {
                let left = at.saturating_duration_since(Instant::now());
                if left.is_zero() || sender.is_closed() {
                    break;
                }
                thread::sleep(left.min(NAP_MAX));
            }
            if sender.blocking_send(intended).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("arrivals".to_owned()).spawn(tick).expect("a thread can be started");
    receiver
}
