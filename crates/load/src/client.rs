//! Sends calls and stamps what comes back. One call is one task; everything that can go wrong ends as an outcome, never
//! as a missing sample.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::{Request, Response, header};
use tokio::sync::watch;

use crate::adapter::{Adapter, Resolved};
use crate::sample::{Ns, Outcome, Sample, Tokens};
use crate::schedule::Call;

mod connection;

mod answer;

pub mod sse;

pub use connection::{Address, Clock};

use answer::Reading;
use connection::Connection;

/// Free connections that are kept; more are closed.
const IDLE_MAX: usize = 4096;
/// The longest answer to a `GET` that is read: a model card, a page of metrics.
const GET_BYTES_MAX: usize = 16 << 20;
/// Connections tried for one call before it counts as failed. Only a connection is tried again, never a request that
/// a server may have begun. A kept connection that breaks before a byte of the answer came is replaced by a fresh one: a
/// server may close it while the request is on its way.
const TRIES_MAX: u32 = 3;
/// How long a connection may stay open behind `[DONE]`; the answer is whole by then.
const DONE_GRACE: Duration = Duration::from_secs(1);

/// A client of one server.
pub struct Client {
    address: Address,
    key: Option<String>,
    timeout: Duration,
    pub clock: Clock,
    idle: Mutex<Vec<Connection>>,
}

/// A call that has ended: its sample, and its text for later turns.
pub struct Ended {
    pub sample: Sample,
    pub text: String,
    /// Spent on making connections before it was sent: the network's and the server's time, not the client's lag.
    pub connecting_ns: u64,
}

impl Client {
    /// A client that gives up on a call after `timeout`, connecting included.
    pub fn new(address: Address, key: Option<String>, timeout: Duration, clock: Clock) -> Self {
        Client { address, key, timeout, clock, idle: Mutex::new(Vec::new()) }
    }

    /// Sends `call`, wanted at `intended`, and reads the answer. When `stop` becomes true the call is left where it is.
    pub async fn send(
        &self,
        call: &Call,
        resolved: &Resolved,
        adapter: &dyn Adapter,
        intended: Ns,
        mut stop: watch::Receiver<bool>,
    ) -> Ended {
        let written = adapter.write(resolved);
        let mut sample = blank(call, intended);
        sample.body = resolved.fingerprint();
        sample.server.kind = adapter.kind().to_owned();
        let mut reading = Reading::new(sample, adapter.reader());
        let outcome = {
            let exchange = self.exchange(&written.path, written.body.into(), &mut reading);
            let mut exchange = pin!(exchange);
            tokio::select! {
                outcome = tokio::time::timeout(self.timeout, &mut exchange) => {
                    outcome.unwrap_or(Outcome::TimedOut)
                }
                _ = stop.wait_for(|stop| *stop) => Outcome::InFlight,
            }
        };
        reading.end(outcome)
    }

    /// Makes a connection, which the first call will use.
    ///
    /// # Errors
    /// There is none to be had, and why.
    pub async fn reach(&self) -> anyhow::Result<()> {
        self.keep(self.address.connect(self.clock).await?);
        Ok(())
    }

    /// `GET path`: status, the `server` header and the body. None where no answer came.
    pub async fn get(&self, path: &str) -> Option<(u16, Option<String>, String)> {
        let got = async {
            let mut connection = self.address.connect(self.clock).await.ok()?;
            let request =
                Request::get(self.address.path(path)).header(header::HOST, self.address.authority());
            let request = self.authorized(request).body(Full::default()).ok()?;
            let response = self.response(&mut connection, request).await.ok()?;
            let status = response.status().as_u16();
            let server = response.headers().get(header::SERVER);
            let server = server.map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
            let mut bytes = Vec::new();
            let mut body = pin!(response.into_body());
            while let Some(Ok(more)) = next(&mut connection, body.as_mut()).await {
                bytes.extend_from_slice(&more);
                if bytes.len() > GET_BYTES_MAX {
                    return None;
                }
            }
            Some((status, server, String::from_utf8_lossy(&bytes).into_owned()))
        };
        tokio::time::timeout(self.timeout, got).await.ok()?
    }

    fn authorized(&self, request: hyper::http::request::Builder) -> hyper::http::request::Builder {
        match &self.key {
            Some(key) => request.header(header::AUTHORIZATION, format!("Bearer {key}")),
            None => request,
        }
    }

    async fn exchange(&self, path: &str, body: Bytes, reading: &mut Reading) -> Outcome {
        let mut kept = self.kept().await;
        let (mut connection, response) = loop {
            let reused = kept.is_some();
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => match self.fresh(reading).await {
                    Ok(connection) => connection,
                    Err(error) => return Outcome::ConnectionFailed { detail: format!("{error:#}") },
                },
            };
            let request = match self.request(path, body.clone()) {
                Ok(request) => request,
                Err(error) => {
                    return Outcome::Malformed { detail: format!("the request cannot be made: {error}") };
                }
            };
            connection.stamps.restart();
            reading.stamps = Some(Arc::clone(&connection.stamps));
            match self.response(&mut connection, request).await {
                Ok(response) => break (connection, response),
                Err(_) if reused && connection.stamps.read().is_none() => reading.sample.retries += 1,
                Err(detail) => return Outcome::ConnectionFailed { detail },
            }
        };
        let moment = |connection: &Connection| connection.stamps.read().unwrap_or_else(|| self.clock.now());
        reading.head(&response, moment(&connection));
        let mut body = pin!(response.into_body());
        loop {
            let more = next(&mut connection, body.as_mut());
            let more = match reading.is_done() {
                false => more.await,
                true => match tokio::time::timeout(DONE_GRACE, more).await {
                    Ok(more) => more,
                    Err(_) => return reading.body_ended(moment(&connection)),
                },
            };
            match more {
                Some(Ok(bytes)) => {
                    let at = moment(&connection);
                    if let Some(outcome) = reading.bytes(&bytes, at) {
                        return outcome;
                    }
                }
                Some(Err(error)) => {
                    return Outcome::CutShort { detail: format!("the connection broke: {error}") };
                }
                None => {
                    let outcome = reading.body_ended(moment(&connection));
                    self.keep(connection);
                    return outcome;
                }
            }
        }
    }

    /// A connection that is free, and as far as can be told open.
    async fn kept(&self) -> Option<Connection> {
        while let Some(mut connection) = self.take() {
            // Polls it once: a server that has closed it says so now.
            let open = poll_fn(|context| {
                let ended = connection.driver.as_mut().poll(context).is_ready();
                Poll::Ready(!ended && connection.sender.is_ready())
            });
            if open.await {
                return Some(connection);
            }
        }
        None
    }

    async fn fresh(&self, reading: &mut Reading) -> anyhow::Result<Connection> {
        let began = self.clock.now();
        for tried in 1.. {
            let made = self.address.connect(self.clock).await;
            let failed = made.is_err() && tried < TRIES_MAX;
            if failed {
                reading.sample.retries += 1;
                tokio::time::sleep(Duration::from_millis(20 << tried)).await;
            }
            reading.connecting_ns = self.clock.now().saturating_sub(began);
            if !failed {
                return made;
            }
        }
        unreachable!("the last try returns")
    }

    fn request(&self, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let request = Request::post(self.address.path(path))
            .header(header::HOST, self.address.authority())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream, application/json");
        self.authorized(request).body(Full::new(body))
    }

    async fn response(
        &self,
        connection: &mut Connection,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, String> {
        let Connection { sender, driver, .. } = connection;
        let mut waiting = pin!(sender.send_request(request));
        let mut broken = None;
        poll_fn(|context| {
            if broken.is_none()
                && let Poll::Ready(result) = driver.as_mut().poll(context)
            {
                broken = Some(result.err());
            }
            // The answer first: a connection that broke behind it has done its work.
            match (waiting.as_mut().poll(context), &broken) {
                (Poll::Ready(Ok(response)), _) => Poll::Ready(Ok(response)),
                (_, Some(Some(error))) => {
                    Poll::Ready(Err(format!("the connection broke before the answer: {error}")))
                }
                (Poll::Ready(Err(error)), _) => Poll::Ready(Err(format!("no answer: {error}"))),
                (Poll::Pending, _) => Poll::Pending,
            }
        })
        .await
    }

    fn take(&self) -> Option<Connection> {
        self.idle.lock().expect("no holder panics").pop()
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().expect("no holder panics");
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}

/// The next bytes of a body, moving its connection meanwhile.
async fn next(
    connection: &mut Connection,
    mut body: std::pin::Pin<&mut Incoming>,
) -> Option<Result<Bytes, hyper::Error>> {
    let mut ended = false;
    poll_fn(|context| {
        loop {
            // The body first: what is left of the latest read is handed out before the next read moves its stamp.
            match body.as_mut().poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    Err(_trailers) => continue,
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if ended => return Poll::Pending,
                Poll::Pending => {}
            }
            match connection.driver.as_mut().poll(context) {
                Poll::Ready(_) => ended = true,
                Poll::Pending => {
                    // What it read may have made the body ready; its own wake-up covers the rest.
                    return match body.as_mut().poll_frame(context) {
                        Poll::Ready(Some(Ok(frame))) if frame.is_data() => {
                            Poll::Ready(frame.into_data().ok().map(Ok))
                        }
                        Poll::Ready(Some(Ok(_))) => continue,
                        Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
                        Poll::Ready(None) => Poll::Ready(None),
                        Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
    })
    .await
}

/// A sample of which nothing has happened yet.
pub(crate) fn blank(call: &Call, intended: Ns) -> Sample {
    Sample {
        call: call.id,
        session: call.session,
        body: String::new(),
        outcome: Outcome::InFlight,
        intended_ns: intended,
        sent_ns: None,
        headers_ns: None,
        first_byte_ns: None,
        chunks: Vec::new(),
        empty_frames: Vec::new(),
        last_byte_ns: None,
        tokens: Tokens::default(),
        server: crate::sample::ServerAccount::default(),
        status: None,
        finish_reason: None,
        retries: 0,
    }
}

/// A client that many tasks share.
pub type Shared = Arc<Client>;
