//! Where `unsafe` may stand. The compiler refuses it where the workspace's lints hold; this rule says in one place where
//! they may be lifted, and also sees into macros.

use proc_macro2::{TokenStream, TokenTree};

use super::Finding;
use super::sources::RustFile;

/// The kernels, whose trade it is, and the one file that maps weights into memory.
const ALLOWED: [&str; 2] = ["crates/kernels/", "crates/models/src/gguf/map.rs"];

pub fn check(file: &RustFile<'_>) -> Vec<Finding> {
    if ALLOWED.iter().any(|allowed| file.path.starts_with(allowed)) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    find(file.tokens.clone(), &mut lines);
    let place = |line| format!("{}:{line}", file.path);
    lines
        .into_iter()
        .map(|line| Finding::broken(place(line), "`unsafe` outside the places that may have it"))
        .collect()
}

fn find(tokens: TokenStream, lines: &mut Vec<usize>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == "unsafe" => lines.push(ident.span().start().line),
            TokenTree::Group(group) => find(group.stream(), lines),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        let file = RustFile { path, text, tokens: text.parse().unwrap() };
        let found: Vec<String> = super::check(&file).into_iter().map(|finding| finding.place).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn unsafe_is_found_in_blocks_functions_and_macros() {
        check("a.rs", "fn f() {\n  unsafe { g() }\n}", &["a.rs:2"]);
        check("a.rs", "unsafe fn f() {}\nunsafe impl Send for A {}", &["a.rs:1", "a.rs:2"]);
        check("a.rs", "macro_rules! m { () => {\n unsafe { g() } } }", &["a.rs:2"]);
    }

    #[test]
    fn the_word_alone_is_not_the_deed() {
        check("a.rs", "#![forbid(unsafe_code)] // unsafe\nconst A: &str = \"unsafe\";", &[]);
    }

    #[test]
    fn kernels_and_the_one_mapping_file_may() {
        check("crates/kernels/src/avx2/dot.rs", "unsafe fn f() {}", &[]);
        check("crates/models/src/gguf/map.rs", "fn f() { unsafe { map() } }", &[]);
        check("crates/models/src/gguf/parse.rs", "unsafe fn f() {}", &["crates/models/src/gguf/parse.rs:1"]);
    }
}
