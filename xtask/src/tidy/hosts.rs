//! No registry's host is named anywhere. Whoever builds this has package managers set up for what they reach, which may
//! be a mirror; a name written down here would go past it.

use super::{Finding, Repository};

/// In two halves, so that this file keeps its own rule.
const HOSTS: [(&str, &str); 8] = [
    ("crates", ".io"),
    ("pypi", ".org"),
    ("pythonhosted", ".org"),
    ("npmjs", ".org"),
    ("npmjs", ".com"),
    ("yarnpkg", ".com"),
    ("proxy.golang", ".org"),
    ("deb.debian", ".org"),
];

/// Cargo writes where each crate came from into its lock file, and there is no way to have it otherwise.
const EXEMPT: [&str; 1] = ["Cargo.lock"];

pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.files.iter().filter(|file| !EXEMPT.contains(&file.path.as_str())) {
        for (index, line) in file.text.lines().enumerate() {
            for (first, second) in HOSTS {
                if line.to_lowercase().contains(&format!("{first}{second}")) {
                    let place = format!("{}:{}", file.path, index + 1);
                    findings.push(Finding::broken(place, "names the host of a package registry"));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    #[track_caller]
    fn check(path: &str, text: String, expected: &[&str]) {
        let files = vec![Source { path: path.to_owned(), text }];
        let found = super::check(&Repository { root: "/nowhere".into(), files });
        assert_eq!(found.into_iter().map(|finding| finding.place).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_host_is_found_wherever_it_stands() {
        let host = HOSTS.map(|(first, second)| format!("{first}{second}"));
        check("README.md", format!("first\nfrom https://www.{}/x\n", host[1]), &["README.md:2"]);
        check(
            ".ci/run",
            format!("npm --registry=https://registry.{}", host[3].to_uppercase()),
            &[".ci/run:1"],
        );
        check("Cargo.lock", format!("registry+https://github.com/rust-lang/{}-index", host[0]), &[]);
        check("README.md", "see the Python package index".to_owned(), &[]);
    }
}
