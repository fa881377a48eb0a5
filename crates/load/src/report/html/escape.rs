//! Text from outside, made safe to stand in the page.

use sha2::{Digest, Sha256};

use crate::report::number::{self, printable};

/// Characters of a text from outside that are kept.
pub const TEXT_MAX: usize = 400;

/// Text for an element's content or a quoted attribute. Longer text is cut at [`TEXT_MAX`].
pub fn text(text: &str) -> String {
    short(text, TEXT_MAX)
}

/// As [`text`], cut at `max` characters.
pub fn short(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max) + 16);
    for char in printable(text, max).chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '`' => out.push_str("&#96;"),
            _ => out.push(char),
        }
    }
    out
}

/// A share as text for an element: what is not quite nothing is `<0.1 %`.
pub fn percent(share: f64) -> String {
    text(&number::percent(share))
}

/// A script's hash as a content security policy wants it.
pub fn sha256_base64(script: &str) -> String {
    base64(&Sha256::digest(script.as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word =
            group.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let index = (word >> (18 - 6 * digit)) & 63;
            out.push(if digit > group.len() { '=' } else { char::from(DIGITS[index as usize]) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        assert_eq!(text(r#"<b a='1'>"&`"#), "&lt;b a=&#39;1&#39;&gt;&quot;&amp;&#96;");
        assert_eq!(text("\u{0}\u{202e}"), "\u{fffd}\u{fffd}");
        assert_eq!(short("<<<<", 2), "&lt;…");
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        // RFC 4648, section 10.
        for (plain, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
