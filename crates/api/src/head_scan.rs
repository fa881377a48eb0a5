//! What can be told of a request's head from its bytes, before it is parsed.
//!
//! hyper follows RFC 9112: where a request has both Content-Length and Transfer-Encoding it goes by the latter, drops the
//! former, and closes. A proxy in front may have gone by the other one, so we refuse; but by then the header is gone.
//!
//! **Invariant:** constant memory, whatever is sent.

/// Follows one head, line by line.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScan {
    /// The beginning of the line being read, in lower case.
    line: [u8; LINE_KEPT],
    line_bytes: usize,
    request_line_bytes: usize,
    lines: usize,
    complete: bool,
    content_length: bool,
    transfer_encoding: bool,
}

/// As long as the longest name looked for, with its colon.
const LINE_KEPT: usize = "transfer-encoding:".len();

impl HeadScan {
    /// Takes what was read; bytes after the head's end are left alone.
    pub fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.complete {
                return;
            }
            match byte {
                b'\n' => self.end_line(),
                b'\r' => {}
                _ => {
                    if let Some(place) = self.line.get_mut(self.line_bytes) {
                        *place = byte.to_ascii_lowercase();
                    }
                    self.line_bytes += 1;
                    self.request_line_bytes += usize::from(self.lines == 0);
                }
            }
        }
    }

    fn end_line(&mut self) {
        let line = &self.line[..self.line_bytes.min(LINE_KEPT)];
        // Empty lines before the request line do not count.
        self.complete = line.is_empty() && self.lines > 0;
        self.content_length |= line.starts_with(b"content-length:");
        self.transfer_encoding |= line.starts_with(b"transfer-encoding:");
        self.lines += usize::from(!line.is_empty());
        self.line_bytes = 0;
    }

    /// How long the first line is, or has become so far.
    pub fn request_line_bytes(&self) -> usize {
        self.request_line_bytes
    }

    /// Whether the head says both how many bytes follow and that they come in chunks.
    pub fn names_length_twice(&self) -> bool {
        self.content_length && self.transfer_encoding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(head: &str) -> HeadScan {
        let mut whole = HeadScan::default();
        whole.feed(head.as_bytes());
        let mut split = HeadScan::default();
        head.as_bytes().iter().for_each(|byte| split.feed(&[*byte]));
        assert_eq!(whole.names_length_twice(), split.names_length_twice());
        whole
    }

    #[test]
    fn both_lengths_are_found_in_any_case_and_order_but_not_in_the_body() {
        assert!(
            scan("POST / HTTP/1.1\r\ncontent-LENGTH: 3\r\nTransfer-encoding:chunked\r\n\r\n")
                .names_length_twice()
        );
        assert!(
            scan("\r\nPOST / HTTP/1.1\nTransfer-Encoding: x\nContent-Length: 3\n\n").names_length_twice()
        );
        assert!(
            !scan("POST / HTTP/1.1\r\nContent-Length: 20\r\n\r\ntransfer-encoding: x\r\n")
                .names_length_twice()
        );
        assert!(
            !scan("POST / HTTP/1.1\r\nX-Content-Length: 2\r\nTransfer-Encoding: x\r\n\r\n")
                .names_length_twice()
        );
    }

    #[test]
    fn the_first_line_is_measured_alone() {
        assert_eq!(scan(&"x".repeat(100_000)).request_line_bytes(), 100_000);
        assert_eq!(scan("\r\nGET / HTTP/1.1\r\nA: b\r\n").request_line_bytes(), 14);
    }
}
