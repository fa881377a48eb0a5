//! Who may ask.
//!
//! With keys, everything but liveness needs one. Without keys, a server on a loopback address answers this machine only:
//! a web page from elsewhere reaches 127.0.0.1 through the browser of whoever visits it, so the Host header (against
//! rebound names) and the Origin header (against foreign pages) have to be local ones.
//!
//! **Invariant:** how long a comparison takes says nothing about a key but its length.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use protocol::{Refusal, RefusalKind};
use subtle::ConstantTimeEq;

use crate::App;
use crate::errors::Fault;
use crate::exchange::text;

/// Bytes of a tenant's name.
const TENANT_BYTES_MAX: usize = 256;

/// Who asks: the holder of one of the keys, by its place in the list, or anyone where there are none. Accounts are
/// shown to the tenant they belong to and to nobody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tenant(Option<usize>);

/// Lets a request in, or says why not.
///
/// # Errors
/// A missing or wrong key; a foreign page.
pub fn check(app: &App, head: &Parts) -> Result<Tenant, Fault> {
    admit(app, &head.headers)
}

/// Lets a request in that needs no key.
///
/// # Errors
/// A foreign page, where there are no keys that would keep it out.
pub fn check_open(app: &App, head: &Parts) -> Result<(), Fault> {
    if app.keys.is_empty() { admit(app, &head.headers).map(drop) } else { Ok(()) }
}

/// Whose share of the service the request takes: the configured header's word, else the holder of the key.
///
/// # Errors
/// A header that is no text or too long.
pub fn tenant_name(app: &App, headers: &HeaderMap, tenant: Tenant) -> Result<Option<Arc<str>>, Refusal> {
    if let Some(name) = &app.tenant_header
        && let Some(value) = headers.get(name)
    {
        let named = value.to_str().ok().map(str::trim).filter(|text| text.len() <= TENANT_BYTES_MAX);
        let wrong = || {
            let message = format!("the header {name} must be ASCII text of at most {TENANT_BYTES_MAX} bytes");
            Refusal::new(RefusalKind::Invalid, message)
        };
        return named.ok_or_else(wrong).map(|text| Some(Arc::from(text)));
    }
    Ok(tenant.0.map(|key| Arc::from(app.keys[key].as_str())))
}

fn admit(app: &App, headers: &HeaderMap) -> Result<Tenant, Fault> {
    if !app.keys.is_empty() {
        return key_holder(&app.keys, headers).map_err(Fault::from);
    }
    if app.loopback {
        from_this_machine(headers)?;
    }
    Ok(Tenant(None))
}

fn key_holder(keys: &[String], headers: &HeaderMap) -> Result<Tenant, Refusal> {
    let unauthorized = |message: &str| Refusal::new(RefusalKind::Unauthorized, message);
    let Some(value) = text(headers, header::AUTHORIZATION) else {
        return Err(unauthorized("no API key was sent; send it as the header Authorization: Bearer KEY"));
    };
    let presented = match value.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim(),
        _ => return Err(unauthorized("the Authorization header is not of the form: Bearer KEY")),
    };
    // Every key is compared in full, so that neither place nor prefix shows in the time.
    let mut holder = None;
    for (index, key) in keys.iter().enumerate() {
        if bool::from(key.as_bytes().ct_eq(presented.as_bytes())) {
            holder = Some(index);
        }
    }
    match holder {
        Some(index) => Ok(Tenant(Some(index))),
        None => Err(unauthorized("the API key is not one of this server's")),
    }
}

fn from_this_machine(headers: &HeaderMap) -> Result<(), Fault> {
    if let Some(host) = text(headers, header::HOST)
        && !is_loopback(host)
    {
        return Err(Fault::ForeignPage(crate::json::excerpt(host)));
    }
    if let Some(origin) = text(headers, header::ORIGIN) {
        let authority = origin.split_once("://").map(|(_, rest)| rest);
        if !authority.is_some_and(is_loopback) {
            return Err(Fault::ForeignPage(crate::json::excerpt(origin)));
        }
    }
    Ok(())
}

/// Whether an authority (a host, perhaps with a port) names this machine.
fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) if port.is_empty() || is_port(port) => host,
            _ => return false,
        },
        None => match authority.split_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            Some(_) => return false,
            None => authority,
        },
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost") {
        return true;
    }
    host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn check(keys: &[&str], sent: &[(HeaderName, &'static str)]) -> Result<Option<usize>, u16> {
        let app = App {
            keys: keys.iter().map(|key| key.to_string()).collect(),
            loopback: true,
            ..App::for_tests()
        };
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(name, HeaderValue::from_static(value));
        }
        admit(&app, &headers).map(|tenant| tenant.0).map_err(|fault| fault.status().as_u16())
    }

    #[test]
    fn only_a_whole_key_lets_in_and_its_place_is_the_tenant() {
        let keys = ["sk-one", "sk-two"];
        let bearer = |value| check(&keys, &[(header::AUTHORIZATION, value)]);
        assert_eq!(bearer("Bearer sk-one"), Ok(Some(0)));
        assert_eq!(bearer("bearer sk-two"), Ok(Some(1)));
        for wrong in ["Bearer sk-on", "Bearer sk-one2", "Bearer ", "sk-one", "Basic sk-one", "Bearer SK-ONE"]
        {
            assert_eq!(bearer(wrong), Err(401), "{wrong}");
        }
        assert_eq!(check(&keys, &[]), Err(401));
    }

    #[test]
    fn without_keys_only_this_machine_is_answered() {
        for host in [
            "localhost",
            "LOCALHOST:8000",
            "127.0.0.1:8000",
            "127.8.9.1",
            "[::1]:80",
            "[::1]",
            "app.localhost",
        ] {
            assert_eq!(check(&[], &[(header::HOST, host)]), Ok(None), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::2]",
            "10.0.0.1",
            "",
            "localhost:80@evil.example",
        ] {
            assert_eq!(check(&[], &[(header::HOST, host)]), Err(403), "{host}");
        }
    }

    #[test]
    fn a_tenant_is_named_by_the_header_if_there_is_one_else_by_its_key() {
        let name = HeaderName::from_static("x-tenant-id");
        let app = |tenant_header| App { keys: vec!["sk-one".into()], tenant_header, ..App::for_tests() };
        let named = |tenant_header, sent: &str, tenant| {
            let mut headers = HeaderMap::new();
            headers.append("x-tenant-id", HeaderValue::from_bytes(sent.as_bytes()).unwrap());
            tenant_name(&app(tenant_header), &headers, tenant).map(|name| name.map(|name| name.to_string()))
        };
        assert_eq!(named(Some(name.clone()), " acme ", Tenant(Some(0))), Ok(Some("acme".into())));
        assert_eq!(named(None, "acme", Tenant(Some(0))), Ok(Some("sk-one".into())), "nobody asked for it");
        assert_eq!(named(None, "acme", Tenant(None)), Ok(None));
        let refusal = named(Some(name), &"x".repeat(257), Tenant(None)).unwrap_err();
        assert!(refusal.message.contains("x-tenant-id"), "{refusal}");
    }

    #[test]
    fn a_page_from_elsewhere_is_refused() {
        let from = |origin| check(&[], &[(header::HOST, "localhost:8000"), (header::ORIGIN, origin)]);
        assert_eq!(from("http://localhost:8000"), Ok(None));
        assert_eq!(from("http://127.0.0.1:3000"), Ok(None));
        assert_eq!(from("https://evil.example"), Err(403));
        assert_eq!(from("null"), Err(403));
    }
}
