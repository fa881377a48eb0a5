//! One request on a connection, up to its body.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::{Request, Version};
use ledger::clock::Ns;
use protocol::Limits;
use tokio::time::{Instant, timeout_at};

use crate::connection::ConnectionClock;
use crate::errors::Fault;
use crate::server::HeadLimits;

/// How slowly a body may come.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time that every body has.
    pub grace: Duration,
    /// Time on top, by what has come so far.
    pub bytes_per_s: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { grace: Duration::from_secs(15), bytes_per_s: 1024 }
    }
}

/// A request whose head has arrived.
pub struct Exchange {
    /// Method, path and headers.
    pub head: Parts,
    /// When its first byte came in.
    pub first_byte: Ns,
    pub peer: SocketAddr,
    /// The connection it came on.
    pub clock: Arc<ConnectionClock>,
    body: Incoming,
    pace: Pace,
    two_lengths: bool,
}

impl Exchange {
    pub(crate) fn begin(
        request: Request<Incoming>,
        clock: Arc<ConnectionClock>,
        peer: SocketAddr,
        pace: Pace,
    ) -> Self {
        let arrived = clock.begin();
        let (head, body) = request.into_parts();
        if body.is_end_stream() {
            clock.body_read();
        }
        Exchange {
            head,
            first_byte: arrived.first_byte,
            peer,
            clock,
            body,
            pace,
            two_lengths: arrived.two_lengths,
        }
    }

    /// Checks what every request has to meet, whatever it asks for.
    ///
    /// # Errors
    /// A head that proxies could read differently, or that is out of bounds.
    pub(crate) fn check(&self, limits: &HeadLimits) -> Result<(), Fault> {
        if self.two_lengths {
            return Err(Fault::TwoLengths);
        }
        if self.head.uri.to_string().len() > limits.path_bytes_max {
            return Err(Fault::PathTooLong { limit: limits.path_bytes_max });
        }
        let hosts = self.head.headers.get_all(header::HOST).iter().count();
        if hosts > 1 || (hosts == 0 && self.head.version == Version::HTTP_11) {
            return Err(Fault::BadHead);
        }
        Ok(())
    }

    /// Whether the whole body has been read.
    pub(crate) fn is_read(&self) -> bool {
        self.body.is_end_stream()
    }

    /// The body, which has to be JSON by its own account.
    ///
    /// # Errors
    /// A wrong type or encoding, a body that is too large, too slow, or breaks off.
    pub async fn read_json(&mut self, limits: &Limits) -> Result<Bytes, Fault> {
        expect_json(&self.head.headers)?;
        let bytes = self.read(limits.body_bytes_max).await?;
        self.clock.body_read();
        Ok(bytes)
    }

    async fn read(&mut self, limit: usize) -> Result<Bytes, Fault> {
        if self.body.size_hint().lower() > limit as u64 {
            // Refused by its length alone, before anything of it is read or asked for.
            return Err(Fault::BodyTooLarge { limit });
        }
        let started = Instant::now();
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        loop {
            let received = (first.len() + all.len()) as u64;
            let due =
                started + self.pace.grace + Duration::from_secs(received / self.pace.bytes_per_s.max(1));
            let frame = match timeout_at(due, self.body.frame()).await {
                Err(_) => return Err(Fault::BodyTooSlow { bytes_per_s: self.pace.bytes_per_s }),
                Ok(None) => break,
                Ok(Some(Err(_))) => return Err(Fault::BodyBroken),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            if first.len() + all.len() + data.len() > limit {
                return Err(Fault::BodyTooLarge { limit });
            }
            // Most bodies come in one piece and are not copied.
            if first.is_empty() && all.is_empty() {
                first = data;
            } else {
                all.extend_from_slice(&std::mem::take(&mut first));
                all.extend_from_slice(&data);
            }
        }
        Ok(if all.is_empty() { first } else { all.freeze() })
    }
}

fn expect_json(headers: &HeaderMap) -> Result<(), Fault> {
    let encoding = text(headers, header::CONTENT_ENCODING).unwrap_or("identity");
    if !encoding.eq_ignore_ascii_case("identity") {
        return Err(Fault::Encoding(crate::json::excerpt(encoding)));
    }
    let kind = text(headers, header::CONTENT_TYPE);
    let essence = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Fault::MediaType(kind.map_or_else(|| "nothing".into(), crate::json::excerpt)))
}

/// A header's text; one that is not ASCII counts as an unknown value.
pub fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}
