//! What is served where.
//!
//! **Invariant:** one table says it all. Whatever is not in it is 404 or 405 in the envelope, and every entry but the
//! open ones passes the key check before anything else is looked at.

use std::sync::Arc;

use hyper::header::{self, HeaderValue};
use hyper::http::Method;
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::App;
use crate::drain::Phase;
use crate::errors::Fault;
use crate::exchange::Exchange;
use crate::frames::FrameBody;
use crate::json::excerpt;
use crate::openai::Format;
use crate::server::{Answering, Handler};
use crate::{accounts, authorize, health, lifecycle, openai, prompts};

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub method: &'static str,
    /// `{}` stands for one segment, `{*}` for all that follow.
    pub path: &'static str,
    pub endpoint: Endpoint,
    /// Answers without a key, where there are keys.
    pub open: bool,
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Generate(Format),
    Render(Format),
    Tokenize,
    Detokenize,
    Models,
    Model,
    Requests,
    Lifecycle,
    Steps,
    Health,
    Alive,
}

const fn route(method: &'static str, path: &'static str, endpoint: Endpoint) -> Route {
    Route { method, path, endpoint, open: false }
}

const fn open(method: &'static str, path: &'static str, endpoint: Endpoint) -> Route {
    Route { method, path, endpoint, open: true }
}

/// Everything that is served.
pub const ROUTES: &[Route] = &[
    route("POST", "/v1/chat/completions", Endpoint::Generate(Format::Chat)),
    route("POST", "/v1/completions", Endpoint::Generate(Format::Completions)),
    route("POST", "/v1/chat/completions/render", Endpoint::Render(Format::Chat)),
    route("POST", "/v1/completions/render", Endpoint::Render(Format::Completions)),
    route("POST", "/tokenize", Endpoint::Tokenize),
    route("POST", "/detokenize", Endpoint::Detokenize),
    route("GET", "/v1/models", Endpoint::Models),
    route("GET", "/v1/models/{*}", Endpoint::Model),
    route("GET", "/v1/requests", Endpoint::Requests),
    route("GET", "/v1/requests/{}/lifecycle", Endpoint::Lifecycle),
    route("GET", "/v1/steps", Endpoint::Steps),
    open("GET", "/health", Endpoint::Health),
    open("GET", "/livez", Endpoint::Alive),
];

impl Handler for App {
    fn handle(self: Arc<Self>, exchange: Exchange) -> Answering {
        Box::pin(async move {
            let answer = respond(self, exchange).await;
            answer.unwrap_or_else(|fault| fault.response())
        })
    }
}

async fn respond(app: Arc<App>, mut exchange: Exchange) -> Result<Response<FrameBody>, Fault> {
    let (route, argument) = find(&exchange.head.method, exchange.head.uri.path())?;
    if let Endpoint::Generate(format) = route.endpoint {
        // A life checks the key itself, since that is one of its stages.
        return Ok(lifecycle::serve(app, exchange, format).await);
    }
    if route.open {
        authorize::check_open(&app, &exchange.head)?;
        return match route.endpoint {
            Endpoint::Health => health::ready(&app),
            _ => Ok(json(&health::Alive::default())),
        };
    }
    let tenant = authorize::check(&app, &exchange.head)?;
    let query = exchange.head.uri.query().unwrap_or_default();
    match route.endpoint {
        Endpoint::Render(format) => Ok(json(&prompts::render(&app, &mut exchange, format).await?)),
        Endpoint::Tokenize => Ok(json(&prompts::tokenize(&app, &mut exchange).await?)),
        Endpoint::Detokenize => Ok(json(&prompts::detokenize(&app, &mut exchange).await?)),
        Endpoint::Models => Ok(json(&openai::models::list(&app))),
        Endpoint::Model => Ok(json(&openai::models::one(&app, &argument)?)),
        Endpoint::Requests => Ok(json(&accounts::recent(&app, tenant, query)?)),
        Endpoint::Lifecycle => Ok(json(&accounts::lifecycle(&app, tenant, &argument)?)),
        Endpoint::Steps => Ok(json(&accounts::steps(&app, query)?)),
        Endpoint::Generate(_) | Endpoint::Health | Endpoint::Alive => {
            unreachable!("these were answered above")
        }
    }
}

/// The line of the table, and what stands for its placeholder.
fn find(method: &Method, path: &str) -> Result<(&'static Route, String), Fault> {
    // HEAD is GET without the body, which the connection leaves out.
    let asked = if method == Method::HEAD { "GET" } else { method.as_str() };
    let mut elsewhere = None;
    for route in ROUTES {
        let Some(argument) = matched(route.path, path) else { continue };
        if route.method == asked {
            return Ok((route, argument));
        }
        elsewhere = Some(route.method);
    }
    Err(match elsewhere {
        Some(allowed) => Fault::Method { path: excerpt(path), allowed, method: excerpt(method.as_str()) },
        None => Fault::NoRoute { path: excerpt(path) },
    })
}

/// What stands for the placeholder of `pattern`, decoded, or an empty string where it has none.
fn matched(pattern: &str, path: &str) -> Option<String> {
    let Some((before, rest)) = pattern.split_once('{') else {
        return (pattern == path).then(String::new);
    };
    let (many, after) = match rest.strip_prefix("*}") {
        Some(after) => (true, after),
        None => (false, rest.strip_prefix('}')?),
    };
    let argument = path.strip_prefix(before)?.strip_suffix(after)?;
    let fits = !argument.is_empty() && (many || !argument.contains('/'));
    if fits { percent_decoded(argument) } else { None }
}

/// `%2F` and the like; `None` where that is no UTF-8 text.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push((digit(high)? * 16 + digit(low)?) as u8);
                rest = after;
            }
            (b'%', _) => return None,
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).ok()
}

/// Refuses new work once a shutdown has begun.
///
/// # Errors
/// It has.
pub fn check_serving(app: &App) -> Result<(), Fault> {
    match app.drain.phase() {
        Phase::Serving => Ok(()),
        Phase::Draining | Phase::Ending => Err(Fault::Draining),
    }
}

/// An answer of ours in one piece.
pub fn json(value: &impl Serialize) -> Response<FrameBody> {
    let body = serde_json::to_vec(value).expect("our own answers always serialize");
    let mut response = Response::new(FrameBody::whole(body));
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, path: &str) -> Result<(Endpoint, String), u16> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        find(&method, path)
            .map(|(route, argument)| (route.endpoint, argument))
            .map_err(|fault| fault.status().as_u16())
    }

    #[test]
    fn paths_are_found_with_their_arguments() {
        let model = |id: &str| Ok((Endpoint::Model, id.to_owned()));
        assert_eq!(
            check("POST", "/v1/completions"),
            Ok((Endpoint::Generate(Format::Completions), String::new()))
        );
        assert_eq!(check("GET", "/v1/models/a"), model("a"));
        assert_eq!(check("GET", "/v1/models/org/name%20x"), model("org/name x"));
        assert_eq!(check("HEAD", "/v1/models"), Ok((Endpoint::Models, String::new())));
        let lifecycle = Ok((Endpoint::Lifecycle, "req-1".to_owned()));
        assert_eq!(check("GET", "/v1/requests/req-1/lifecycle"), lifecycle);
    }

    #[test]
    fn what_is_not_in_the_table_is_404_and_a_wrong_method_405() {
        for path in [
            "/",
            "/v1",
            "/v1/completions/",
            "/v1/models/",
            "/v1/requests/a/b/lifecycle",
            "/v1/models/%zz",
            "/v1/models/%ff",
        ] {
            assert_eq!(check("GET", path), Err(404), "{path}");
        }
        for (method, path) in
            [("GET", "/v1/completions"), ("OPTIONS", "/v1/chat/completions"), ("DELETE", "/health")]
        {
            assert_eq!(check(method, path), Err(405), "{method} {path}");
        }
    }
}
