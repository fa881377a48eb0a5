//! Where sequences wait: the inbox that any thread may push into, and the engine's own queue behind it.
//!
//! **Invariant:** once arranged, the queue's order is the order of service, which [`fair`](crate::fair) decides.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use ledger::clock::Ns;
use protocol::Submission;

use crate::outputs::Outbox;
use crate::sequence::Sequence;

/// A submission on its way to the engine.
pub(crate) struct Arrival {
    pub submission: Submission,
    pub submitted: Ns,
    pub outbox: Outbox,
}

/// Hands arrivals to the engine's thread and wakes it. Its length is bounded by the gauge of waiting sequences.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<InboxState>,
    bell: Condvar,
}

/// The engine takes no more arrivals.
#[derive(Debug)]
pub(crate) struct Closed;

#[derive(Default)]
struct InboxState {
    arrivals: Vec<Arrival>,
    rung: bool,
    closed: bool,
}

impl Inbox {
    /// Adds an arrival, unless the engine takes none any more.
    pub fn push(&self, arrival: Arrival) -> Result<(), Closed> {
        let mut state = self.lock();
        if state.closed {
            return Err(Closed);
        }
        state.arrivals.push(arrival);
        self.wake(state);
        Ok(())
    }

    /// Wakes the engine: something other than an arrival has changed.
    pub fn ring(&self) {
        self.wake(self.lock());
    }

    /// Moves all arrivals into `taken`, which is empty.
    pub fn drain(&self, taken: &mut Vec<Arrival>) {
        let mut state = self.lock();
        state.rung = false;
        std::mem::swap(&mut state.arrivals, taken);
    }

    /// Sleeps until something has changed since the last [`Inbox::drain`].
    pub fn wait(&self) {
        let state = self.lock();
        drop(self.bell.wait_while(state, |state| !state.rung).unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes no more arrivals; what lies there stays for a last drain.
    pub fn close(&self) {
        self.lock().closed = true;
    }

    fn wake(&self, mut state: MutexGuard<'_, InboxState>) {
        state.rung = true;
        drop(state);
        self.bell.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, InboxState> {
        // Every change under this lock is one push, swap or store, so a poisoned state is a whole one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sequences that hold no blocks.
#[derive(Default)]
pub(crate) struct Queue {
    sequences: Vec<Sequence>,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Adds a sequence, at the end until the queue is arranged.
    pub fn push(&mut self, sequence: Sequence) {
        self.sequences.push(sequence);
    }

    /// Puts the sequences into the order of service: everyone's index, each once.
    pub fn arrange(&mut self, order: impl ExactSizeIterator<Item = usize> + Clone) {
        debug_assert_eq!(order.len(), self.sequences.len());
        if order.clone().enumerate().all(|(place, index)| place == index) {
            return;
        }
        let mut taken: Vec<Option<Sequence>> = self.sequences.drain(..).map(Some).collect();
        let arranged = order.map(|index| taken[index].take().expect("everyone is named once"));
        self.sequences.extend(arranged);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.sequences.iter()
    }

    /// In the order of service.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Sequence> {
        self.sequences.iter_mut()
    }

    /// Takes out what `wanted` says yes to, in the order of service; it is asked once for each.
    pub fn take(&mut self, mut wanted: impl FnMut(&Sequence) -> bool) -> Vec<Sequence> {
        self.sequences.extract_if(.., |sequence| wanted(sequence)).collect()
    }
}
