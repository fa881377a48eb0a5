//! The edge: HTTP in, HTTP out, and one life cycle per request in between.
//!
//! **Invariant:** the edge knows no tensors. It speaks to a [`Backend`], and whether that is an engine in this process
//! or something far away does not show here.

pub mod server;
pub mod drain;
pub mod connection;
mod head_scan;
pub mod exchange;
pub mod app;
pub mod authorize;
mod json;
mod fields;
pub mod openai;
pub mod backend;
pub mod wire;
pub mod frames;
pub mod sse;
pub mod errors;
pub mod routes;
mod accounts;
mod health;
mod prompts;
pub mod ring;
pub mod throttle;
mod ids;
pub mod prompt;
mod heavy;
pub mod lifecycle;
mod answer;
mod life;
mod reply;

pub use app::{App, Served};
pub use backend::{Answers, Backend, BackendState};
