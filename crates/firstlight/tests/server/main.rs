//! The binary as its users meet it: a process that serves a real model over HTTP.

mod support;

mod answers;
mod bench;
mod bounds;
#[cfg(feature = "delay")]
mod delays;
mod departures;
mod neighbours;
mod sharing;
mod shutdown;
