//! Every way the edge says no: one table of status, type, code and words.
//!
//! **Invariant:** nothing of our insides is told: a fault of ours says that there was one, and no more.

use std::time::Duration;

use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use protocol::{Refusal, RefusalKind};
use serde::Serialize;

use crate::frames::FrameBody;

/// A request that gets no answer but a reason.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The request itself was refused.
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("the request's head is not valid HTTP/1.1; check method, path and headers")]
    BadHead,
    #[error(
        "the request names its length twice, by Content-Length and by Transfer-Encoding; send one of them, so that \
         no proxy on the way reads it differently"
    )]
    TwoLengths,
    #[error("the request's body broke off or was framed wrongly; send it again in full")]
    BodyBroken,
    #[error(
        "a page on {0} asked for this; a server without keys answers pages on this machine only. Start it with \
             --api-key to serve others"
    )]
    ForeignPage(String),
    #[error("steps show what runs for every key, so they are only shown where there is at most one key")]
    OthersShown,
    #[error("nothing is served at {path}; see GET /v1/models and the API reference")]
    NoRoute { path: String },
    #[error("{path} takes {allowed}, not {method}")]
    Method { path: String, allowed: &'static str, method: String },
    #[error("the request's head took longer than {0:?}; send it at once")]
    HeadTooSlow(Duration),
    #[error("the request's body arrived too slowly; at least {bytes_per_s} bytes per second are expected")]
    BodyTooSlow { bytes_per_s: u64 },
    #[error("the request's body is larger than {limit} bytes; shorten it or raise the server's limit")]
    BodyTooLarge { limit: usize },
    #[error("the request's path is too long; at most {limit} bytes are taken")]
    PathTooLong { limit: usize },
    #[error("the request's headers are too large; at most {bytes} bytes in {headers} headers are taken")]
    HeadTooLarge { bytes: usize, headers: usize },
    #[error("the body must be sent as Content-Type: application/json, but the request says {0}")]
    MediaType(String),
    #[error("Content-Encoding {0} is not supported; send the body uncompressed")]
    Encoding(String),
    #[error("the server has as many connections as it takes; come back soon")]
    TooManyConnections,
    #[error("the server is shutting down; another one will take over, or come back soon")]
    Draining,
}

/// How a fault looks on the wire.
struct Row {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
}

const fn row(status: StatusCode, kind: &'static str, code: Option<&'static str>) -> Row {
    Row { status, kind, code }
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";

impl Fault {
    fn row(&self) -> Row {
        use StatusCode as S;
        match self {
            Fault::Refused(refusal) => refused(refusal.kind),
            Fault::BadHead => row(S::BAD_REQUEST, INVALID, Some("bad_head")),
            Fault::TwoLengths => row(S::BAD_REQUEST, INVALID, Some("ambiguous_length")),
            Fault::BodyBroken => row(S::BAD_REQUEST, INVALID, Some("body_broken")),
            Fault::ForeignPage(_) => row(S::FORBIDDEN, "permission_error", Some("foreign_host")),
            Fault::OthersShown => row(S::FORBIDDEN, "permission_error", Some("several_keys")),
            Fault::NoRoute { .. } => row(S::NOT_FOUND, INVALID, Some("unknown_url")),
            Fault::Method { .. } => row(S::METHOD_NOT_ALLOWED, INVALID, Some("method_not_allowed")),
            Fault::HeadTooSlow(_) | Fault::BodyTooSlow { .. } => {
                row(S::REQUEST_TIMEOUT, INVALID, Some("request_timeout"))
            }
            Fault::BodyTooLarge { .. } => row(S::PAYLOAD_TOO_LARGE, INVALID, Some("body_too_large")),
            Fault::PathTooLong { .. } => row(S::URI_TOO_LONG, INVALID, Some("path_too_long")),
            Fault::HeadTooLarge { .. } => {
                row(S::REQUEST_HEADER_FIELDS_TOO_LARGE, INVALID, Some("head_too_large"))
            }
            Fault::MediaType(_) => row(S::UNSUPPORTED_MEDIA_TYPE, INVALID, Some("unsupported_media_type")),
            Fault::Encoding(_) => row(S::UNSUPPORTED_MEDIA_TYPE, INVALID, Some("unsupported_encoding")),
            Fault::TooManyConnections => row(S::SERVICE_UNAVAILABLE, SERVER, Some("unavailable")),
            Fault::Draining => row(S::SERVICE_UNAVAILABLE, SERVER, Some("shutting_down")),
        }
    }

    /// The answer's status.
    pub fn status(&self) -> StatusCode {
        self.row().status
    }

    /// When to come back; a full server always says.
    fn retry_after(&self) -> Option<Duration> {
        const DEFAULT: Duration = Duration::from_secs(1);
        match self {
            Fault::Refused(refusal) => match refusal.kind {
                RefusalKind::RateLimited | RefusalKind::Unavailable => {
                    Some(refusal.retry_after.unwrap_or(DEFAULT))
                }
                _ => refusal.retry_after,
            },
            Fault::TooManyConnections | Fault::Draining => Some(DEFAULT),
            _ => None,
        }
    }

    /// Whether what the client has sent, or will send, can no longer be told apart from a next request.
    fn closes(&self) -> bool {
        matches!(
            self,
            Fault::BadHead
                | Fault::TwoLengths
                | Fault::BodyBroken
                | Fault::HeadTooSlow(_)
                | Fault::BodyTooSlow { .. }
                | Fault::BodyTooLarge { .. }
                | Fault::PathTooLong { .. }
                | Fault::HeadTooLarge { .. }
                | Fault::TooManyConnections
                | Fault::Draining
        )
    }

    /// `{"error": {"message", "type", "param", "code"}}`.
    pub fn json(&self) -> String {
        let row = self.row();
        let (message, param) = match self {
            Fault::Refused(refusal) => (words(refusal), refusal.param.as_deref()),
            other => (other.to_string(), None),
        };
        let envelope = Envelope { error: Body { message: &message, kind: row.kind, param, code: row.code } };
        serde_json::to_string(&envelope).expect("strings always serialize")
    }

    /// The whole answer.
    pub fn response(&self) -> Response<FrameBody> {
        let mut response = Response::new(FrameBody::whole(self.json()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(wait) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        if let Fault::Method { allowed, .. } = self {
            headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
        }
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.closes() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// The whole answer as bytes, for a connection that has no exchange to answer.
    pub fn raw(&self) -> String {
        let (status, body) = (self.status(), self.json());
        let reason = status.canonical_reason().unwrap_or_default();
        let retry = self.retry_after().map(|wait| format!("retry-after: {}\r\n", whole_seconds(wait)));
        format!(
            "HTTP/1.1 {} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{}connection: close\r\n\r\n{body}",
            status.as_str(),
            body.len(),
            retry.unwrap_or_default(),
        )
    }
}

fn refused(kind: RefusalKind) -> Row {
    use StatusCode as S;
    match kind {
        RefusalKind::Invalid => row(S::BAD_REQUEST, INVALID, None),
        RefusalKind::ContextLength => row(S::BAD_REQUEST, INVALID, Some("context_length_exceeded")),
        RefusalKind::UnknownModel => row(S::NOT_FOUND, INVALID, Some("model_not_found")),
        RefusalKind::NotFound => row(S::NOT_FOUND, INVALID, Some("not_found")),
        RefusalKind::Unauthorized => row(S::UNAUTHORIZED, INVALID, Some("invalid_api_key")),
        RefusalKind::RateLimited => {
            row(S::TOO_MANY_REQUESTS, "rate_limit_error", Some("rate_limit_exceeded"))
        }
        RefusalKind::Unavailable => row(S::SERVICE_UNAVAILABLE, SERVER, Some("unavailable")),
        RefusalKind::Deadline => row(S::SERVICE_UNAVAILABLE, SERVER, Some("deadline_unreachable")),
        RefusalKind::Internal => row(S::INTERNAL_SERVER_ERROR, SERVER, Some("internal_error")),
    }
}

/// What the client is told.
fn words(refusal: &Refusal) -> String {
    match refusal.kind {
        RefusalKind::Internal => {
            "something broke on our side while serving this request; it is safe to retry".into()
        }
        _ => refusal.to_string(),
    }
}

fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_openai_shape_and_names_its_field() {
        let fault = Fault::from(Refusal::invalid("top_p", "is 7; it must be between 0 and 1"));
        let expected = r#"{"error":{"message":"top_p is 7; it must be between 0 and 1","type":"invalid_request_error","param":"top_p","code":null}}"#;
        assert_eq!(fault.json(), expected);
        assert_eq!(fault.status(), 400);
    }

    #[test]
    fn a_fault_of_ours_tells_nothing_of_our_insides() {
        let fault = Fault::from(Refusal::new(RefusalKind::Internal, "index 7 out of bounds in step.rs"));
        assert!(!fault.json().contains("step.rs"));
        assert_eq!(fault.status(), 500);
    }

    #[test]
    fn a_full_server_says_when_to_come_back_in_whole_seconds_rounded_up() {
        let refusal = Refusal::new(RefusalKind::Unavailable, "full").retry_after(Duration::from_millis(1200));
        assert_eq!(Fault::from(refusal).response().headers()["retry-after"], "2");
        let limited = Fault::from(Refusal::new(RefusalKind::RateLimited, "slow down")).response();
        assert_eq!(
            (limited.status().as_u16(), &limited.headers()["retry-after"]),
            (429, &HeaderValue::from(1))
        );
    }
}
