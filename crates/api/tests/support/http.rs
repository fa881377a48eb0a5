//! An HTTP/1 client that sends exactly the bytes it is told to, and reads answers by itself.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// No answer of a test takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection. What was read beyond an answer is kept for the next.
pub struct RawClient {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer, body decoded.
#[derive(Debug)]
pub struct RawResponse {
    pub status: u16,
    /// Status line and headers, as they came.
    pub head: String,
    pub body: Vec<u8>,
    pub chunked: bool,
}

impl RawResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

impl RawClient {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        RawClient { stream, buffer: Vec::new() }
    }

    /// Sends bytes; a server that has closed already is no failure of the test yet.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    pub async fn post(&mut self, path: &str, body: &str) -> RawResponse {
        self.send(post(path, body)).await;
        self.response().await
    }

    pub async fn get(&mut self, path: &str) -> RawResponse {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        self.response().await
    }

    /// Reads some more; false at the end.
    async fn more(&mut self) -> bool {
        let mut scratch = [0; 16 << 10];
        match timeout(PATIENCE, self.stream.read(&mut scratch)).await.expect("the server answers in time") {
            Ok(count) => {
                self.buffer.extend_from_slice(&scratch[..count]);
                count > 0
            }
            Err(_) => false,
        }
    }

    /// Reads to the end of a line or such.
    async fn until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return self.buffer.drain(..at + end.len()).collect();
            }
            assert!(self.more().await, "closed in mid-answer: {:?}", String::from_utf8_lossy(&self.buffer));
        }
    }

    pub async fn take(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            assert!(self.more().await, "closed in mid-answer");
        }
        self.buffer.drain(..count).collect()
    }

    /// What was read already, beyond what was taken.
    pub fn buffered(&self) -> &[u8] {
        &self.buffer
    }

    /// The head alone, for answers that are read as they come.
    pub async fn head(&mut self) -> RawResponse {
        let head = String::from_utf8(self.until(b"\r\n\r\n").await).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut response = RawResponse { status, head, body: Vec::new(), chunked: false };
        response.chunked = response.header("transfer-encoding") == Some("chunked");
        response
    }

    /// The next chunk of a chunked body; `None` after the last.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = String::from_utf8(self.until(b"\r\n").await).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let mut chunk = self.take(size + 2).await;
        assert!(chunk.ends_with(b"\r\n"), "a chunk ends where it says");
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    /// A whole answer.
    pub async fn response(&mut self) -> RawResponse {
        let mut response = self.head().await;
        if response.status == 100 {
            return response;
        }
        if response.chunked {
            while let Some(chunk) = self.chunk().await {
                response.body.extend(chunk);
            }
        } else if let Some(length) = response.header("content-length") {
            let length = length.parse().unwrap();
            response.body = self.take(length).await;
        } else {
            response.body = self.rest().await;
        }
        response
    }

    /// Everything until the server closes.
    pub async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.buffer)
    }

    /// Whether the server has closed, with nothing more to say.
    pub async fn is_closed(&mut self) -> bool {
        self.buffer.is_empty() && !self.more().await
    }

    /// Resets the connection instead of closing it.
    pub fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }
}

/// A plain JSON POST.
pub fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
