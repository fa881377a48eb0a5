//! Running commands so that the reader of a log sees what was run and where it went wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::root;

/// A command in the repository's root.
pub fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// The cargo that runs this task, so that a chosen toolchain stays chosen.
pub fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    command(&cargo, arguments)
}

/// Runs a command and fails unless it succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("could not start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a command, passes its output on as it comes, and returns its lines; fails unless the command succeeds.
///
/// The lines come back in the failing case too: a summary of failed tests is what a reader needs most then.
pub fn run_and_keep(command: &mut Command) -> (Vec<String>, Result<()>) {
    let shown = show(command);
    eprintln!("$ {shown}");
    let mut child = match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => return (Vec::new(), Err(error).with_context(|| format!("could not start `{shown}`"))),
    };
    let stdout = child.stdout.take().map(|pipe| thread::spawn(move || pass_on(pipe, std::io::stdout())));
    let stderr = child.stderr.take().map(|pipe| thread::spawn(move || pass_on(pipe, std::io::stderr())));
    let lines = [stdout, stderr].into_iter().flatten();
    let lines = lines.flat_map(|reader| reader.join().expect("passing lines on does not panic")).collect();
    let result = match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(anyhow::anyhow!("`{shown}` failed ({status})")),
        Err(error) => Err(error).with_context(|| format!("lost `{shown}`")),
    };
    (lines, result)
}

/// Whether a program can be started at all.
pub fn exists(program: &str, arguments: &[&str]) -> bool {
    let mut command = command(program, arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn pass_on(from: impl Read, mut to: impl Write) -> Vec<String> {
    let mut kept = Vec::new();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        // A reader that has gone away is no reason to stop the command.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        kept.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
    kept
}

fn show(command: &Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    let name = program.rsplit(['/', '\\']).next().unwrap_or(&program).to_owned();
    let arguments = command.get_args().map(|argument| {
        let argument = argument.to_string_lossy();
        if argument.contains(' ') { format!("\"{argument}\"") } else { argument.into_owned() }
    });
    std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ")
}
