//! The answer's way to the socket, and the news of its arrival there.
//!
//! A request's life cycle [sends](Frames::send) frames into a bounded channel. The connection takes them out one by one
//! as a [`FrameBody`]; when its buffers have been flushed, everything taken so far is *delivered*, and the life cycle
//! learns when.
//!
//! **Invariant:** at most [`CAPACITY`] frames wait here, and about as many in the connection's write buffer. A client
//! that does not read stops its sender, and nothing grows.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use ledger::clock::Ns;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, Sleep};

use crate::connection::ConnectionClock;
use crate::sse;

/// Frames that may wait for the connection.
pub const CAPACITY: usize = 32;

/// The client is gone, or never got the whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client is gone")]
pub struct Gone;

/// The first `through` frames were handed to the socket at `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub through: u64,
    pub at: Ns,
}

/// The sending half.
pub struct Frames {
    sender: Option<mpsc::Sender<Piece>>,
    sent: AtomicU64,
    deliveries: Arc<Deliveries>,
}

struct Piece {
    bytes: Bytes,
    last: bool,
}

/// A streamed answer. A comment is sent whenever `keepalive` passes without a frame.
pub fn stream(keepalive: Duration) -> (Frames, FrameBody) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let deliveries = Arc::new(Deliveries::default());
    let frames =
        Frames { sender: Some(sender), sent: AtomicU64::new(0), deliveries: Arc::clone(&deliveries) };
    let keepalive = Keepalive { interval: keepalive, quiet_since: Instant::now(), sleep: None };
    (
        frames,
        FrameBody {
            source: Source::Stream { receiver, keepalive },
            deliveries: Some(deliveries),
            clock: None,
        },
    )
}

/// An answer that is sent in one piece, as frame 1.
pub fn whole(bytes: impl Into<Bytes>) -> (Frames, FrameBody) {
    let deliveries = Arc::new(Deliveries::default());
    let frames = Frames { sender: None, sent: AtomicU64::new(1), deliveries: Arc::clone(&deliveries) };
    (
        frames,
        FrameBody { source: Source::Whole(Some(bytes.into())), deliveries: Some(deliveries), clock: None },
    )
}

impl Frames {
    /// Sends a frame as soon as there is room; gives its number, from 1.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn send(&self, bytes: Bytes) -> Result<u64, Gone> {
        self.push(bytes, false).await
    }

    /// Sends the frame that ends the stream.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn finish(&self, bytes: Bytes) -> Result<u64, Gone> {
        self.push(bytes, true).await
    }

    async fn push(&self, bytes: Bytes, last: bool) -> Result<u64, Gone> {
        let sender = self.sender.as_ref().ok_or(Gone)?;
        let permit = sender.reserve().await.map_err(|_| Gone)?;
        // Numbered once there is room, so that a send that was given up takes no number.
        let number = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
        permit.send(Piece { bytes, last });
        Ok(number)
    }

    /// The next delivery. Safe to drop and call again.
    ///
    /// # Errors
    /// No further delivery will come: the client is gone, or has everything.
    pub async fn delivered(&self) -> Result<Delivery, Gone> {
        loop {
            let changed = self.deliveries.changed.notified();
            {
                let mut state = self.deliveries.lock();
                if let Some(delivery) = state.queue.pop_front() {
                    return Ok(delivery);
                }
                if state.ended {
                    return Err(Gone);
                }
            }
            changed.await;
        }
    }
}

/// What the connection says of a body.
#[derive(Default)]
pub(crate) struct Deliveries {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Frames that the connection has taken.
    taken: u64,
    /// Frames known to be flushed.
    flushed: u64,
    /// The last frame was taken.
    complete: bool,
    /// Nothing more will be flushed.
    ended: bool,
    /// News not read yet. Each entry stands for at least one frame, so the channel's bound is its bound.
    queue: VecDeque<Delivery>,
}

impl Deliveries {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, last: bool) {
        let mut state = self.lock();
        state.taken += 1;
        state.complete |= last;
    }

    /// Everything taken so far is with the socket. Says whether there is nothing more to come.
    pub(crate) fn flushed(&self, now: Ns) -> bool {
        let mut state = self.lock();
        if state.taken > state.flushed {
            state.flushed = state.taken;
            let through = state.taken;
            state.queue.push_back(Delivery { through, at: now });
            state.ended |= state.complete;
            self.changed.notify_one();
        }
        state.complete
    }

    /// The connection has no more use for the body. Unless its last frame was taken and only waits to be flushed, this
    /// is the end.
    fn body_dropped(&self) {
        let mut state = self.lock();
        if !state.complete {
            state.ended = true;
            self.changed.notify_one();
        }
    }

    /// The connection is gone.
    pub(crate) fn connection_closed(&self) {
        self.lock().ended = true;
        self.changed.notify_one();
    }
}

/// A response's body.
pub struct FrameBody {
    source: Source,
    deliveries: Option<Arc<Deliveries>>,
    clock: Option<Arc<ConnectionClock>>,
}

enum Source {
    Whole(Option<Bytes>),
    Stream { receiver: mpsc::Receiver<Piece>, keepalive: Keepalive },
    Done,
}

struct Keepalive {
    interval: Duration,
    quiet_since: Instant,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// The sender was dropped in the middle of a stream. The connection is cut, since an orderly end would pass a broken
/// answer off as a whole one.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer broke off")]
pub struct BrokeOff;

impl FrameBody {
    /// A body that nobody waits to see delivered.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        FrameBody { source: Source::Whole(Some(bytes.into())), deliveries: None, clock: None }
    }

    /// From now on the connection's flushes deliver this body's frames.
    pub(crate) fn attach(&mut self, clock: Arc<ConnectionClock>) {
        clock.writing(self.deliveries.clone());
        self.clock = Some(clock);
    }

    fn taken(&mut self, last: bool) {
        if last {
            self.source = Source::Done;
        }
        if let Some(deliveries) = &self.deliveries {
            deliveries.take(last);
        }
    }
}

impl Body for FrameBody {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        let (bytes, last) = match &mut self.source {
            Source::Done => return Poll::Ready(None),
            Source::Whole(bytes) => (bytes.take().unwrap_or_default(), true),
            Source::Stream { receiver, keepalive } => match receiver.poll_recv(context) {
                Poll::Ready(Some(piece)) => {
                    keepalive.quiet_since = Instant::now();
                    (piece.bytes, piece.last)
                }
                Poll::Ready(None) => return Poll::Ready(Some(Err(BrokeOff))),
                Poll::Pending if keepalive.is_due(context) => {
                    return Poll::Ready(Some(Ok(Frame::data(sse::KEEPALIVE))));
                }
                Poll::Pending => return Poll::Pending,
            },
        };
        self.taken(last);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.source, Source::Done)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Source::Whole(None) | Source::Done => SizeHint::with_exact(0),
            Source::Stream { .. } => SizeHint::default(),
        }
    }
}

impl Drop for FrameBody {
    fn drop(&mut self) {
        if let Some(deliveries) = &self.deliveries {
            deliveries.body_dropped();
        }
        if let Some(clock) = &self.clock {
            clock.body_taken();
        }
    }
}

impl Keepalive {
    /// Whether the stream has been quiet for an interval; begins the next one then. The timer is only moved when it
    /// fires, so a lively stream pays nothing for it.
    fn is_due(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            let due = self.quiet_since + self.interval;
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if sleep.as_mut().poll(context).is_pending() {
                return false;
            }
            let now = Instant::now();
            if due <= now {
                self.quiet_since = now;
            }
            sleep.as_mut().reset(self.quiet_since + self.interval);
            if due <= now {
                return true;
            }
        }
    }
}
