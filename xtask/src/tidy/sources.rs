//! Rust files as trees of tokens, and the rules on what every file and its name must have.

use anyhow::{Result, anyhow};
use proc_macro2::TokenStream;

use super::{Finding, Repository};

/// A Rust file, parsed.
pub struct RustFile<'a> {
    pub path: &'a str,
    pub text: &'a str,
    pub tokens: TokenStream,
}

impl RustFile<'_> {
    /// Whether it is the product's own code, and not a test, bench or example beside it.
    pub fn is_product(&self) -> bool {
        let file = self.path.rsplit('/').next().unwrap_or(self.path);
        self.path.contains("/src/") && !file.ends_with("tests.rs") && !self.path.contains("/tests/")
    }
}

/// Names that say nothing of what is inside, and so gather everything.
const EMPTY_NAMES: [&str; 7] = ["utils", "util", "common", "helpers", "helper", "manager", "misc"];

pub fn parse(repository: &Repository) -> Result<Vec<RustFile<'_>>> {
    let rust = repository.files.iter().filter(|file| file.path.ends_with(".rs"));
    rust.map(|file| {
        let tokens = file.text.parse().map_err(|error| anyhow!("{} is not Rust: {error}", file.path))?;
        Ok(RustFile { path: &file.path, text: &file.text, tokens })
    })
    .collect()
}

pub fn check(file: &RustFile<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.is_product() && !file.text.starts_with("//!") {
        findings.push(Finding::broken(file.path, "does not begin by saying its role in a `//!` comment"));
    }
    let mut names = file.path.split('/').map(|name| name.trim_end_matches(".rs"));
    // Integration tests share code in `tests/common/`, because cargo knows no other way that is not a test of its own.
    if file.is_product()
        && let Some(name) = names.find(|name| EMPTY_NAMES.contains(name))
    {
        findings.push(Finding::broken(file.path, format!("`{name}` does not say what is inside")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        let file = RustFile { path, text, tokens: text.parse().unwrap() };
        let found: Vec<String> = super::check(&file).into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn every_file_says_its_role_first() {
        check("crates/engine/src/plan.rs", "//! What runs next.\nfn plan() {}", &[]);
        let expected = "does not begin by saying its role in a `//!` comment";
        check("crates/engine/src/plan.rs", "fn plan() {}", &[expected]);
    }

    #[test]
    fn names_that_say_nothing_are_refused() {
        check("crates/engine/src/utils.rs", "//! Things.", &["`utils` does not say what is inside"]);
        check("crates/engine/src/common/plan.rs", "//! Things.", &["`common` does not say what is inside"]);
        check("crates/engine/src/commons.rs", "//! Things.", &[]);
    }
}
