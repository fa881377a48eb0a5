//! Chat templates that others wrote: those inside the models' files, and those of public models. They are read where
//! they lie, since they are not ours to carry.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::model;

const CHAT_MODELS: [&str; 2] = ["smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct"];

pub struct Template {
    /// `model/NAME` or `public/NAME`.
    pub name: String,
    pub source: String,
}

pub fn templates() -> Vec<Template> {
    let large = std::env::var_os("FIRSTLIGHT_TEST_1_5B").map(|_| "qwen2.5-coder-1.5b-instruct");
    let of_model = |name: &str| Template {
        name: format!("model/{name}"),
        source: model::read(name).template.unwrap_or_else(|| panic!("{name} has a template")),
    };
    let mut templates: Vec<Template> = CHAT_MODELS.into_iter().chain(large).map(of_model).collect();
    let mut paths: Vec<PathBuf> =
        fs::read_dir(public()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    templates.extend(paths.into_iter().map(|path| Template {
        name: format!("public/{}", path.file_stem().unwrap().to_string_lossy()),
        source: fs::read_to_string(path).unwrap(),
    }));
    assert!(templates.len() >= 60, "{} templates", templates.len());
    templates
}

/// The folder of public templates, fetched by pip if nobody did before.
fn public() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/golden/public_templates.py");
    let output = Command::new("python3").arg(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "the public templates could not be fetched");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
}
