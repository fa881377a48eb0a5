//! Unicode's general categories as the pre-tokenizers' patterns need them.
//!
//! **Invariant:** the classes are those that a regular expression's `\p{L}`, `\p{N}`, `\p{P}` and `\s` match; the
//! tables come from the same crate that regular expressions are compiled with.

use std::sync::LazyLock;

use regex_syntax::hir::{Class as HirClass, HirKind};

/// A set of categories of one character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(u8);

impl Class {
    /// `\p{L}`
    pub const LETTER: Class = Class(1);
    /// `\p{N}`
    pub const NUMBER: Class = Class(2);
    /// `\p{P}`
    pub const PUNCTUATION: Class = Class(4);
    /// `\p{M}`
    pub const MARK: Class = Class(8);
    /// `\s`
    pub const SPACE: Class = Class(16);

    /// `[\p{C}\p{Z}]`, less the space: what Python's `repr` escapes.
    pub const UNPRINTABLE: Class = Class(32);

    const PATTERNS: [(Class, &'static str); 6] = [
        (Class::LETTER, r"\p{L}"),
        (Class::NUMBER, r"\p{N}"),
        (Class::PUNCTUATION, r"\p{P}"),
        (Class::MARK, r"\p{M}"),
        (Class::SPACE, r"\s"),
        (Class::UNPRINTABLE, r"[\p{C}\p{Z}--\x20]"),
    ];

    /// The categories of `character`.
    pub fn of(character: char) -> Class {
        let code = u32::from(character) as usize;
        Class(TABLE.pages[TABLE.page_of[code >> PAGE_BITS] as usize][code & (PAGE - 1)])
    }

    /// Whether any category is in both.
    pub const fn is(self, other: Class) -> bool {
        self.0 & other.0 != 0
    }

    /// Either of two.
    pub const fn or(self, other: Class) -> Class {
        Class(self.0 | other.0)
    }
}

const PAGE_BITS: usize = 8;
const PAGE: usize = 1 << PAGE_BITS;

/// Pages of 256 characters; equal pages are kept once.
struct Table {
    page_of: Vec<u16>,
    pages: Vec<[u8; PAGE]>,
}

static TABLE: LazyLock<Table> = LazyLock::new(table);

/// Makes the tables, which takes milliseconds, so that no request waits for them.
pub(crate) fn prepare() {
    LazyLock::force(&TABLE);
}

fn table() -> Table {
    let mut flat = vec![0u8; 0x11_0000];
    for (class, pattern) in Class::PATTERNS {
        let hir = regex_syntax::parse(pattern).expect("a class pattern is valid");
        let HirKind::Class(HirClass::Unicode(ranges)) = hir.kind() else {
            unreachable!("a class pattern is a class of characters")
        };
        for range in ranges.iter() {
            let codes = range.start() as usize..=range.end() as usize;
            flat[codes].iter_mut().for_each(|classes| *classes |= class.0);
        }
    }
    let mut table = Table { page_of: Vec::new(), pages: Vec::new() };
    for page in flat.chunks_exact(PAGE) {
        let known = table.pages.iter().position(|known| known == page);
        let index = known.unwrap_or_else(|| {
            table.pages.push(page.try_into().expect("chunks have a page's length"));
            table.pages.len() - 1
        });
        table.page_of.push(index as u16);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_agree_with_the_standard_library_where_it_knows_them() {
        // Unicode versions may differ by a few newly assigned characters, in one direction each.
        let within = |class, holds: fn(char) -> bool| {
            let mut characters = (0..=u32::from(char::MAX)).filter_map(char::from_u32);
            characters.all(|character| !Class::of(character).is(class) || holds(character))
        };
        assert!(within(Class::SPACE, char::is_whitespace));
        assert!(within(Class::NUMBER, char::is_numeric));
        assert!(within(Class::LETTER, char::is_alphabetic));
        let basic = (0..0x2_0000).filter_map(char::from_u32);
        let numbers = basic.clone().filter(|character| Class::of(*character).is(Class::NUMBER)).count();
        assert!(numbers >= 1_500, "{numbers} numbers");
        assert!(
            basic.clone().all(|character| character.is_whitespace() == Class::of(character).is(Class::SPACE))
        );
    }
}
