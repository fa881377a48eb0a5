//! The engine over the fake model: what clients see of it.

mod faults;
mod field_cases;
mod harness;
mod lifecycle;
mod terms;
mod thread;
