//! Heads of answers.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Response};
use protocol::{Refusal, RefusalKind};

use crate::errors::Fault;
use crate::frames::{self, FrameBody, Frames};
use crate::life::Life;

/// Carries the request's id, under which its account can be asked for.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The head of a streamed answer.
pub fn stream(life: &Life, body: FrameBody) -> Response<FrameBody> {
    let mut response = Response::new(body);
    account_headers(response.headers_mut(), life);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that would collect the stream before passing it on are asked not to.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// An answer in one piece, and where its delivery is told.
pub fn whole(life: &Life, body: Bytes) -> (Frames, Response<FrameBody>) {
    let (frames, body) = frames::whole(body);
    let mut response = Response::new(body);
    account_headers(response.headers_mut(), life);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (frames, response)
}

/// A refusal, and where its delivery is told.
pub fn fault(life: &Life, fault: &Fault) -> (Frames, Response<FrameBody>) {
    let mut response = fault.response();
    let (frames, body) = frames::whole(fault.json());
    *response.body_mut() = body;
    account_headers(response.headers_mut(), life);
    (frames, response)
}

/// For a request whose task ended without an answer.
pub fn broken() -> Response<FrameBody> {
    Fault::from(Refusal::new(RefusalKind::Internal, "the request's task ended early")).response()
}

fn account_headers(headers: &mut HeaderMap, life: &Life) {
    let timing = observe::server_timing(&life.stages_so_far());
    let ascii = |text: &str| HeaderValue::from_str(text).expect("ids and stage names are ASCII");
    headers.insert(REQUEST_ID, ascii(&life.id.to_string()));
    headers.insert(SERVER_TIMING, ascii(&timing));
}

/// The present wall-clock time, for `created`.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
