//! Makes the committed goldens again, with reference implementations that nobody here wrote. Their changes are reviewed
//! as diffs.

use anyhow::Result;

use crate::command;
use crate::{python, root};

pub fn run(arguments: &[&str]) -> Result<()> {
    let python = python::environment("golden", &root().join("tools/golden/requirements.txt"))?;
    command::run(command::command(&python.to_string_lossy(), &["tools/golden/make.py"]).args(arguments))
}
