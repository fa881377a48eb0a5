//! Calls, each handed over when its intended time has come, and made ahead of it: a long prompt takes a while to make, and
//! neither delays its own sending nor the stamps of others. A thread of its own sleeps for them: the runtime's timers are a
//! millisecond coarse, and what they are late would look like the server's.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::client::Clock;
use crate::sample::Ns;
use crate::schedule::{Arrivals, Call, CallId, Workload};

/// Ticks that wait to be taken; the thread waits behind them, and times stay as intended.
const AHEAD_MAX: usize = 64;
/// The longest sleep, so that the thread ends soon after nobody listens.
const NAP_MAX: Duration = Duration::from_millis(50);

/// The calls of `workload` at the times of `arrivals`, in nanoseconds since the run's start, each `lead` before it is due. Ends
/// behind the last of either.
pub(super) fn ticks(
    clock: Clock,
    arrivals: Arrivals,
    workload: Arc<dyn Workload>,
    lead: Duration,
) -> mpsc::Receiver<(Ns, Call)> {
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    let tick = move || {
        for (id, intended) in (0..).zip(arrivals) {
            let Some(call) = workload.call(CallId(id)) else { return };
            let intended = u64::try_from(intended.as_nanos()).unwrap_or(u64::MAX);
            let at = clock.instant(intended);
            loop {
                let left = at.saturating_duration_since(Instant::now() + lead);
                if left.is_zero() || sender.is_closed() {
                    break;
                }
                thread::sleep(left.min(NAP_MAX));
            }
            if sender.blocking_send((intended, call)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("arrivals".to_owned()).spawn(tick).expect("a thread can be started");
    receiver
}
