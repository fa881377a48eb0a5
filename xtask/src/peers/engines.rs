//! The two engines, each asked for one cell by its own measuring program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::cells::{Cell, Speed};
use super::llama_cpp::Binaries;
use super::{number_after, output_of};
use crate::command::{self, cargo};
use crate::{clients, root};

/// This project's forward pass, by `crates/models/examples/forward.rs`.
pub struct Ours {
    program: PathBuf,
    threads: usize,
}

impl Ours {
    pub fn build(threads: usize) -> Result<Ours> {
        command::run(&mut cargo(&[
            "build",
            "--release",
            "--locked",
            "-p",
            "models",
            "--example",
            "forward",
        ]))?;
        let release = clients::binary("release");
        let folder = release.parent().context("a binary lies in a folder")?.join("examples");
        let program = folder.join(format!("forward{}", std::env::consts::EXE_SUFFIX));
        Ok(Ours { program, threads })
    }

    /// Tokens per second.
    pub fn measure(&self, model: &Path, cell: &Cell) -> Result<f64> {
        let mut command = Command::new(&self.program);
        command
            .current_dir(root())
            .arg(model)
            .args(our_flags(cell))
            .args(["--threads", &self.threads.to_string()]);
        let printed = output_of(&mut command)?;
        let of = match cell.speed {
            Speed::Prefill => "prefill:",
            Speed::Decode => "decode:",
        };
        let line = printed.lines().find(|line| line.starts_with(of));
        let speed = line.and_then(|line| number_after(line, "tokens, "));
        speed.with_context(|| format!("no speed of {of} in what the example printed:\n{printed}"))
    }
}

fn our_flags(cell: &Cell) -> Vec<String> {
    let (prefill, decode, depth) = match cell.speed {
        Speed::Prefill => (cell.tokens, 0, cell.depth),
        // A decode step needs a prompt's last token to start from.
        Speed::Decode if cell.depth == 0 => (1, cell.tokens, 0),
        Speed::Decode => (1, cell.tokens, cell.depth - 1),
    };
    let mut flags: Vec<String> =
        [("--prefill", prefill), ("--decode", decode), ("--depth", depth), ("--batch", cell.sequences)]
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value.to_string()])
            .collect();
    if cell.shared {
        flags.push("--shared".to_owned());
    }
    flags
}

/// llama.cpp, by `llama-bench` for one sequence and `llama-batched-bench` for several.
pub struct LlamaCpp {
    pub binaries: Binaries,
    pub threads: usize,
}

impl LlamaCpp {
    pub fn describe(&self) -> String {
        format!("llama.cpp in {}: {}", self.binaries.folder.display(), self.binaries.note)
    }

    /// Settings whose best counts, since which is faster depends on the cell.
    pub fn variants(&self, cell: &Cell) -> Vec<&'static str> {
        if cell.shared { vec!["plain", "fa", "kvu", "fa kvu"] } else { vec!["plain", "fa"] }
    }

    /// Tokens per second.
    pub fn measure(&self, model: &Path, cell: &Cell, variant: &str) -> Result<f64> {
        let several = cell.name.starts_with("batch") || cell.shared;
        let program = if several { "llama-batched-bench" } else { "llama-bench" };
        let flags = if several { batched_flags(cell, variant) } else { bench_flags(cell, variant) };
        let mut command = self.binaries.command(program);
        command.arg("-m").arg(model).args(["-t", &self.threads.to_string()]).args(flags);
        let printed = output_of(&mut command)?;
        let key = match (several, cell.speed) {
            (false, _) => "\"avg_ts\"",
            (true, Speed::Prefill) => "\"speed_pp\"",
            (true, Speed::Decode) => "\"speed_tg\"",
        };
        number_after(&printed, key).with_context(|| format!("no {key} in what {program} printed:\n{printed}"))
    }
}

fn bench_flags(cell: &Cell, variant: &str) -> Vec<String> {
    let (prompt, generated) = match cell.speed {
        Speed::Prefill => (cell.tokens, 0),
        Speed::Decode => (0, cell.tokens),
    };
    let fa = usize::from(variant.contains("fa"));
    let values = [("-p", prompt), ("-n", generated), ("-d", cell.depth), ("-r", 1), ("-fa", fa)];
    let flags = values.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value.to_string()]);
    flags.chain(["-o".to_owned(), "jsonl".to_owned()]).collect()
}

fn batched_flags(cell: &Cell, variant: &str) -> Vec<String> {
    let context = cell.sequences * (cell.depth + cell.tokens);
    let values = [("-npp", cell.depth), ("-ntg", cell.tokens), ("-npl", cell.sequences), ("-c", context)];
    let mut flags: Vec<String> =
        values.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value.to_string()]).collect();
    let fa = if variant.contains("fa") { "on" } else { "off" };
    flags.extend(["-fa", fa, "--output-format", "jsonl"].map(str::to_owned));
    if variant.contains("kvu") {
        flags.push("-kvu".to_owned());
    }
    if cell.shared {
        flags.push("-pps".to_owned());
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::super::cells::CELLS;
    use super::*;

    fn cell(name: &str) -> Cell {
        *CELLS.iter().find(|cell| cell.name == name).unwrap()
    }

    #[track_caller]
    fn check(flags: Vec<String>, expected: &str) {
        assert_eq!(flags.join(" "), expected);
    }

    #[test]
    fn both_engines_are_asked_for_the_same_cell() {
        check(our_flags(&cell("prefill")), "--prefill 512 --decode 0 --depth 0 --batch 1");
        check(bench_flags(&cell("prefill"), "plain"), "-p 512 -n 0 -d 0 -r 1 -fa 0 -o jsonl");
        check(our_flags(&cell("decode-4096")), "--prefill 1 --decode 32 --depth 4095 --batch 1");
        check(bench_flags(&cell("decode-4096"), "fa"), "-p 0 -n 32 -d 4096 -r 1 -fa 1 -o jsonl");
        check(our_flags(&cell("batch-8")), "--prefill 1 --decode 32 --depth 127 --batch 8");
        check(
            batched_flags(&cell("batch-8"), "plain"),
            "-npp 128 -ntg 32 -npl 8 -c 1280 -fa off --output-format jsonl",
        );
        check(our_flags(&cell("shared-prefix")), "--prefill 1 --decode 32 --depth 1023 --batch 8 --shared");
        check(
            batched_flags(&cell("shared-prefix"), "fa kvu"),
            "-npp 1024 -ntg 32 -npl 8 -c 8448 -fa on --output-format jsonl -kvu -pps",
        );
    }
}
