//! Going down in an orderly way.
//!
//! **Invariant:** phases only move forward.

use std::sync::Arc;

use tokio::sync::watch;

/// How far a shutdown has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// None under way.
    Serving,
    /// What runs is finished; what comes is sent away.
    Draining,
    /// What still runs is ended, each with an error of its own.
    Ending,
}

/// A handle on the server's shutdown; clones share it.
#[derive(Clone, Debug)]
pub struct Drain {
    phase: Arc<watch::Sender<Phase>>,
}

impl Default for Drain {
    fn default() -> Self {
        Drain { phase: Arc::new(watch::Sender::new(Phase::Serving)) }
    }
}

impl Drain {
    /// Moves on to `phase`; a phase already passed changes nothing.
    pub fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|current| {
            let further = phase > *current;
            *current = phase.max(*current);
            further
        });
    }

    /// The phase it is in.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Resolves once `phase` has been reached.
    pub async fn reached(&self, phase: Phase) {
        let mut receiver = self.phase.subscribe();
        // The sender lives as long as this handle, so waiting cannot fail.
        let _ = receiver.wait_for(|current| *current >= phase).await;
    }
}
