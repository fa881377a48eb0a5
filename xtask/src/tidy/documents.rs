//! What the documents promise: that the paths in `ARCHITECTURE.md` exist, and that `docs/dependencies.md` has a line for
//! every library and none for one that is gone.

use std::collections::BTreeSet;

use super::manifests::Manifests;
use super::{Finding, Repository};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const DEPENDENCIES: &str = "docs/dependencies.md";

/// Endings that make a word in backticks a path, whatever it begins with.
const FILE_ENDINGS: [&str; 8] = [".rs", ".md", ".toml", ".py", ".sh", ".json", ".html", ".js"];

/// Every path that `ARCHITECTURE.md` names exists: relative to the root, or to `crates/`, as `engine/src/step.rs`.
pub fn paths_exist(repository: &Repository) -> Vec<Finding> {
    let Some(file) = repository.file(ARCHITECTURE) else {
        return vec![Finding::broken(ARCHITECTURE, "is missing")];
    };
    let known = folders(repository);
    let mut findings = Vec::new();
    for (line, path) in named_paths(&file.text, &known) {
        let exists = |prefix: &str| repository.root.join(prefix).join(&path).exists();
        // A file's name alone is enough, wherever the file is; documents get tedious otherwise.
        let ending = format!("/{path}");
        let somewhere =
            !path.contains('/') && repository.files.iter().any(|file| file.path.ends_with(&ending));
        if !exists("") && !exists("crates") && !somewhere {
            let place = format!("{ARCHITECTURE}:{line}");
            findings.push(Finding::broken(place, format!("names {path}, which does not exist")));
        }
    }
    findings
}

/// The names a path can begin with: the root's folders, and the crates'.
fn folders(repository: &Repository) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for file in &repository.files {
        let mut names = file.path.split('/');
        let (first, second) = (names.next(), names.next());
        if let (Some(first), Some(second)) = (first, second) {
            known.insert(first.to_owned());
            if first == "crates" {
                known.insert(second.to_owned());
            }
        }
    }
    known
}

/// The paths named in a document, with their lines: words in backticks, targets of links, and the trees drawn in fenced
/// blocks, where a line's path continues that of the line it is indented under.
fn named_paths(text: &str, folders: &BTreeSet<String>) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    let mut above: Vec<(usize, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            above.clear();
        } else if fenced {
            found.extend(tree_path(line, &mut above).map(|path| (index + 1, path)));
        } else {
            let words = line.split('`').skip(1).step_by(2);
            let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let paths =
                words.filter(|word| is_path(word, folders)).chain(links.filter(|link| is_local(link)));
            found.extend(paths.map(|path| (index + 1, path.split('#').next().unwrap_or(path).to_owned())));
        }
    }
    found
}

fn is_path(word: &str, folders: &BTreeSet<String>) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let first = word.split('/').next().unwrap_or("");
    let in_a_folder =
        word.contains('/') && (folders.contains(first) || first.is_empty() && word.ends_with(".rs"));
    let is_file = FILE_ENDINGS.iter().any(|ending| word.len() > ending.len() && word.ends_with(ending));
    plain && (in_a_folder || (is_file && !word.starts_with('/')))
}

fn is_local(link: &str) -> bool {
    !link.contains(':') && !link.starts_with('#') && !link.is_empty()
}

/// The path of a line in a drawn tree: `crates/` over `  ledger/  what it is` gives `crates/` and `crates/ledger/`.
fn tree_path(line: &str, above: &mut Vec<(usize, String)>) -> Option<String> {
    let name = line.split_whitespace().next()?;
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let is_entry =
        name.ends_with('/') && name.len() > 1 || FILE_ENDINGS.iter().any(|ending| name.ends_with(ending));
    if !plain || !is_entry {
        return None;
    }
    let indent = line.len() - line.trim_start().len();
    above.retain(|(depth, _)| *depth < indent);
    let parent = above.last().map_or("", |(_, path)| path.as_str());
    let path = format!("{parent}{name}");
    if name.ends_with('/') {
        above.push((indent, path.clone()));
    }
    Some(path)
}

/// `docs/dependencies.md` says of every library what it is for, in a table whose first column is its name.
pub fn dependencies_have_their_line(repository: &Repository, manifests: &Manifests) -> Vec<Finding> {
    let Some(file) = repository.file(DEPENDENCIES) else {
        return vec![Finding::broken(DEPENDENCIES, "is missing")];
    };
    let described: BTreeSet<&str> = file.text.lines().filter_map(described_library).collect();
    let libraries = manifests.workspace.iter().filter(|(_, version)| version.is_some());
    let libraries: BTreeSet<&str> = libraries.map(|(name, _)| name.as_str()).collect();
    let used: BTreeSet<&str> = manifests
        .crates
        .iter()
        .flat_map(|manifest| &manifest.dependencies)
        .map(|d| d.name.as_str())
        .collect();

    let missing = libraries.difference(&described);
    let missing = missing.map(|name| Finding::broken(DEPENDENCIES, format!("has no line for {name}")));
    let gone = described.difference(&libraries);
    let gone =
        gone.map(|name| Finding::broken(DEPENDENCIES, format!("has a line for {name}, which is not used")));
    let idle = libraries.difference(&used);
    let idle = idle.map(|name| Finding::listed("Cargo.toml", format!("{name} is used by no crate")));
    missing.chain(gone).chain(idle).collect()
}

/// The library a row of the table is about: `` | `serde` | ... ``.
fn described_library(line: &str) -> Option<&str> {
    let cell = line.strip_prefix("| `")?;
    cell.split_once("` |").map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(usize, &str)]) {
        let folders = ["crates", "engine", "docs"].map(str::to_owned).into();
        let found = named_paths(text, &folders);
        let found: Vec<(usize, &str)> = found.iter().map(|(line, path)| (*line, path.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn paths_are_found_in_backticks_and_links() {
        check(
            "The loop is `engine/src/step.rs`.\nSee `docs/x.md`.",
            &[(1, "engine/src/step.rs"), (2, "docs/x.md")],
        );
        check("[style](docs/style.md#names) and `README.md`", &[(1, "README.md"), (1, "docs/style.md")]);
        check("`step.rs` alone is looked for as well", &[(1, "step.rs")]);
    }

    #[test]
    fn what_only_looks_like_a_path_is_none() {
        check("`POST /v1/chat/completions`, `text/event-stream`, `/v1/models`, `free + leased`", &[]);
        check("[site](https://example.com/a.md) and `engine::plan` and `.rs`", &[]);
    }

    #[test]
    fn drawn_trees_are_read_by_their_indentation() {
        let tree = "```\ncrates/\n  ledger/   stages\n    src/stage.rs\n  engine/  steps\nxtask/\n```";
        let expected = [
            (2, "crates/"),
            (3, "crates/ledger/"),
            (4, "crates/ledger/src/stage.rs"),
            (5, "crates/engine/"),
            (6, "xtask/"),
        ];
        check(tree, &expected);
        check("```\nfirstlight ─┬─► api\n            ├─► fleet\n```", &[]);
    }

    #[test]
    fn a_library_is_described_by_its_row() {
        assert_eq!(described_library("| `serde_json` | JSON |"), Some("serde_json"));
        assert_eq!(described_library("| library | what for |"), None);
        assert_eq!(described_library("We use `serde_json` | a lot"), None);
    }
}
