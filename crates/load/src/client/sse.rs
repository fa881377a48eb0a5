//! Server-sent events out of bytes, as the HTML standard has them (section 9.2.6, "Interpreting an event stream"):
//! lines end with LF, CR or CRLF, a byte order mark may lead, `data` lines of one event are joined by LF, comments and
//! unknown fields are skipped.
//!
//! **Invariant:** any split of the bytes gives the same events.

/// The longest event that is read; a server that sends more is cut off.
pub const EVENT_BYTES_MAX: usize = 16 << 20;

/// What cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// An event over [`EVENT_BYTES_MAX`].
    TooLong,
    /// Data that is not UTF-8.
    NotUtf8,
}

/// A stream of events, as far as it has come.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was CR: an LF that follows belongs to it.
    after_cr: bool,
    begun: bool,
}

impl Events {
    /// Takes bytes and calls `event` with the data of each event that they complete.
    ///
    /// # Errors
    /// See [`Broken`]; nothing after it can be trusted.
    pub fn feed(&mut self, bytes: &[u8], mut event: impl FnMut(&str)) -> Result<(), Broken> {
        for &byte in bytes {
            let ends_line = match byte {
                b'\n' if self.after_cr => {
                    self.after_cr = false;
                    continue;
                }
                b'\r' | b'\n' => true,
                _ => false,
            };
            self.after_cr = byte == b'\r';
            if !ends_line {
                self.line.push(byte);
                if self.line.len() + self.data.len() > EVENT_BYTES_MAX {
                    return Err(Broken::TooLong);
                }
                continue;
            }
            let mut line = std::mem::take(&mut self.line);
            self.end_line(&line, &mut event)?;
            line.clear();
            self.line = line; // keeps its room
        }
        Ok(())
    }

    fn end_line(&mut self, line: &[u8], event: &mut impl FnMut(&str)) -> Result<(), Broken> {
        let line = if self.begun { line } else { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) };
        self.begun = true;
        if line.is_empty() {
            if self.has_data {
                event(std::str::from_utf8(&self.data).map_err(|_| Broken::NotUtf8)?);
            }
            self.data.clear();
            self.has_data = false;
            return Ok(());
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        if &line[..colon] == b"data" {
            let value = line.get(colon + 1..).unwrap_or_default();
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.has_data = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut found = Vec::new();
        let mut events = Events::default();
        for piece in pieces {
            events.feed(piece, |data| found.push(data.to_owned())).unwrap();
        }
        found
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(events(&[text.as_bytes()]), expected, "{text:?}");
        let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(events(&single), expected, "{text:?}, byte by byte");
    }

    #[test]
    fn lines_end_in_any_of_three_ways_and_data_joins() {
        check("data: a\n\ndata: b\r\n\r\ndata: c\r\r", &["a", "b", "c"]);
        check("data:a\ndata:  b\ndata\n\n", &["a\n b\n"]);
        check("\u{feff}data: a\n\n", &["a"]);
    }

    #[test]
    fn comments_other_fields_and_events_without_data_are_none() {
        check(": keepalive\n\nevent: x\nid: 1\n\nretry: 5\ndata: é\n\n", &["é"]);
        check("data: never ended\n", &[]);
        check("data: [DONE]\n\n", &["[DONE]"]);
    }

    #[test]
    fn what_is_too_long_or_not_text_is_said() {
        let mut events = Events::default();
        assert_eq!(events.feed(b"data: \xff\n\n", |_| ()), Err(Broken::NotUtf8));
        let mut events = Events::default();
        assert_eq!(events.feed(&vec![b'x'; EVENT_BYTES_MAX + 1], |_| ()), Err(Broken::TooLong));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(text in "(data: ?[a-é中]{0,4}|:[x]{0,2}|[\r\n]{1,3}){0,12}", cuts in prop::collection::vec(0usize..80, 0..6)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(events(&pieces), events(&[bytes]));
        }
    }
}
