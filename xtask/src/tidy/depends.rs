//! Who may depend on whom. The table is the design's drawing; the line goes one way, and tests may look further than
//! the code they test.

use super::Finding;
use super::manifests::{Dependency, Kind, Manifest, Manifests};

/// A crate, the crates of ours it may use, and those its tests may use besides.
struct Allowed {
    name: &'static str,
    normal: &'static [&'static str],
    tests: &'static [&'static str],
}

const ALLOWED: &[Allowed] = &[
    Allowed { name: "ledger", normal: &[], tests: &[] },
    Allowed { name: "protocol", normal: &["ledger"], tests: &[] },
    Allowed { name: "kernels", normal: &[], tests: &[] },
    Allowed { name: "catalogue", normal: &[], tests: &[] },
    Allowed { name: "models", normal: &["kernels", "ledger"], tests: &["catalogue"] },
    Allowed { name: "text", normal: &["protocol", "ledger"], tests: &["catalogue", "models"] },
    Allowed { name: "engine", normal: &["models", "kernels", "protocol", "ledger"], tests: &["catalogue"] },
    Allowed { name: "observe", normal: &["protocol", "ledger"], tests: &[] },
    Allowed { name: "api", normal: &["observe", "text", "protocol", "ledger"], tests: &["catalogue"] },
    Allowed { name: "fleet", normal: &["api", "protocol", "ledger"], tests: &[] },
    Allowed { name: "load", normal: &["protocol", "ledger"], tests: &[] },
    Allowed {
        name: "firstlight",
        normal: &[
            "api",
            "text",
            "fleet",
            "engine",
            "models",
            "kernels",
            "observe",
            "load",
            "catalogue",
            "protocol",
            "ledger",
        ],
        tests: &[],
    },
    Allowed { name: "xtask", normal: &[], tests: &[] },
];

/// Libraries that would bring into a crate what it must not know, tests aside.
const FORBIDDEN: &[(&str, &[&str], &str)] = &[
    ("kernels", WIRE, "kernels know no requests"),
    ("models", WIRE, "models know no requests"),
    ("engine", WIRE, "the engine knows no HTTP and no JSON"),
    ("api", TENSORS, "the edge knows no tensors"),
    ("fleet", TENSORS, "the edge knows no tensors"),
];
const WIRE: &[&str] = &["axum", "http", "http-body", "hyper", "hyper-util", "minijinja", "serde_json"];
const TENSORS: &[&str] = &["half", "memmap2", "safetensors"];

/// Crates that say for themselves which lints hold, because the workspace forbids the unsafe code they may have.
const OWN_LINTS: &[&str] = &["kernels", "models"];

pub fn check(manifests: &Manifests) -> Vec<Finding> {
    manifests.crates.iter().flat_map(|manifest| check_crate(manifests, manifest)).collect()
}

fn check_crate(manifests: &Manifests, manifest: &Manifest) -> Vec<Finding> {
    let name = manifest.name.as_str();
    let broken = |what: String| Finding::broken(&manifest.path, what);
    let mut findings = Vec::new();
    let Some(allowed) = ALLOWED.iter().find(|allowed| allowed.name == name) else {
        return vec![broken(format!(
            "no rule says what {name} may depend on; add it to the table in xtask tidy"
        ))];
    };
    for dependency in &manifest.dependencies {
        // A crate names itself to have its own test support in its tests.
        let ours = ALLOWED.iter().any(|allowed| allowed.name == dependency.name) && dependency.name != name;
        if ours && !may_use(allowed, dependency) {
            findings.push(broken(format!("{name} must not depend on {}", dependency.name)));
        }
        if !ours && dependency.name != name {
            findings.extend(in_the_workspaces_table(manifests, dependency).map(broken));
        }
        for (_, libraries, why) in FORBIDDEN.iter().filter(|(crate_name, _, _)| *crate_name == name) {
            if dependency.kind != Kind::Dev && libraries.contains(&dependency.name.as_str()) {
                findings.push(broken(format!("{name} must not use {}: {why}", dependency.name)));
            }
        }
    }
    if !manifest.inherits_lints && !OWN_LINTS.contains(&name) {
        findings.push(broken("the workspace's lints must hold here: `[lints] workspace = true`".to_owned()));
    }
    findings
}

fn may_use(allowed: &Allowed, dependency: &Dependency) -> bool {
    let name = dependency.name.as_str();
    allowed.normal.contains(&name) || (dependency.kind == Kind::Dev && allowed.tests.contains(&name))
}

/// One version of a library for all crates, named in one place.
fn in_the_workspaces_table(manifests: &Manifests, dependency: &Dependency) -> Option<String> {
    let name = &dependency.name;
    match (manifests.workspace.get(name), &dependency.version) {
        (None, _) => Some(format!("{name} is missing in the workspace's table of dependencies")),
        (Some(listed), Some(own)) if listed.as_ref() != Some(own) => {
            Some(format!("{name} is asked for in version {own}, and elsewhere in {listed:?}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Repository, Source, manifests};

    /// Checks one crate's manifest, given without its `[package]`.
    #[track_caller]
    fn check(name: &str, sections: &str, expected: &[&str]) {
        let file = |path: &str, text: String| Source { path: path.to_owned(), text };
        let root =
            "[workspace.dependencies]\nserde_json = \"1\"\ntokio = { version = \"1\" }\nhalf = \"2\"\n";
        let text = format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{sections}");
        let files = vec![file("Cargo.toml", root.to_owned()), file("crates/x/Cargo.toml", text)];
        let manifests = manifests::read(&Repository { root: "/nowhere".into(), files }).unwrap();
        let found: Vec<String> = super::check(&manifests).into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_line_goes_one_way() {
        check("engine", "[dependencies]\nmodels.workspace = true\n", &[]);
        check("models", "[dependencies]\nengine.workspace = true\n", &["models must not depend on engine"]);
        check(
            "models",
            "[dependencies]\nprotocol.workspace = true\n",
            &["models must not depend on protocol"],
        );
        check(
            "api",
            "[target.'cfg(unix)'.dependencies]\nengine = {path=\"x\"}\n",
            &["api must not depend on engine"],
        );
        check(
            "api",
            "[build-dependencies]\ncatalogue = {path=\"x\"}\n",
            &["api must not depend on catalogue"],
        );
    }

    #[test]
    fn tests_may_use_more_than_the_code_they_test() {
        check("text", "[dev-dependencies]\nmodels.workspace = true\n", &[]);
        check("text", "[dependencies]\nmodels.workspace = true\n", &["text must not depend on models"]);
    }

    #[test]
    fn what_a_crate_must_not_know_does_not_come_in_through_a_library() {
        let dependency = "[dependencies]\nserde_json.workspace = true\n";
        check(
            "engine",
            dependency,
            &["engine must not use serde_json: the engine knows no HTTP and no JSON"],
        );
        check("engine", "[dev-dependencies]\nserde_json.workspace = true\n", &[]);
        check("api", dependency, &[]);
        check(
            "api",
            "[dependencies]\nhalf.workspace = true\n",
            &["api must not use half: the edge knows no tensors"],
        );
    }

    #[test]
    fn every_library_has_one_version_in_one_place() {
        check("engine", "[dependencies]\ntokio = { version = \"1\", features = [\"sync\"] }\n", &[]);
        let other = "[dependencies]\ntokio = \"2\"\n";
        check("engine", other, &["tokio is asked for in version 2, and elsewhere in Some(\"1\")"]);
        let unlisted = "[dependencies]\nrand = \"1\"\n";
        check("engine", unlisted, &["rand is missing in the workspace's table of dependencies"]);
    }

    #[test]
    fn a_crate_without_a_rule_is_not_let_through() {
        let expected = "no rule says what helpers may depend on; add it to the table in xtask tidy";
        check("helpers", "", &[expected]);
    }
}
