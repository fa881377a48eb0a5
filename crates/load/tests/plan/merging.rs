//! A made-up tokenizer in the manner of byte-pair encoding, without any splitting before it: it merges across the seams
//! between words, so that the tokens of two texts put together are not those of the one and those of the other.

use load::workload::TextTokens;

pub struct Merging {
    /// By id.
    pieces: Vec<String>,
    /// What two tokens become together, at [`Merging::pair`]; 0 where they stay two. An id is its own rank, since merges are
    /// numbered as they are made.
    merges: Vec<u32>,
}

/// More than there are tokens.
const IDS: usize = 1024;

impl Merging {
    /// Forty words of two letters. One token each, also with the space before; and of each pair of words about one in five
    /// becomes one token together.
    pub fn new() -> Self {
        let mut made = Self { pieces: Vec::new(), merges: vec![0; IDS * IDS] };
        for letter in " abcdefghijklmnopqrstuvwxyz".chars() {
            made.pieces.push(letter.to_string());
        }
        let id = |letter: char| 1 + (letter as u32 - 'a' as u32);
        let mut words = Vec::new();
        for consonant in "bcdfghkl".chars() {
            for vowel in "aeiou".chars() {
                words.push(made.merge(id(consonant), id(vowel)));
            }
        }
        let spaced: Vec<u32> = words.iter().map(|word| made.merge(0, *word)).collect();
        for (i, left) in spaced.iter().enumerate() {
            for (j, right) in spaced.iter().enumerate() {
                if (i * 7 + j * 3) % 5 == 1 {
                    made.merge(*left, *right);
                    made.merge(words[i], *right);
                }
            }
        }
        made
    }

    fn pair(left: u32, right: u32) -> usize {
        left as usize * IDS + right as usize
    }

    fn merge(&mut self, left: u32, right: u32) -> u32 {
        let piece = format!("{}{}", self.pieces[left as usize], self.pieces[right as usize]);
        let id = self.pieces.len() as u32;
        self.pieces.push(piece);
        self.merges[Self::pair(left, right)] = id;
        id
    }
}

impl TextTokens for Merging {
    fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids: Vec<u32> =
            text.bytes().map(|byte| if byte == b' ' { 0 } else { 1 + u32::from(byte - b'a') }).collect();
        let together = |left: u32, right: u32| self.merges[Self::pair(left, right)];
        let lowest =
            |ids: &[u32]| ids.windows(2).map(|pair| together(pair[0], pair[1])).filter(|id| *id > 0).min();
        while let Some(lowest) = lowest(&ids) {
            let mut merged = Vec::with_capacity(ids.len());
            let mut at = 0;
            while at < ids.len() {
                let merges = ids.get(at + 1).is_some_and(|next| together(ids[at], *next) == lowest);
                merged.push(if merges { lowest } else { ids[at] });
                at += 1 + usize::from(merges);
            }
            ids = merged;
        }
        ids
    }

    fn decode(&self, ids: &[u32]) -> String {
        ids.iter().map(|id| self.pieces[*id as usize].as_str()).collect()
    }

    fn vocabulary(&self) -> usize {
        self.pieces.len()
    }
}
