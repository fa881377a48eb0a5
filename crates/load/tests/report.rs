//! Reports of made-up runs, in every form.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "report/made_up.rs"]
mod made_up;

#[path = "report/hostile.rs"]
mod hostile;

#[path = "report/page.rs"]
mod page;

#[path = "report/files.rs"]
mod files;

#[path = "report/terminal.rs"]
mod terminal;

#[path = "report/screenshot.rs"]
mod screenshot;
