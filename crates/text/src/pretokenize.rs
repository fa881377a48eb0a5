//! Pre-tokenizers: how byte-level BPE splits text into words before it merges within each.
//!
//! The models' own definitions are regular expressions with look-ahead; backtracking engines take quadratic time or
//! overflow on long runs. Here each is a scanner that looks at every character a bounded number of times. Tests hold the
//! scanners equal to the expressions, which stand beside them.
//!
//! **Invariant:** the words tile the text.

mod scan;
#[cfg(test)]
mod tests;

/// A named chain of splits.
#[derive(Debug)]
pub struct PreTokenizer {
    names: &'static [&'static str],
    /// Each stage splits every piece of the stage before it, seeing nothing beyond that piece.
    stages: &'static [Stage],
    /// A word that is a token is taken whole, whether or not merges would lead to it.
    pub(crate) whole_words: bool,
    /// Prompts begin with BOS where the file does not say.
    pub(crate) adds_bos: bool,
}

/// One split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Each `\p{N}` alone.
    EachNumber,
    /// `\p{N}+`
    Numbers,
    /// `[0-9][0-9][0-9]`
    TripleDigits,
    /// ``[\p{P}\$\+<=>\^~\|]+``
    Punctuation,
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    Cl100k { digits: usize },
}

/// What is known by name. The names are those that GGUF files carry; a row's names are models whose own tokenizers have the
/// same rule. A name that is not here is refused: a rule that is nearly right changes ids silently.
static TABLE: [PreTokenizer; 5] = [
    PreTokenizer { names: &["gpt-2", "phi-2"], stages: &[Stage::Gpt2], whole_words: false, adds_bos: false },
    PreTokenizer {
        names: &["smollm", "starcoder", "refact", "command-r"],
        stages: &[Stage::EachNumber, Stage::Gpt2],
        whole_words: false,
        adds_bos: false,
    },
    PreTokenizer {
        names: &["qwen2", "stablelm2", "deepseek-r1-qwen"],
        stages: &[Stage::Cl100k { digits: 1 }],
        whole_words: false,
        adds_bos: false,
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3"],
        stages: &[Stage::Cl100k { digits: 3 }],
        whole_words: true,
        adds_bos: true,
    },
    // What the name means in GGUF: the rule for files converted before pre-tokenizers had names.
    PreTokenizer {
        names: &["default"],
        stages: &[Stage::Punctuation, Stage::Gpt2, Stage::Numbers, Stage::TripleDigits],
        whole_words: false,
        adds_bos: false,
    },
];

impl PreTokenizer {
    /// The pre-tokenizer that files call `name`.
    pub fn named(name: &str) -> Option<&'static PreTokenizer> {
        TABLE.iter().find(|row| row.names.contains(&name))
    }

    /// All names, for messages.
    pub fn names() -> String {
        TABLE.iter().flat_map(|row| row.names).copied().collect::<Vec<_>>().join(", ")
    }

    /// Hands each word of `text` to `word`, in order.
    pub fn split<'a>(&self, text: &'a str, word: &mut dyn FnMut(&'a str)) {
        split(self.stages, text, word);
    }
}

fn split<'a>(stages: &[Stage], text: &'a str, word: &mut dyn FnMut(&'a str)) {
    let Some((stage, later)) = stages.split_first() else { return word(text) };
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(stage.piece(rest));
        if later.is_empty() {
            word(piece)
        } else {
            split(later, piece, word)
        }
        rest = after;
    }
}
