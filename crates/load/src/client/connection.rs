//! A connection whose reads and writes are stamped.
//!
//! **Invariant:** the connection is driven by the task that waits for its answer, so that what hyper hands out was
//! brought by the latest read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Uri;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_platform_verifier::ConfigVerifierExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error as TlsError};

use crate::sample::Ns;

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// The run's clock: nanoseconds since its start.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Clock(Instant::now())
    }

    pub fn now(&self) -> Ns {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The instant of a moment, for timers.
    pub fn instant(&self, moment: Ns) -> Instant {
        self.0 + Duration::from_nanos(moment)
    }
}

/// When a connection last read, and when it first wrote since it was asked.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    wrote: AtomicU64,
    read: AtomicU64,
}

impl Stamps {
    const NEVER: u64 = u64::MAX;

    /// Forgets the last request's write.
    pub(super) fn restart(&self) {
        self.wrote.store(Self::NEVER, Ordering::Relaxed);
        self.read.store(Self::NEVER, Ordering::Relaxed);
    }

    /// The request's first byte was taken by the socket.
    pub(super) fn wrote(&self) -> Option<Ns> {
        Some(self.wrote.load(Ordering::Relaxed)).filter(|moment| *moment != Self::NEVER)
    }

    /// Bytes came from the socket for the last time.
    pub(super) fn read(&self) -> Option<Ns> {
        Some(self.read.load(Ordering::Relaxed)).filter(|moment| *moment != Self::NEVER)
    }
}

struct Stamped {
    io: TcpStream,
    clock: Clock,
    stamps: Arc<Stamps>,
}

impl AsyncRead for Stamped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.stamps.read.store(self.clock.now(), Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // Before the call: on loopback the server may already have it when the call returns.
        let now = self.clock.now();
        let written = ready!(Pin::new(&mut self.io).poll_write(context, bytes))?;
        let unset = Stamps::NEVER;
        let _ = self.stamps.wrote.compare_exchange(unset, now, Ordering::Relaxed, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// An open connection, free for a request or in the middle of one.
pub(super) struct Connection {
    pub sender: http1::SendRequest<Full<Bytes>>,
    /// Moves bytes while it is polled.
    pub driver: Driver,
    pub stamps: Arc<Stamps>,
}

/// Where requests go: scheme, host, port, and what stands before every path.
#[derive(Clone)]
pub struct Address {
    pub base: Uri,
    tls: Option<TlsConnector>,
}

impl Address {
    /// Parses a URL such as `http://127.0.0.1:8000` or `https://host/v1`; a trailing `/v1` is the same without it.
    ///
    /// # Errors
    /// What is not an http or https URL with a host.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        let trimmed = url.trim_end_matches('/');
        let trimmed = trimmed.strip_suffix("/v1").unwrap_or(trimmed);
        let base: Uri = trimmed.parse().with_context(|| format!("{url:?} is not a URL"))?;
        if base.host().is_none() {
            bail!("{url:?} has no host; write it like http://127.0.0.1:8000");
        }
        let tls = match base.scheme_str() {
            Some("http") => None,
            Some("https") => Some(TlsConnector::from(Arc::new(
                ClientConfig::with_platform_verifier().context("the system's certificates cannot be used")?,
            ))),
            _ => bail!("{url:?} must begin with http:// or https://"),
        };
        Ok(Address { base, tls })
    }

    /// The path of a request: the base's own, then `path`.
    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.base.path().trim_end_matches('/'))
    }

    /// For the `host` header.
    pub fn authority(&self) -> &str {
        self.base.authority().map_or("", |authority| authority.as_str())
    }

    pub(super) async fn connect(&self, clock: Clock) -> anyhow::Result<Connection> {
        let host = self.base.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.base.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let connecting = TcpStream::connect((host, port));
        let io = match tokio::time::timeout(CONNECT_MAX, connecting).await {
            Ok(io) => io.with_context(|| format!("no connection to {}", self.authority()))?,
            Err(_) => bail!("no connection to {} within {CONNECT_MAX:?}", self.authority()),
        };
        io.set_nodelay(true)?;
        let stamps = Arc::new(Stamps::default());
        let io = Stamped { io, clock, stamps: Arc::clone(&stamps) };
        match &self.tls {
            None => handshake(io, stamps).await,
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned())?;
                let io = tls.connect(name, io).await.map_err(|error| self.refused(error))?;
                handshake(io, stamps).await
            }
        }
    }
}

impl Address {
    /// Why there is no TLS, and what to do where that is known.
    fn refused(&self, error: io::Error) -> anyhow::Error {
        let tls = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>());
        let host = self.authority();
        let Some(TlsError::InvalidCertificate(reason)) = tls else {
            return anyhow::Error::new(error).context(format!("no TLS connection to {host}"));
        };
        let to_do = match reason {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "call the server by a name that is in it"
            }
            // The latter is an older one of the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "if you trust it, name a PEM file of it, or of who issued it, in the variable SSL_CERT_FILE"
            }
            _ => "the server needs another one",
        };
        anyhow::anyhow!("the certificate of {host} is refused: {reason}; {to_do}")
    }
}

async fn handshake<IO>(io: IO, stamps: Arc<Stamps>) -> anyhow::Result<Connection>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    Ok(Connection { sender, driver: Box::pin(connection), stamps })
}
