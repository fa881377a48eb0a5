//! A Python environment of the project's own under `target/`, made once and brought up to date when its list of
//! packages changes. Nothing is installed into the user's Python.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{exists, run};
use crate::root;

/// Returns the interpreter of the environment called `name`, with everything in `requirements` installed.
pub fn environment(name: &str, requirements: &Path) -> Result<PathBuf> {
    let folder = root().join("target").join("python").join(name);
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let wanted = fs::read_to_string(requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let installed = folder.join("installed-requirements.txt");
    if python.exists() && fs::read_to_string(&installed).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    let system = ["python3", "python"].into_iter().find(|name| exists(name, &["--version"]));
    let Some(system) = system else { bail!("no Python 3 was found; install it, with pip and venv") };
    let made = run(crate::command::command(system, &["-m", "venv", "--clear"]).arg(&folder));
    made.context("could not make a Python environment; on Debian it needs `apt install python3-venv`")?;
    let mut install =
        crate::command::command(&python.to_string_lossy(), &["-m", "pip", "install", "--quiet"]);
    run(install.args(["--disable-pip-version-check", "-r"]).arg(requirements))?;
    fs::write(&installed, wanted).with_context(|| format!("cannot write {}", installed.display()))?;
    Ok(python)
}
