//! The edge: HTTP in, HTTP out, and one life cycle per request in between.
//!
//! **Invariant:** the edge knows no tensors. It speaks to a [`Backend`], and whether that is an engine in this process
//! or something far away does not show here.

pub mod app;
pub mod backend;

pub use app::{App, Served};
pub use backend::{Answers, Backend, BackendState};
