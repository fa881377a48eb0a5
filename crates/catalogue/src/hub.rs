//! A model hub over HTTP, read in pieces by byte range.
//!
//! Each piece is a request of its own with a deadline, so a stalled connection is noticed and a slow one still gets
//! there. **Invariant:** the file on disk only grows by bytes that belong at its end, so it can always be gone on with.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use ureq::Agent;
use ureq::http::{Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};

use crate::error::FetchError;
use crate::fetch::OnBytes;
use crate::model::HubFile;
use crate::table;

/// A hub that does not answer by then is not reachable, and the next source gets its turn.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(30);
/// A piece and its deadline: from 100 kB/s on, every piece arrives in one go.
const PIECE_BYTES: u64 = 16 << 20;
const PIECE: Duration = Duration::from_secs(180);
/// Requests in a row that bring nothing before the hub is given up.
const FRUITLESS_MAX: u32 = 3;

pub(crate) struct Hub {
    endpoint: String,
    agent: Agent,
    piece_bytes: u64,
}

/// What one request brought, and why it ended early if it did.
struct Piece {
    bytes: u64,
    trouble: Option<String>,
}

impl Hub {
    pub fn from_environment() -> Hub {
        let endpoint = env::var("HF_ENDPOINT").ok().filter(|value| !value.is_empty());
        Hub::at(endpoint.as_deref().unwrap_or(table::HUB), PIECE_BYTES)
    }

    fn at(endpoint: &str, piece_bytes: u64) -> Hub {
        // The system's own certificates, so that a company's proxy which the browser accepts is accepted here.
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .timeout_recv_body(Some(PIECE))
            .http_status_as_error(false)
            .user_agent(concat!("firstlight/", env!("CARGO_PKG_VERSION")))
            .build();
        Hub { endpoint: endpoint.trim_end_matches('/').to_owned(), agent: config.into(), piece_bytes }
    }

    /// Completes the file `into` to `length` bytes.
    pub fn download(
        &self,
        file: &HubFile,
        length: u64,
        into: &Path,
        bytes: OnBytes<'_>,
    ) -> Result<(), FetchError> {
        let url = format!("{}/{}/resolve/{}/{}", self.endpoint, file.repository, file.revision, file.file);
        let mut out =
            OpenOptions::new().create(true).append(true).open(into).map_err(FetchError::io("open", into))?;
        let mut have = out.metadata().map_err(FetchError::io("read", into))?.len();
        if have > length {
            out.set_len(0).map_err(FetchError::io("write", into))?;
            have = 0;
        }
        let mut fruitless = 0;
        while have < length {
            let wanted = have..length.min(have + self.piece_bytes);
            let response = self.request(&url, &wanted, length)?;
            let piece = append(response, &wanted, &mut out, into, bytes)?;
            have += piece.bytes;
            fruitless = if piece.bytes > 0 { 0 } else { fruitless + 1 };
            if fruitless >= FRUITLESS_MAX {
                let reason = piece.trouble.unwrap_or_else(|| "it sends empty answers".to_owned());
                return Err(FetchError::Unreachable(reason));
            }
        }
        out.sync_all().map_err(FetchError::io("write", into))
    }

    /// Asks for the bytes `wanted`, and makes sure that the answer is about the file we know.
    fn request(
        &self,
        url: &str,
        wanted: &Range<u64>,
        length: u64,
    ) -> Result<Response<ureq::Body>, FetchError> {
        let range = format!("bytes={}-{}", wanted.start, wanted.end - 1);
        let response = self
            .agent
            .get(url)
            .header(header::RANGE, range)
            .call()
            .map_err(|error| FetchError::Unreachable(error.to_string()))?;
        if response.status() != StatusCode::PARTIAL_CONTENT {
            return Err(FetchError::Refused(format!("it answered {} for {url}", response.status())));
        }
        let found = response.headers().get(header::CONTENT_RANGE).and_then(|value| value.to_str().ok());
        let expected = format!("bytes {}-{}/{length}", wanted.start, wanted.end - 1);
        match found {
            Some(found) if found == expected => Ok(response),
            found => {
                let found = found.unwrap_or("no range");
                Err(FetchError::Refused(format!(
                    "it has another file: \"{expected}\" was expected, not \"{found}\""
                )))
            }
        }
    }
}

/// Appends what arrives to the file. A connection that breaks ends the piece; a disk that fails ends the download.
fn append(
    response: Response<ureq::Body>,
    wanted: &Range<u64>,
    out: &mut File,
    path: &Path,
    bytes: OnBytes<'_>,
) -> Result<Piece, FetchError> {
    let length = wanted.end - wanted.start;
    let mut body = response.into_body().into_with_config().limit(length + 1).reader();
    let mut buffer = vec![0; 256 << 10];
    let mut piece = Piece { bytes: 0, trouble: None };
    while piece.bytes < length {
        let room = buffer.len().min((length - piece.bytes) as usize);
        match body.read(&mut buffer[..room]) {
            Ok(0) => break,
            Ok(count) => {
                out.write_all(&buffer[..count]).map_err(FetchError::io("write", path))?;
                piece.bytes += count as u64;
                bytes(wanted.start + piece.bytes);
            }
            Err(error) => {
                piece.trouble = Some(error.to_string());
                break;
            }
        }
    }
    Ok(piece)
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
