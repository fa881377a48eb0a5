//! The accept loop, and each connection's life.
//!
//! **Invariant:** connections, heads, bodies, and the time each may take are bounded, and a shutdown ends.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::connection::{ConnectionClock, Stamped};
use crate::drain::{Drain, Phase};
use crate::errors::Fault;
use crate::exchange::{Exchange, Pace};
use crate::frames::FrameBody;

/// Bounds on a request's head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Request line and headers together.
    pub head_bytes_max: usize,
    pub headers_max: usize,
    pub path_bytes_max: usize,
}

/// Bounds on connections.
#[derive(Clone, Debug)]
pub struct Config {
    pub head: HeadLimits,
    pub connections_max: usize,
    /// From a head's first byte to its last.
    pub head_timeout: Duration,
    /// A connection without a request is closed after this long.
    pub idle_timeout: Duration,
    pub pace: Pace,
    /// From the beginning of a shutdown until what still runs is ended.
    pub drain_limit: Duration,
    /// How long a closed connection is still read from, so that what the client sends meanwhile does not make its
    /// kernel throw our answer away.
    pub linger: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            head: HeadLimits { head_bytes_max: 32 << 10, headers_max: 100, path_bytes_max: 8 << 10 },
            connections_max: 1024,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            pace: Pace::default(),
            drain_limit: Duration::from_secs(30),
            linger: Duration::from_secs(2),
        }
    }
}

/// A handler's answer to come.
pub type Answering = Pin<Box<dyn Future<Output = Response<FrameBody>> + Send>>;

/// Whatever answers requests. Its future is dropped when the client is gone.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn handle(self: Arc<Self>, exchange: Exchange) -> Answering;
}

/// Serves until `drain` is advanced to [`Phase::Draining`] and what runs then has ended, of itself or at the limit.
///
/// During the drain connections are still accepted, so that newcomers are told to go elsewhere instead of being refused
/// by the kernel; the handler sees the phase and answers so.
pub async fn run(listener: TcpListener, handler: Arc<dyn Handler>, config: Config, drain: Drain) {
    /// What is ended gets this long to say so on the wire.
    const LAST_WORDS: Duration = Duration::from_secs(1);
    let permits = Arc::new(Semaphore::new(config.connections_max));
    let config = Arc::new(config);
    let mut connections = JoinSet::new();
    let mut cut_at: Option<Instant> = None;
    loop {
        let phase = drain.phase();
        if phase > Phase::Serving && connections.is_empty() {
            return;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => match Arc::clone(&permits).try_acquire_owned() {
                    Ok(permit) => {
                        let connection = Connection {
                            peer, handler: Arc::clone(&handler), config: Arc::clone(&config), drain: drain.clone(),
                        };
                        connections.spawn(async move {
                            connection.serve(stream).await;
                            drop(permit);
                        });
                    }
                    Err(_) if connections.len() < 2 * config.connections_max => {
                        connections.spawn(refuse(stream, Arc::clone(&config)));
                    }
                    Err(_) => drop(stream),
                },
                // Out of file descriptors, most likely: some connection has to end first.
                Err(_) => sleep(Duration::from_millis(50)).await,
            },
            // A panic in a handler ends its connection and nothing else.
            Some(_) = connections.join_next() => {}
            () = drain.reached(Phase::Draining), if cut_at.is_none() => {
                cut_at = Some(Instant::now() + config.drain_limit);
            }
            () = sleep_until(cut_at.unwrap_or_else(Instant::now)), if cut_at.is_some() && phase < Phase::Ending => {
                drain.advance(Phase::Ending);
            }
            () = drain.reached(Phase::Ending) => {
                let all_ended = async { while connections.join_next().await.is_some() {} };
                let _ = timeout(LAST_WORDS, all_ended).await;
                return;
            }
        }
    }
}

/// One more than there may be: told so, and closed.
async fn refuse(mut stream: TcpStream, config: Arc<Config>) {
    let _ = stream.write_all(Fault::TooManyConnections.raw().as_bytes()).await;
    linger(stream, config.linger).await;
}

struct Connection {
    peer: SocketAddr,
    handler: Arc<dyn Handler>,
    config: Arc<Config>,
    drain: Drain,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        // Every frame is a packet of its own; waiting for more to fill it would delay tokens.
        let _ = stream.set_nodelay(true);
        let clock = Arc::new(ConnectionClock::default());
        let config = Arc::clone(&self.config);
        let io = TokioIo::new(Stamped::new(stream, Arc::clone(&clock), config.head));
        let mut draining = self.drain.phase() > Phase::Serving;
        let drain = self.drain.clone();
        let service = service_fn({
            let clock = Arc::clone(&clock);
            move |request| self.answer(request, Arc::clone(&clock))
        });
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(config.idle_timeout)
            .max_headers(config.head.headers_max)
            .max_header_size(config.head.head_bytes_max)
            .max_buf_size(config.head.head_bytes_max + (16 << 10))
            .keep_alive(!draining)
            .serve_connection(io, service);
        let stalled = loop {
            tokio::select! {
                _ = &mut connection => break false,
                () = clock.head_stalls(config.head_timeout) => break true,
                () = drain.reached(Phase::Draining), if !draining => {
                    draining = true;
                    Pin::new(&mut connection).graceful_shutdown();
                }
            }
        };
        clock.close();
        let mut stream = connection.into_parts().io.into_inner();
        if stalled {
            let _ = stream.write_all(Fault::HeadTooSlow(config.head_timeout).raw().as_bytes()).await;
        }
        if !clock.at_eof() {
            linger(stream, config.linger).await;
        }
    }

    fn answer(
        &self,
        request: Request<Incoming>,
        clock: Arc<ConnectionClock>,
    ) -> impl Future<Output = Result<Response<FrameBody>, Infallible>> + use<> {
        let exchange = Exchange::begin(request, Arc::clone(&clock), self.peer, self.config.pace);
        let checked = exchange.check(&self.config.head);
        let handler = Arc::clone(&self.handler);
        async move {
            let unread = !exchange.is_read();
            let mut response = match checked {
                Ok(()) => handler.handle(exchange).await,
                Err(fault) => fault.response(),
            };
            if unread && !clock.body_is_read() {
                // The rest of the body would have to be told from the next request; a new connection is simpler.
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            clock.body_read();
            response.body_mut().attach(clock);
            Ok(response)
        }
    }
}

/// Closes our side, then reads what the client still sends until it closes too.
async fn linger(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, limit: Duration) {
    let _ = stream.shutdown().await;
    let until_eof = async {
        let mut scratch = vec![0; 16 << 10];
        while matches!(stream.read(&mut scratch).await, Ok(count) if count > 0) {}
    };
    let _ = timeout(limit, until_eof).await;
}
