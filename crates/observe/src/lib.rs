//! Views of a request's [`ledger::Record`].
//!
//! **Invariant:** a view computes nothing that the ledger did not record: sums, shares and bars of recorded
//! nanoseconds, never a clock of its own.

#![forbid(unsafe_code)]

pub mod duration;
pub mod server_timing;
pub mod summary;
pub mod waterfall;

pub use server_timing::server_timing;
pub use summary::summary;
pub use waterfall::{Style, waterfall};
