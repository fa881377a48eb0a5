//! The workspace's manifests, read once for the rules about who depends on what.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::Repository;

pub struct Manifests {
    /// What the workspace's table names, with the version it asks for; none for a crate of ours.
    pub workspace: BTreeMap<String, Option<String>>,
    pub crates: Vec<Manifest>,
}

pub struct Manifest {
    /// Relative to the root.
    pub path: String,
    pub name: String,
    pub dependencies: Vec<Dependency>,
    /// `[lints] workspace = true`.
    pub inherits_lints: bool,
}

pub struct Dependency {
    pub name: String,
    /// The version, where the manifest does not leave that to the workspace.
    pub version: Option<String>,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Normal,
    /// For tests, benches and examples.
    Dev,
    Build,
}

pub fn read(repository: &Repository) -> Result<Manifests> {
    let root = repository.file("Cargo.toml").context("there is no Cargo.toml in the root")?;
    let table = parse("Cargo.toml", &root.text)?;
    let listed = table.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let listed = listed.and_then(Value::as_table).context("Cargo.toml has no [workspace.dependencies]")?;
    let workspace = listed.iter().map(|(name, value)| (name.clone(), version(value))).collect();

    let mut crates = Vec::new();
    for file in &repository.files {
        if file.path != "Cargo.toml" && file.path.ends_with("/Cargo.toml") {
            crates.push(manifest(&file.path, &parse(&file.path, &file.text)?));
        }
    }
    Ok(Manifests { workspace, crates })
}

fn parse(path: &str, text: &str) -> Result<Table> {
    text.parse().with_context(|| format!("{path} is not valid TOML"))
}

fn manifest(path: &str, table: &Table) -> Manifest {
    let text = |keys: [&str; 2]| table.get(keys[0]).and_then(|section| section.get(keys[1]));
    let mut dependencies = dependencies(table);
    // `[target.'cfg(...)'.dependencies]` counts like any other.
    if let Some(targets) = table.get("target").and_then(Value::as_table) {
        dependencies.extend(targets.values().filter_map(Value::as_table).flat_map(self::dependencies));
    }
    Manifest {
        path: path.to_owned(),
        name: text(["package", "name"]).and_then(Value::as_str).unwrap_or(path).to_owned(),
        dependencies,
        inherits_lints: text(["lints", "workspace"]).and_then(Value::as_bool) == Some(true),
    }
}

fn dependencies(table: &Table) -> Vec<Dependency> {
    let sections = [
        ("dependencies", Kind::Normal),
        ("dev-dependencies", Kind::Dev),
        ("build-dependencies", Kind::Build),
    ];
    let mut found = Vec::new();
    for (section, kind) in sections {
        let entries = table.get(section).and_then(Value::as_table).into_iter().flatten();
        found.extend(entries.map(|(name, value)| Dependency {
            name: name.clone(),
            version: version(value),
            kind,
        }));
    }
    found
}

fn version(value: &Value) -> Option<String> {
    let version = value.as_str().or_else(|| value.get("version").and_then(Value::as_str));
    version.map(str::to_owned)
}
