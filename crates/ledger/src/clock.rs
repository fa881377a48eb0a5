//! The one clock: monotonic nanoseconds since the process first asked, and the wall-clock time of that moment.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A moment in this process, in nanoseconds since its anchor. Meaningless in any other process.
pub type Ns = u64;

struct Anchor {
    instant: Instant,
    unix_ns: u64,
}

fn anchor() -> &'static Anchor {
    static ANCHOR: OnceLock<Anchor> = OnceLock::new();
    ANCHOR.get_or_init(|| Anchor {
        instant: Instant::now(),
        unix_ns: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64),
    })
}

/// Monotonic nanoseconds since the process's anchor.
pub fn now_ns() -> Ns {
    if cfg!(feature = "off") {
        return 0;
    }
    anchor().instant.elapsed().as_nanos() as Ns
}

/// The wall-clock time of `moment`, in nanoseconds since the Unix epoch: for display, never for arithmetic.
pub fn unix_ns(moment: Ns) -> u64 {
    anchor().unix_ns + moment
}
