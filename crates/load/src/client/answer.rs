//! From an answer's bytes to a sample: frames get the moment of the read that completed them.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Response, header};

use crate::adapter::{AnswerReader, Frame};
use crate::client::Ended;
use crate::client::connection::Stamps;
use crate::client::sse::{Broken, Events};
use crate::sample::{Chunk, CountSource, Ns, Outcome, Sample, Tokens};

/// The longest answer that is read when it is not a stream of events.
const BODY_BYTES_MAX: usize = 64 << 20;
/// What an error's detail repeats of an answer.
const DETAIL_CHARS: usize = 200;

/// An answer, as far as it has come.
pub(super) struct Reading {
    pub sample: Sample,
    reader: Box<dyn AnswerReader>,
    events: Option<Events>,
    whole: Vec<u8>,
    /// `[DONE]` came.
    done: bool,
    /// Of the connection that the request went to.
    pub stamps: Option<Arc<Stamps>>,
    pub connecting_ns: u64,
    /// Some chunk did not say how many tokens it carries.
    uncounted: bool,
}

impl Reading {
    pub fn new(sample: Sample, reader: Box<dyn AnswerReader>) -> Self {
        Reading {
            sample,
            reader,
            events: None,
            whole: Vec::new(),
            done: false,
            stamps: None,
            connecting_ns: 0,
            uncounted: false,
        }
    }

    /// `[DONE]` came, so that nothing more is wanted.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The answer's head was read at `at`.
    pub fn head(&mut self, response: &Response<Incoming>, at: Ns) {
        self.sample.headers_ns = Some(at);
        self.sample.status = Some(response.status().as_u16());
        let headers = response.headers();
        for (name, value) in headers {
            self.reader.header(name.as_str(), &String::from_utf8_lossy(value.as_bytes()));
        }
        let kind = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes());
        let streamed = kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"));
        self.events = (response.status().is_success() && streamed).then(Events::default);
    }

    /// Bytes of the body, read at `at`. Some: the answer is over, and this is how.
    pub fn bytes(&mut self, bytes: &[u8], at: Ns) -> Option<Outcome> {
        if bytes.is_empty() {
            return None;
        }
        self.sample.first_byte_ns.get_or_insert(at);
        self.sample.last_byte_ns = Some(at);
        let Some(mut events) = self.events.take() else {
            self.whole.extend_from_slice(bytes);
            let too_long = self.whole.len() > BODY_BYTES_MAX;
            return too_long.then(|| malformed(format!("the answer is over {BODY_BYTES_MAX} bytes")));
        };
        let mut over = None;
        let fed = events.feed(bytes, |data| {
            if over.is_none() {
                over = self.frame(data, at);
            }
        });
        self.events = Some(events);
        over.or_else(|| {
            fed.err().map(|broken| match broken {
                Broken::TooLong => malformed("an event is longer than the client reads".to_owned()),
                Broken::NotUtf8 => malformed("an event is not UTF-8".to_owned()),
            })
        })
    }

    fn frame(&mut self, data: &str, at: Ns) -> Option<Outcome> {
        match self.reader.frame(data) {
            Frame::Tokens { channel, tokens } => {
                self.uncounted |= tokens.is_none();
                let tokens = tokens.unwrap_or(1);
                if tokens > 0 {
                    self.sample.chunks.push(Chunk { at_ns: at, tokens, channel });
                }
                None
            }
            Frame::Empty => {
                self.sample.empty_frames.push(at);
                None
            }
            Frame::Other => None,
            Frame::Done => {
                self.done = true;
                None
            }
            Frame::Error { detail } => Some(Outcome::ErrorInBand { detail }),
            Frame::Malformed { detail } => Some(Outcome::Malformed { detail }),
        }
    }

    /// The body ended as HTTP has it. What that means is settled in [`Reading::end`], with what the reader knows.
    pub fn body_ended(&mut self, at: Ns) -> Outcome {
        let status = self.sample.status.unwrap_or_default();
        if !(200..300).contains(&status) {
            let body: String = String::from_utf8_lossy(&self.whole).chars().take(DETAIL_CHARS).collect();
            return Outcome::Refused { detail: format!("{status}: {body}") };
        }
        if self.events.is_some() {
            return Outcome::Finished;
        }
        // Not a stream: all tokens come with the last byte.
        match std::str::from_utf8(&self.whole) {
            Ok(text) => {
                let text = text.to_owned();
                self.frame(&text, at).unwrap_or(Outcome::Finished)
            }
            Err(_) => malformed("the answer is not UTF-8".to_owned()),
        }
    }

    /// The sample, once nothing more will come.
    pub fn end(mut self, outcome: Outcome) -> Ended {
        let read = self.reader.end();
        let sample = &mut self.sample;
        // Here, and not when the head came: a call that no head came for was sent all the same.
        sample.sent_ns = self.stamps.and_then(|stamps| stamps.wrote());
        sample.finish_reason = read.finish_reason;
        sample.server = crate::sample::ServerAccount { kind: sample.server.kind.clone(), ..read.server };
        let told = told(read.frame_tokens.as_deref(), &mut sample.chunks);
        sample.tokens = counted(read.tokens, &mut sample.chunks, self.uncounted && !told);
        sample.outcome = match outcome {
            // `[DONE]` alone is taken for an end, since some servers send no reason; neither is a cut.
            Outcome::Finished if sample.finish_reason.is_none() && self.events.is_some() && !self.done => {
                Outcome::CutShort { detail: "the stream ended without a finish reason and [DONE]".to_owned() }
            }
            // What befalls the connection behind the answer's end is no cut either.
            Outcome::CutShort { .. } if sample.finish_reason.is_some() && !sample.chunks.is_empty() => {
                Outcome::Finished
            }
            Outcome::Finished if sample.chunks.is_empty() => Outcome::Empty,
            outcome => outcome,
        };
        Ended { sample: self.sample, text: read.text, connecting_ns: self.connecting_ns }
    }
}

/// Takes over what the server said at the end of each chunk's tokens, if it is of these chunks; whether it was.
fn told(frame_tokens: Option<&[u32]>, chunks: &mut [Chunk]) -> bool {
    let Some(frame_tokens) = frame_tokens.filter(|tokens| tokens.len() == chunks.len()) else { return false };
    for (chunk, tokens) in chunks.iter_mut().zip(frame_tokens) {
        chunk.tokens = *tokens;
    }
    true
}

/// Settles how many tokens each chunk carried. Usage knows how many there were in all; what it has beyond one a chunk is
/// dealt to the chunks in order, as evenly as whole numbers allow.
fn counted(mut tokens: Tokens, chunks: &mut [Chunk], uncounted: bool) -> Tokens {
    tokens.counted += chunks.iter().map(|chunk| chunk.tokens).sum::<u32>();
    tokens.source = match (uncounted, tokens.output) {
        (false, _) if !chunks.is_empty() => CountSource::Server,
        (_, Some(output)) if output > tokens.counted && !chunks.is_empty() => {
            let count = chunks.len() as u64;
            let extra = u64::from(output - tokens.counted);
            for (index, chunk) in chunks.iter_mut().enumerate() {
                let until = |index: u64| index * extra / count;
                let share = until(index as u64 + 1) - until(index as u64);
                chunk.tokens += u32::try_from(share).unwrap_or(u32::MAX);
            }
            CountSource::Usage
        }
        (_, Some(_)) => CountSource::Usage,
        _ => CountSource::Chunks,
    };
    tokens
}

fn malformed(detail: String) -> Outcome {
    Outcome::Malformed { detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Channel;

    #[test]
    fn what_usage_has_more_is_dealt_evenly_and_in_full() {
        let chunk = Chunk { at_ns: 0, tokens: 1, channel: Channel::Answer };
        let mut chunks = vec![chunk; 3];
        let tokens = counted(Tokens { output: Some(8), ..Tokens::default() }, &mut chunks, true);
        assert_eq!(chunks.iter().map(|chunk| chunk.tokens).collect::<Vec<_>>(), [2, 3, 3]);
        assert_eq!((tokens.counted, tokens.source), (3, CountSource::Usage));
    }

    #[test]
    fn tokens_that_came_without_text_count_too() {
        let mut chunks = vec![Chunk { at_ns: 0, tokens: 1, channel: Channel::Answer }; 3];
        let read = Tokens { output: Some(4), counted: 1, ..Tokens::default() };
        let tokens = counted(read, &mut chunks, false);
        assert_eq!((tokens.counted, tokens.source), (4, CountSource::Server));
    }

    #[test]
    fn counts_told_at_the_end_are_taken_only_for_the_chunks_they_are_of() {
        let mut chunks = vec![Chunk { at_ns: 0, tokens: 1, channel: Channel::Answer }; 2];
        assert!(!told(None, &mut chunks) && !told(Some(&[3]), &mut chunks));
        assert!(told(Some(&[3, 2]), &mut chunks));
        assert_eq!(chunks.iter().map(|chunk| chunk.tokens).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn counts_of_the_server_stay_though_usage_differs() {
        let mut chunks = vec![Chunk { at_ns: 0, tokens: 4, channel: Channel::Answer }];
        let tokens = counted(Tokens { output: Some(5), ..Tokens::default() }, &mut chunks, false);
        assert_eq!((chunks[0].tokens, tokens.source), (4, CountSource::Server));
    }
}
