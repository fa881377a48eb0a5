//! GPT-2's byte alphabet: vocabularies of byte-level BPE spell each byte as one printable character.
//!
//! **Invariant:** the alphabet is a bijection between the 256 bytes and 256 characters.

/// The bytes that Latin-1 does not print, ascending; they are spelled U+0100 and up.
const UNPRINTABLE: [u8; 68] = unprintable();

/// The byte that a character of the alphabet spells.
pub fn byte_of(character: char) -> Option<u8> {
    match u32::from(character) {
        code @ 0..0x100 => prints(code as u8).then_some(code as u8),
        code => UNPRINTABLE.get(code as usize - 0x100).copied(),
    }
}

/// The bytes that `text` spells, if it is in the alphabet throughout.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    text.chars().map(byte_of).collect()
}

const fn prints(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

const fn unprintable() -> [u8; 68] {
    let mut bytes = [0; 68];
    let (mut byte, mut count) = (0, 0);
    while byte < 256 {
        if !prints(byte as u8) {
            bytes[count] = byte as u8;
            count += 1;
        }
        byte += 1;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_has_a_character_for_every_byte() {
        let mut seen: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn space_and_newline_are_spelled_as_gpt2_does() {
        assert_eq!(decode("ĠaĊ"), Some(b" a\n".to_vec()));
        assert_eq!(decode("▁a"), None);
    }
}
