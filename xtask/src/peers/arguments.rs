//! The task's flags. Parsing has no side effects.

use anyhow::{Context, Result, bail};

use super::cells::{CELLS, Cell};

const MODELS: [&str; 4] =
    ["smollm2-135m-instruct", "gemma-3-270m", "qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"];

pub const USAGE: &str = "\
usage: cargo xtask peers [build] [--models A,B] [--cells A,B] [--runs N] [--threads N]

  build        build llama.cpp if it is not there, and stop
  --models     smollm2-135m-instruct, gemma-3-270m, qwen2.5-coder-0.5b-instruct, qwen2.5-coder-1.5b-instruct (all)
  --cells      prefill, decode, decode-4096, batch-1, batch-4, batch-8, batch-16, shared-prefix (all)
  --runs       alternating runs of each cell (3)
  --threads    threads of each engine (as many as the machine has)

FIRSTLIGHT_LLAMA_CPP=FOLDER takes llama.cpp's programs from there instead of building them.";

#[derive(Debug, PartialEq, Eq)]
pub struct Arguments {
    pub build_only: bool,
    pub models: Vec<&'static str>,
    pub cells: Vec<Cell>,
    pub runs: usize,
    pub threads: usize,
}

impl Arguments {
    /// None where help was asked for.
    pub fn parse(given: &[&str]) -> Result<Option<Arguments>> {
        let threads = super::processors();
        let mut found =
            Arguments { build_only: false, models: MODELS.to_vec(), cells: CELLS.to_vec(), runs: 3, threads };
        let mut given = given.iter();
        while let Some(&argument) = given.next() {
            let mut value = || given.next().copied().with_context(|| format!("{argument} wants a value"));
            match argument {
                "build" => found.build_only = true,
                "--help" | "-h" => return Ok(None),
                "--models" => found.models = chosen(argument, value()?, &MODELS, |model| model)?,
                "--cells" => found.cells = chosen(argument, value()?, CELLS, |cell| cell.name)?,
                "--runs" => found.runs = count(argument, value()?)?,
                "--threads" => found.threads = count(argument, value()?)?,
                _ => bail!("peers does not know {argument:?}\n\n{USAGE}"),
            }
        }
        Ok(Some(found))
    }
}

/// Those of `all` that are named, in the order of `all`.
fn chosen<T: Copy>(flag: &str, names: &str, all: &[T], name: impl Fn(&T) -> &'static str) -> Result<Vec<T>> {
    let wanted: Vec<&str> = names.split(',').map(str::trim).collect();
    let known: Vec<&str> = all.iter().map(&name).collect();
    if let Some(unknown) = wanted.iter().find(|wanted| !known.contains(wanted)) {
        bail!("{flag} does not know {unknown:?}; there are {}", known.join(", "));
    }
    Ok(all.iter().filter(|item| wanted.contains(&name(item))).copied().collect())
}

fn count(flag: &str, value: &str) -> Result<usize> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => bail!("{flag} {value}: a number of at least 1 is wanted"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_keep_the_tables_order() {
        let found =
            Arguments::parse(&["--cells", "decode, prefill", "--runs", "1", "--models", "gemma-3-270m"]);
        let found = found.unwrap().unwrap();
        let names: Vec<&str> = found.cells.iter().map(|cell| cell.name).collect();
        assert_eq!((names, found.models, found.runs), (vec!["prefill", "decode"], vec!["gemma-3-270m"], 1));
    }

    #[test]
    fn what_is_unknown_is_refused_by_name() {
        for wrong in
            [&["--cells", "warp"][..], &["--models", "gpt"], &["--runs", "0"], &["--runs"], &["--quick"]]
        {
            let error = Arguments::parse(wrong).unwrap_err().to_string();
            let about = wrong.last().unwrap();
            assert!(error.contains(about), "{error}");
        }
        assert_eq!(Arguments::parse(&["--help"]).unwrap(), None);
    }

    #[test]
    fn the_help_names_every_model_and_cell() {
        for name in MODELS.into_iter().chain(CELLS.iter().map(|cell| cell.name)) {
            assert!(USAGE.contains(name), "{name}");
        }
    }
}
