//! What the edge's tests talk with: a client that writes raw bytes, and a recorder of server-sent events. Neither uses
//! the libraries that the server uses.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "this is test code, which clippy does not see from here")]

pub mod backend;
pub mod http;
pub mod server;
pub mod sse;
