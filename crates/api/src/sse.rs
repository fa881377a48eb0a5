//! Server-sent events: how frames look on the wire.

use bytes::Bytes;
use serde::Serialize;

/// The end of an OpenAI-style stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// A comment: keeps proxies and clients from giving up while there is nothing to say; no parser makes an event of it.
pub const KEEPALIVE: Bytes = Bytes::from_static(b": keepalive\n\n");

/// Appends one event. JSON has no raw line breaks, so one `data:` line holds it.
pub fn event(frames: &mut Vec<u8>, data: &impl Serialize) {
    frames.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut *frames, data).expect("a frame's strings and numbers always serialize");
    frames.extend_from_slice(b"\n\n");
}
