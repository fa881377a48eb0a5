//! The accepted socket, with a clock on it: when each request's first byte came in, and when each answer's bytes went
//! out.
//!
//! hyper takes frames from a response's body, writes them all, and flushes. [`Stamped`] sits beneath and sees the reads
//! and the flushes; the [`ConnectionClock`] puts the two sides together.
//!
//! **Closing is cancelling.** A client that closes its socket sends FIN. That looks like a client that only finished
//! sending, but no HTTP client in use half-closes and waits; so a FIN in the middle of an exchange ends it at once, as
//! a reset or a failing write does. The requests that come next on a kept-alive connection are not affected.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use ledger::clock::{Ns, now_ns};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::errors::Fault;
use crate::frames::Deliveries;
use crate::head_scan::HeadScan;
use crate::server::HeadLimits;

/// What a connection knows of the exchange it is in.
#[derive(Default)]
pub struct ConnectionClock {
    state: Mutex<State>,
    changed: Notify,
    closed: Notify,
}

#[derive(Default)]
struct State {
    reading: Reading,
    /// The exchange whose answer is not wholly with the socket yet.
    answering: bool,
    /// Its body has been taken (or dropped): the next flush ends the answer.
    body_taken: bool,
    deliveries: Option<Arc<Deliveries>>,
    eof: bool,
    closed: bool,
}

/// Where in the byte stream the next read falls.
#[derive(Default)]
enum Reading {
    /// Before a request.
    #[default]
    Between,
    /// In a request's head, whose first byte came at `since`.
    Head { since: Ns, deadline_from: Instant, scan: HeadScan },
    /// In a request's body.
    Body,
}

/// A request's head has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadArrived {
    /// Its first byte. A request that came along with the end of the one before it begins when the line turns to it.
    pub first_byte: Ns,
    /// It names its length twice.
    pub two_lengths: bool,
}

impl ConnectionClock {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, bytes: &[u8]) {
        let mut state = self.lock();
        match &mut state.reading {
            Reading::Head { scan, .. } => scan.feed(bytes),
            Reading::Body => {}
            Reading::Between => {
                let mut scan = HeadScan::default();
                scan.feed(bytes);
                state.reading = Reading::Head { since: now_ns(), deadline_from: Instant::now(), scan };
                self.changed.notify_one();
            }
        }
    }

    /// An exchange begins.
    pub(crate) fn begin(&self) -> HeadArrived {
        let mut state = self.lock();
        state.answering = true;
        state.body_taken = false;
        match std::mem::replace(&mut state.reading, Reading::Body) {
            Reading::Head { since, scan, .. } => {
                HeadArrived { first_byte: since, two_lengths: scan.names_length_twice() }
            }
            _ => HeadArrived { first_byte: now_ns(), two_lengths: false },
        }
    }

    /// The request's body has been read, or will not be: what comes next is another request.
    pub(crate) fn body_read(&self) {
        let mut state = self.lock();
        if matches!(state.reading, Reading::Body) {
            state.reading = Reading::Between;
        }
    }

    /// Whether the request's body has been read.
    pub(crate) fn body_is_read(&self) -> bool {
        !matches!(self.lock().reading, Reading::Body)
    }

    /// The answer that flushes deliver from now on.
    pub(crate) fn writing(&self, deliveries: Option<Arc<Deliveries>>) {
        self.lock().deliveries = deliveries;
    }

    /// The connection has taken the whole of the answer's body, or dropped it.
    pub(crate) fn body_taken(&self) {
        self.lock().body_taken = true;
    }

    fn flushed(&self) {
        let mut state = self.lock();
        if state.deliveries.as_ref().is_some_and(|deliveries| deliveries.flushed(now_ns())) {
            state.deliveries = None;
        }
        if state.answering && state.body_taken {
            state.answering = false;
            if let Reading::Head { deadline_from, .. } = &mut state.reading {
                *deadline_from = Instant::now();
                self.changed.notify_one();
            }
        }
    }

    /// What hyper wants to say by itself, where no exchange is under way: its own answer to a head it cannot take, with
    /// an empty body. Gives ours instead.
    fn own_words(&self, canned: &[u8], limits: &HeadLimits) -> Option<Fault> {
        let state = self.lock();
        if state.answering {
            return None;
        }
        let request_line_bytes = match &state.reading {
            Reading::Head { scan, .. } => scan.request_line_bytes(),
            _ => 0,
        };
        match canned.strip_prefix(b"HTTP/1.1 ")?.get(..3)? {
            b"414" => Some(Fault::PathTooLong { limit: limits.path_bytes_max }),
            b"431" if request_line_bytes > limits.path_bytes_max => {
                Some(Fault::PathTooLong { limit: limits.path_bytes_max })
            }
            b"431" => Some(Fault::HeadTooLarge { bytes: limits.head_bytes_max, headers: limits.headers_max }),
            b"400" => Some(Fault::BadHead),
            _ => None,
        }
    }

    /// Resolves when a request's head has been on its way for longer than `limit`.
    pub(crate) async fn head_stalls(&self, limit: Duration) {
        loop {
            let changed = self.changed.notified();
            let deadline = {
                let state = self.lock();
                match &state.reading {
                    Reading::Head { deadline_from, .. } if !state.answering => Some(*deadline_from + limit),
                    _ => None,
                }
            };
            match deadline {
                Some(deadline) if deadline <= Instant::now() => return,
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => changed.await,
            }
        }
    }

    /// Whether the client has closed its side, or broken off.
    pub(crate) fn at_eof(&self) -> bool {
        self.lock().eof
    }

    /// Resolves when the connection is gone: for work that has no body to be told by.
    pub async fn gone(&self) {
        loop {
            let closed = self.closed.notified();
            tokio::pin!(closed);
            closed.as_mut().enable();
            if self.lock().closed {
                return;
            }
            closed.await;
        }
    }

    /// The connection is over.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        if let Some(deliveries) = state.deliveries.take() {
            deliveries.connection_closed();
        }
        self.closed.notify_waiters();
    }
}

/// A socket whose reads and flushes are stamped. Dropping it closes its clock.
pub struct Stamped<IO> {
    io: IO,
    clock: Arc<ConnectionClock>,
    limits: HeadLimits,
    /// Our words in place of hyper's, on their way out.
    own_words: Bytes,
}

impl<IO> Stamped<IO> {
    /// Wraps an accepted socket.
    pub fn new(io: IO, clock: Arc<ConnectionClock>, limits: HeadLimits) -> Self {
        Stamped { io, clock, limits, own_words: Bytes::new() }
    }
}

impl<IO> Drop for Stamped<IO> {
    fn drop(&mut self) {
        self.clock.close();
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Stamped<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.io).poll_read(context, buffer));
        let new = &buffer.filled()[before..];
        if new.is_empty() {
            self.clock.lock().eof = true;
        } else {
            self.clock.read(new);
        }
        Poll::Ready(result)
    }
}

impl<IO: AsyncWrite + Unpin> Stamped<IO> {
    fn poll_own_words(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.own_words.has_remaining() {
            let written = ready!(Pin::new(&mut self.io).poll_write(context, &self.own_words))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.own_words.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Stamped<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_own_words(context))?;
        if let Some(fault) = self.clock.own_words(bytes, &self.limits) {
            self.own_words = fault.raw().into();
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // hyper's own answer is a head without a body: one slice.
        match slices {
            [only] => self.poll_write(context, only),
            _ => Pin::new(&mut self.io).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// hyper flushes when it has written everything it took: what was taken is delivered.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own_words(context))?;
        ready!(Pin::new(&mut self.io).poll_flush(context))?;
        self.clock.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own_words(context))?;
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::frames;
    use crate::server::Config;

    /// The rule that deliveries rest on: hyper flushes its socket only when it has written everything that it took. Over
    /// a pipe of 64 bytes, no frame of 1,000 may count as delivered while more than 64 of its bytes are unread.
    #[tokio::test]
    async fn nothing_is_delivered_before_the_socket_has_all_of_it() {
        const FRAME: usize = 1000;
        const PIPE: usize = 64;
        let (mut client, socket) = tokio::io::duplex(PIPE);
        let clock = Arc::new(ConnectionClock::default());
        let io = TokioIo::new(Stamped::new(socket, Arc::clone(&clock), Config::default().head));
        let (frames, body) = frames::stream(Duration::from_secs(60));
        let body = Mutex::new(Some(body));
        let service = service_fn(move |_: Request<hyper::body::Incoming>| {
            clock.begin();
            let mut body = body.lock().unwrap().take().unwrap();
            body.attach(Arc::clone(&clock));
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(io, service));
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        for _ in 0..3 {
            frames.send(Bytes::from(vec![b'x'; FRAME])).await.unwrap();
        }

        let mut delivered = 0;
        let mut read = 0;
        let mut scratch = [0; 10];
        while delivered < 3 {
            tokio::select! {
                biased;
                delivery = frames.delivered() => delivered = delivery.unwrap().through as usize,
                count = client.read(&mut scratch) => read += scratch[..count.unwrap()].iter().filter(|byte| **byte == b'x').count(),
            }
            assert!(
                read + PIPE >= delivered * FRAME,
                "{delivered} delivered, but only {read} bytes were read"
            );
        }
        assert!(read > 2 * FRAME, "the frames were too large for the pipe");
    }
}
