//! A recorder of server-sent events: what came, and when; with a parser written from the standard's text
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::time::Instant;

use super::http::RawClient;

/// An event, and when its last byte was read.
#[derive(Clone, Debug)]
pub struct Event {
    pub data: String,
    pub at: Instant,
}

impl Event {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {:?}", self.data))
    }
}

/// Turns bytes, cut anywhere, into events.
#[derive(Default)]
pub struct Parser {
    pending: Vec<u8>,
    data: Vec<String>,
    after_cr: bool,
    pub comments: usize,
}

impl Parser {
    pub fn feed(&mut self, bytes: &[u8], at: Instant, events: &mut Vec<Event>) {
        for byte in bytes {
            let was_cr = std::mem::replace(&mut self.after_cr, *byte == b'\r');
            match byte {
                b'\n' if was_cr => {}
                b'\n' | b'\r' => {
                    let line =
                        String::from_utf8(std::mem::take(&mut self.pending)).expect("events are UTF-8");
                    self.line(&line, at, events);
                }
                _ => self.pending.push(*byte),
            }
        }
    }

    fn line(&mut self, line: &str, at: Instant, events: &mut Vec<Event>) {
        if line.is_empty() {
            if !self.data.is_empty() {
                events.push(Event { data: std::mem::take(&mut self.data).join("\n"), at });
            }
            return;
        }
        match line.split_once(':') {
            Some(("", _)) => self.comments += 1,
            Some(("data", value)) => self.data.push(value.strip_prefix(' ').unwrap_or(value).to_owned()),
            _ => {}
        }
    }

    /// Whether the stream stands between two events.
    pub fn is_between_events(&self) -> bool {
        self.pending.is_empty() && self.data.is_empty()
    }
}

/// A recorded stream.
pub struct Recording {
    pub events: Vec<Event>,
    pub comments: usize,
    pub raw: Vec<u8>,
}

impl Recording {
    /// The frames' JSON, without the end mark, which has to be there.
    pub fn json(&self) -> Vec<serde_json::Value> {
        let (last, frames) = self.events.split_last().expect("a stream has events");
        assert_eq!(last.data, "[DONE]", "a stream ends with [DONE]");
        frames.iter().map(Event::json).collect()
    }
}

/// Reads a chunked event stream to its end.
pub async fn record(client: &mut RawClient) -> Recording {
    let head = client.head().await;
    assert_eq!(head.status, 200, "{}", head.head);
    assert_eq!(head.header("content-type"), Some("text/event-stream"), "{}", head.head);
    let mut parser = Parser::default();
    let mut recording = Recording { events: Vec::new(), comments: 0, raw: Vec::new() };
    while let Some(chunk) = client.chunk().await {
        parser.feed(&chunk, Instant::now(), &mut recording.events);
        recording.raw.extend(chunk);
    }
    assert!(parser.is_between_events(), "the stream ends between events");
    recording.comments = parser.comments;
    recording
}
