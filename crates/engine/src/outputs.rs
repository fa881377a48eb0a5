//! A sequence's outbox: the engine's end and the receiver's end, and the ticket they share.
//!
//! **Invariant:** the engine never waits here. A full outbox pauses the sequence; a dropped receiver cancels it. One
//! place in the channel is kept free of tokens, so that the last word (`Failed`, `Cancelled`) always fits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use std::task::{Context, Poll, ready};

use ledger::{Stage, Timeline};
use protocol::{Output, Refusal};
use tokio::sync::mpsc;

use crate::handle::Shared;

/// Where a sequence counts: the gauges follow this at once, even while a step runs.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Waiting,
    Running,
    Gone,
}

/// What both ends know of a sequence.
struct Ticket {
    place: AtomicU8,
    /// Of its prompt.
    tokens: usize,
    cancelled: AtomicBool,
    /// The engine found the outbox full: tell it when there is room again.
    wants_room: AtomicBool,
}

impl Ticket {
    /// Moves the sequence from one place to another; false if it is not where it was thought to be.
    fn change(&self, from: Place, to: Place, shared: &Shared) -> bool {
        let changed =
            self.place.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if changed {
            let gauges = &shared.gauges;
            match from {
                Place::Waiting => {
                    gauges.waiting_tokens.fetch_sub(self.tokens, Ordering::Relaxed);
                    gauges.waiting.fetch_sub(1, Ordering::Relaxed)
                }
                Place::Running => gauges.running.fetch_sub(1, Ordering::Relaxed),
                Place::Gone => 0,
            };
            match to {
                Place::Waiting => {
                    gauges.waiting_tokens.fetch_add(self.tokens, Ordering::Relaxed);
                    gauges.waiting.fetch_add(1, Ordering::Relaxed)
                }
                Place::Running => gauges.running.fetch_add(1, Ordering::Relaxed),
                Place::Gone => 0,
            };
        }
        changed
    }

    /// Takes the sequence off the gauges, wherever it is.
    fn leave(&self, shared: &Shared) {
        // The engine may move it in between, but only once before it looks at the cancellation again.
        while self.place.load(Ordering::Acquire) != Place::Gone as u8 {
            if self.change(Place::Waiting, Place::Gone, shared)
                || self.change(Place::Running, Place::Gone, shared)
            {
                return;
            }
        }
    }
}

/// The bound that keeps a sequence out of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// So many sequences wait.
    Sequences(usize),
    /// So many prompt tokens wait.
    Tokens(usize),
}

/// Makes the two ends for one sequence with a prompt of `tokens` tokens that begins to wait, unless the queue is full.
pub(crate) fn open(shared: &Arc<Shared>, tokens: usize) -> Result<(Outbox, Outputs), Full> {
    let (limits, gauges) = (&shared.limits, &shared.gauges);
    let one_more = |waiting: usize| (waiting < limits.queue_max).then_some(waiting + 1);
    let some_more = |waiting: usize| {
        (waiting == 0 || waiting + tokens <= limits.queue_tokens_max).then_some(waiting + tokens)
    };
    gauges.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).map_err(Full::Sequences)?;
    if let Err(waiting) = gauges.waiting_tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, some_more)
    {
        gauges.waiting.fetch_sub(1, Ordering::Relaxed);
        return Err(Full::Tokens(waiting));
    }
    let ticket = Arc::new(Ticket {
        place: AtomicU8::new(Place::Waiting as u8),
        tokens,
        cancelled: AtomicBool::new(false),
        wants_room: AtomicBool::new(false),
    });
    let (sender, receiver) = mpsc::channel(limits.outbox_max + LAST_WORD);
    let outbox = Outbox { sender, ticket: ticket.clone(), shared: shared.clone() };
    Ok((outbox, Outputs { receiver, ticket, shared: shared.clone() }))
}

/// Places of the channel that tokens do not use.
const LAST_WORD: usize = 1;

/// The engine's end.
pub(crate) struct Outbox {
    sender: mpsc::Sender<Output>,
    ticket: Arc<Ticket>,
    shared: Arc<Shared>,
}

/// The receiver does not exist any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl Outbox {
    /// Whether no further token fits. If so, the receiver will ring when it has taken one.
    pub fn is_full(&self) -> bool {
        if self.sender.capacity() > LAST_WORD {
            return false;
        }
        self.ticket.wants_room.store(true, Ordering::Relaxed);
        // The receiver takes a token, then looks at the flag; we set the flag, then look again: one of us sees the other.
        fence(Ordering::SeqCst);
        self.sender.capacity() <= LAST_WORD
    }

    pub fn is_cancelled(&self) -> bool {
        self.ticket.cancelled.load(Ordering::Acquire)
    }

    /// The sequence gets blocks; false if it has been cancelled meanwhile.
    pub fn starts_running(&self) -> bool {
        self.ticket.change(Place::Waiting, Place::Running, &self.shared)
    }

    /// The sequence lost its blocks; false if it has been cancelled meanwhile.
    pub fn starts_waiting(&self) -> bool {
        self.ticket.change(Place::Running, Place::Waiting, &self.shared)
    }

    /// Hands out a token.
    pub fn send(&self, output: Output) -> Result<(), Gone> {
        self.sender.try_send(output).map_err(|error| {
            debug_assert!(
                matches!(error, mpsc::error::TrySendError::Closed(_)),
                "a sequence whose outbox is full is not stepped"
            );
            Gone
        })
    }

    /// The sequence holds nothing any more: off the gauges before the last word is out, so that whoever has heard the last
    /// word does not find it still counted.
    pub fn leave(&self) {
        self.ticket.leave(&self.shared);
    }

    /// Says why there will be no further token. A receiver that is gone has nobody to tell.
    pub fn fail(&self, refusal: Refusal, timeline: Timeline) {
        self.leave();
        let _ = self.send(Output::Failed { refusal, timeline: self.returning(timeline) });
    }

    /// Confirms a cancellation, to a receiver that still listens.
    pub fn confirm_cancel(&self, timeline: Timeline) {
        self.leave();
        let _ = self.send(Output::Cancelled { timeline: self.returning(timeline) });
    }

    fn returning(&self, mut timeline: Timeline) -> Timeline {
        timeline.enter(Stage::Return, self.shared.now());
        timeline
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The receiver's end: outputs in order, ending after a token that carries a finish, or after `Failed` or `Cancelled`.
/// An end without any of these means that the engine broke down or is gone.
///
/// Dropping it cancels the sequence within one step.
pub struct Outputs {
    receiver: mpsc::Receiver<Output>,
    ticket: Arc<Ticket>,
    shared: Arc<Shared>,
}

impl Outputs {
    /// The next output; `None` after the last one.
    pub async fn recv(&mut self) -> Option<Output> {
        std::future::poll_fn(|context| self.poll_recv(context)).await
    }

    /// Polls for the next output.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Output>> {
        let output = ready!(self.receiver.poll_recv(context));
        self.made_room();
        Poll::Ready(output)
    }

    /// The next output, waited for on this thread; not for use inside a runtime.
    pub fn blocking_recv(&mut self) -> Option<Output> {
        let output = self.receiver.blocking_recv();
        self.made_room();
        output
    }

    /// The next output if there is one now.
    pub fn try_recv(&mut self) -> Option<Output> {
        let output = self.receiver.try_recv().ok();
        self.made_room();
        output
    }

    /// Ends the sequence within one step; what it had handed out can still be received, then `Cancelled`.
    pub fn cancel(&mut self) {
        self.ticket.cancelled.store(true, Ordering::Release);
        self.ticket.leave(&self.shared);
        self.shared.inbox.ring();
    }

    fn made_room(&self) {
        fence(Ordering::SeqCst);
        if self.ticket.wants_room.swap(false, Ordering::Relaxed) {
            self.shared.inbox.ring();
        }
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        self.cancel();
    }
}
