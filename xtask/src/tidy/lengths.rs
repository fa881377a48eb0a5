//! How long files and functions are. Somewhat long is listed, for whoever wonders where to tidy next; far too long is
//! refused. Tests are not counted, since a table of cases may be as long as it needs.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Finding;
use super::sources::RustFile;

const FILE_LISTED: usize = 500;
const FILE_BROKEN: usize = 900;
const FUNCTION_LISTED: usize = 100;
const FUNCTION_BROKEN: usize = 200;

/// Flat tables, which are read by looking something up and not from end to end.
const TABLES: [&str; 1] = ["crates/catalogue/src/table.rs"];

pub fn check(file: &RustFile<'_>) -> Vec<Finding> {
    if !file.is_product() || TABLES.contains(&file.path) {
        return Vec::new();
    }
    let mut found = Lengths { functions: Vec::new(), tests: 0 };
    found.walk(file.tokens.clone());
    let length = file.text.lines().count() - found.tests;
    let mut findings = Vec::new();
    findings.extend(judge(file.path, "the file", length, FILE_LISTED, FILE_BROKEN));
    for function in found.functions {
        let place = format!("{}:{}", file.path, function.line);
        let what = format!("the function `{}`", function.name);
        findings.extend(judge(&place, &what, function.length, FUNCTION_LISTED, FUNCTION_BROKEN));
    }
    findings
}

fn judge(place: &str, what: &str, length: usize, listed: usize, broken: usize) -> Option<Finding> {
    match length {
        length if length > broken => {
            Some(Finding::broken(place, format!("{what} has {length} lines; {broken} is the most")))
        }
        length if length > listed => Some(Finding::listed(place, format!("{what} has {length} lines"))),
        _ => None,
    }
}

struct Lengths {
    functions: Vec<Function>,
    /// Lines in test modules.
    tests: usize,
}

struct Function {
    name: String,
    line: usize,
    length: usize,
}

impl Lengths {
    fn walk(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if is_test_attribute(&tokens[at..])
                && let Some(end) = test_module(&tokens[at..])
            {
                self.tests += lines(&tokens[at], &tokens[at + end]);
                at += end + 1;
                continue;
            }
            if let Some(function) = function(&tokens[at..]) {
                self.functions.push(function);
            }
            if let TokenTree::Group(group) = &tokens[at] {
                self.walk(group.stream());
            }
            at += 1;
        }
    }
}

/// `#[cfg(test)]`.
fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] = tokens else { return false };
    hash.as_char() == '#' && attribute.stream().to_string().replace(' ', "") == "cfg(test)"
}

/// Where the body of the module ends that the attribute at the front belongs to, if it is one with a body.
fn test_module(tokens: &[TokenTree]) -> Option<usize> {
    let body = tokens.iter().position(|token| is_body(token) || is_end(token))?;
    let is_module = tokens[..body].iter().any(|token| is_word(token, "mod"));
    (is_module && is_body(&tokens[body])).then_some(body)
}

/// `fn name ... { body }` at the front. A signature without a body, or a function's type, has none.
fn function(tokens: &[TokenTree]) -> Option<Function> {
    let [keyword, TokenTree::Ident(name), ..] = tokens else { return None };
    if !is_word(keyword, "fn") {
        return None;
    }
    let body = tokens.iter().position(|token| is_body(token) || is_end(token))?;
    is_body(&tokens[body]).then(|| Function {
        name: name.to_string(),
        line: keyword.span().start().line,
        length: lines(keyword, &tokens[body]),
    })
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

fn is_body(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn is_end(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';')
}

fn lines(first: &TokenTree, last: &TokenTree) -> usize {
    last.span().end().line - first.span().start().line + 1
}

#[cfg(test)]
mod tests {
    use super::super::Severity::{self, Broken, Listed};
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[(Severity, &str)]) {
        let file = RustFile { path, text, tokens: text.parse().unwrap() };
        let found: Vec<(Severity, String)> =
            super::check(&file).into_iter().map(|finding| (finding.severity, finding.what)).collect();
        let found: Vec<(Severity, &str)> =
            found.iter().map(|(severity, what)| (*severity, what.as_str())).collect();
        assert_eq!(found, expected);
    }

    fn function_of(lines: usize) -> String {
        format!("fn long(x: u8) -> u8 {{\n{}}}\n", "    x + 1;\n".repeat(lines - 2))
    }

    #[test]
    fn a_long_function_is_listed_and_a_very_long_one_refused() {
        check("crates/a/src/b.rs", &function_of(100), &[]);
        check("crates/a/src/b.rs", &function_of(101), &[(Listed, "the function `long` has 101 lines")]);
        let expected = "the function `long` has 201 lines; 200 is the most";
        check("crates/a/src/b.rs", &function_of(201), &[(Broken, expected)]);
        let method = format!("impl A {{\n{}}}\n", function_of(150));
        check("crates/a/src/b.rs", &method, &[(Listed, "the function `long` has 150 lines")]);
    }

    #[test]
    fn a_long_file_is_listed_and_a_very_long_one_refused() {
        check("crates/a/src/b.rs", &"\n".repeat(501), &[(Listed, "the file has 501 lines")]);
        check("crates/a/src/b.rs", &"\n".repeat(901), &[(Broken, "the file has 901 lines; 900 is the most")]);
    }

    #[test]
    fn tests_and_tables_may_be_long() {
        let tests = format!("fn short() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n", function_of(950));
        check("crates/a/src/b.rs", &tests, &[]);
        check("crates/a/tests/b.rs", &function_of(950), &[]);
        check("crates/a/src/b_tests.rs", &function_of(950), &[]);
        check("crates/catalogue/src/table.rs", &function_of(950), &[]);
    }

    #[test]
    fn code_after_a_test_only_item_still_counts() {
        let text = format!("#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse std::fmt;\n{}", function_of(150));
        check("crates/a/src/b.rs", &text, &[(Listed, "the function `long` has 150 lines")]);
        check("crates/a/src/b.rs", "trait A { fn signature(&self); }\ntype F = fn(u8) -> u8;", &[]);
    }
}
