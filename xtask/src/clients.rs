//! The official clients' suites, which run against the real binary. Each starts the server it needs: it is told where
//! the binary is by `FIRSTLIGHT_BIN`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::command::{command, exists, run};
use crate::{python, root};

/// What became of a suite.
pub enum Suite {
    Passed,
    /// With the reason, which the summary shows.
    NotRun(String),
}

pub fn python(binary: &Path) -> Result<Suite> {
    let folder = root().join("tests/clients/python");
    if !folder.exists() {
        return Ok(Suite::NotRun("there is no suite in tests/clients/python".to_owned()));
    }
    let python = python::environment("clients", &folder.join("requirements.txt"))?;
    let discover = ["-m", "unittest", "discover", "-s", "tests/clients/python"];
    run(command(&python.to_string_lossy(), &discover).env("FIRSTLIGHT_BIN", binary))?;
    Ok(Suite::Passed)
}

pub fn node(binary: &Path) -> Result<Suite> {
    let folder = root().join("tests/clients/node");
    if !folder.exists() {
        return Ok(Suite::NotRun("there is no suite in tests/clients/node".to_owned()));
    }
    if !exists("node", &["--version"]) || !exists("npm", &["--version"]) {
        return Ok(Suite::NotRun("Node is not installed".to_owned()));
    }
    // No lock file: it would name the registry's host, and the suite pins the one package it has.
    let install = ["install", "--no-audit", "--no-fund", "--no-package-lock"];
    run(command("npm", &install).current_dir(&folder))?;
    run(command("node", &["--test"]).current_dir(&folder).env("FIRSTLIGHT_BIN", binary))?;
    Ok(Suite::Passed)
}

/// Where cargo puts the binary of `profile`, which is a folder's name under the target folder.
pub fn binary(profile: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    root().join(target).join(profile).join(format!("firstlight{}", std::env::consts::EXE_SUFFIX))
}
