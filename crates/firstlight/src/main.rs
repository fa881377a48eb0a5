//! The `firstlight` binary: flags, and the wiring of the crates.
//!
//! **Invariant:** parsing flags has no side effects; everything that is started is started by a command's `run`.

#![forbid(unsafe_code)]

mod bench;
mod bytesize;
mod chat;
mod client;
mod flags;
mod memory;
mod model;
mod serve;
mod signals;
mod span;
mod vocabulary;
mod wiring;

use clap::Parser;

use crate::flags::{Command, Flags};

fn main() -> std::process::ExitCode {
    // The first use of the clock anchors it, so that the process's age is known to every view.
    ledger::now_ns();
    let outcome = match Flags::parse().command {
        Command::Serve(flags) => serve::run(&flags),
        Command::Chat(flags) => chat::run(&flags),
        Command::Bench(flags) => bench::run(&flags),
        Command::Compare(flags) => bench::compare::run(&flags),
        Command::Model(flags) => model::run(&flags),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
