//! From unchecked metadata to a [`Vocabulary`]: a hostile file gets an error, never a panic or a huge allocation.
//!
//! **Invariant:** counts are checked before anything is allocated in proportion to them.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use protocol::TokenId;

use super::{EOG_NAMES, Merge, Model, TokenType, Vocabulary, VocabularyError, VocabularySource};
use crate::bytelevel;
use crate::merge::Merges;
use crate::pretokenize::PreTokenizer;
use crate::tokenizer::SPACE_MARK;

type Result<T> = std::result::Result<T, VocabularyError>;

/// Tokens by their spelling in the file.
type Spellings<'a> = HashMap<&'a str, u32>;

pub(super) fn vocabulary(source: VocabularySource) -> Result<Vocabulary> {
    let model = model(&source)?;
    let types = types(&source, model)?;
    let spelled = spelled(&source)?;
    let spellings = spellings(&spelled)?;
    let merges = match model {
        Model::ByteLevel(_) => listed_merges(&source.merges, &spellings)?,
        Model::SentencePiece { .. } => scored_merges(&source.scores, &spelled, &types)?,
    };
    let (bytes, ends) = text_of_tokens(&spelled, &types, model)?;
    let id = |key, id| special_id(key, id, source.tokens.len());
    let bos = id("tokenizer.ggml.bos_token_id", source.bos)?;
    let eos = id("tokenizer.ggml.eos_token_id", source.eos)?;
    let ends_of_turn =
        [eos, id("tokenizer.ggml.eot_token_id", source.eot)?, id("tokenizer.ggml.eom_token_id", source.eom)?];
    let named = EOG_NAMES.iter().filter_map(|name| spellings.get(name).copied());
    let named = named.filter(|token| types[*token as usize] == TokenType::Control).map(TokenId);
    let mut eog: Vec<TokenId> = ends_of_turn.into_iter().flatten().chain(named).collect();
    eog.sort_unstable();
    eog.dedup();
    let adds_bos = match model {
        Model::ByteLevel(pre) => pre.adds_bos,
        Model::SentencePiece { .. } => true,
    };
    let mut vocabulary = Vocabulary {
        model,
        normalize_nfc: source.normalize_nfc,
        bytes,
        ends,
        merges,
        characters: HashMap::new(),
        byte_tokens: [None; 256],
        by_bytes: Vec::new(),
        bos,
        eos,
        unknown: id("tokenizer.ggml.unknown_token_id", source.unknown)?,
        padding: id("tokenizer.ggml.padding_token_id", source.padding)?,
        add_bos: source.add_bos.unwrap_or(adds_bos) && bos.is_some(),
        add_eos: source.add_eos.unwrap_or(false) && eos.is_some(),
        eog,
        types,
    };
    index_single_units(&mut vocabulary, &spelled);
    if let Model::ByteLevel(PreTokenizer { whole_words: true, .. }) = model {
        let normal = |token: &TokenId| vocabulary.token_type(*token) == TokenType::Normal;
        let mut by_bytes: Vec<TokenId> = vocabulary.ids().filter(normal).collect();
        by_bytes.sort_by(|a, b| vocabulary.token_bytes(*a).cmp(vocabulary.token_bytes(*b)));
        vocabulary.by_bytes = by_bytes;
    }
    Ok(vocabulary)
}

fn model(source: &VocabularySource) -> Result<Model> {
    match source.model.as_str() {
        "gpt2" => {
            let name = source.pre.as_deref().ok_or(VocabularyError::MissingPre)?;
            let pre = PreTokenizer::named(name);
            pre.map(Model::ByteLevel).ok_or_else(|| VocabularyError::UnknownPre(excerpt(name)))
        }
        // Files of SentencePiece models carry `default` or nothing: there are no words to split.
        "llama" => match source.pre.as_deref() {
            None | Some("default") => {
                Ok(Model::SentencePiece { add_space_prefix: source.add_space_prefix.unwrap_or(true) })
            }
            Some(other) => Err(VocabularyError::UnknownPre(excerpt(other))),
        },
        other => Err(VocabularyError::UnknownModel(excerpt(other))),
    }
}

fn types(source: &VocabularySource, model: Model) -> Result<Vec<TokenType>> {
    let tokens = source.tokens.len();
    if tokens == 0 {
        return Err(VocabularyError::Missing { key: "tokenizer.ggml.tokens" });
    }
    bounded("tokenizer.ggml.tokens", tokens, Vocabulary::TOKENS_MAX)?;
    bounded("tokenizer.ggml.merges", source.merges.len(), Vocabulary::MERGES_MAX)?;
    let same_length = |key, count| match count == tokens {
        true => Ok(()),
        false => Err(VocabularyError::LengthMismatch { key, count, tokens }),
    };
    if !source.scores.is_empty() {
        same_length("tokenizer.ggml.scores", source.scores.len())?;
    }
    if let Some(index) = source.scores.iter().position(|score| !score.is_finite()) {
        return Err(VocabularyError::Score { index, value: source.scores[index] });
    }
    if source.token_types.is_empty() {
        return match model {
            Model::ByteLevel(_) => Ok(vec![TokenType::Normal; tokens]),
            // Without types a byte token could not be told from text that is spelled like one.
            Model::SentencePiece { .. } => Err(VocabularyError::Missing { key: "tokenizer.ggml.token_type" }),
        };
    }
    same_length("tokenizer.ggml.token_type", source.token_types.len())?;
    let typed = |(index, value): (usize, &i32)| match value {
        1 => Ok(TokenType::Normal),
        2 => Ok(TokenType::Unknown),
        3 => Ok(TokenType::Control),
        4 => Ok(TokenType::UserDefined),
        5 => Ok(TokenType::Unused),
        6 => Ok(TokenType::Byte),
        _ => Err(VocabularyError::TokenType { index, value: *value }),
    };
    source.token_types.iter().enumerate().map(typed).collect()
}

fn bounded(key: &'static str, count: usize, max: usize) -> Result<()> {
    match count <= max {
        true => Ok(()),
        false => Err(VocabularyError::TooMany { key, count, max }),
    }
}

fn spelled(source: &VocabularySource) -> Result<Vec<&str>> {
    let mut texts = Vec::with_capacity(source.tokens.len());
    for (index, bytes) in source.tokens.iter().enumerate() {
        let wrong = |what: String| VocabularyError::Token { index, what };
        if bytes.is_empty() || bytes.len() > Vocabulary::TOKEN_BYTES_MAX {
            let max = Vocabulary::TOKEN_BYTES_MAX;
            return Err(wrong(format!("has {} bytes; 1 to {max} are taken", bytes.len())));
        }
        texts.push(std::str::from_utf8(bytes).map_err(|_| wrong("is not valid UTF-8".into()))?);
    }
    Ok(texts)
}

fn spellings<'a>(spelled: &[&'a str]) -> Result<Spellings<'a>> {
    let mut spellings = HashMap::with_capacity(spelled.len());
    for (second, text) in spelled.iter().enumerate() {
        if let Some(first) = spellings.insert(*text, second as u32) {
            let (first, text) = (first as usize, excerpt(text));
            return Err(VocabularyError::DuplicateToken { first, second, text });
        }
    }
    Ok(spellings)
}

/// Byte-level BPE lists its merges, best first.
fn listed_merges(merges: &[Vec<u8>], spellings: &Spellings) -> Result<Merges> {
    if merges.is_empty() {
        return Err(VocabularyError::Missing { key: "tokenizer.ggml.merges" });
    }
    let mut table = Merges::with_capacity_and_hasher(merges.len(), RandomState::default());
    for (index, merge) in merges.iter().enumerate() {
        let wrong = |what: String| VocabularyError::Merge { index, what };
        let text = std::str::from_utf8(merge).map_err(|_| wrong("is not valid UTF-8".into()))?;
        let (left, right) = text.split_once(' ').ok_or_else(|| wrong("has no space".into()))?;
        let joined = [left, right].concat();
        let known = |part: &str| {
            let unknown = || wrong(format!("needs the token {:?}, which does not exist", excerpt(part)));
            spellings.get(part).copied().ok_or_else(unknown)
        };
        let pair = (known(left)?, known(right)?);
        table.insert(pair, Merge { rank: index as u32, token: known(&joined)? });
    }
    Ok(table)
}

/// SentencePiece lists no merges: any two tokens merge whose joined text is a token, the best score first. Of several
/// splits of one token the one with the longer left part goes first, as in the merges of the models' original files.
/// User-defined tokens count with score 0, which converters overwrite. Nothing merges into a control token: it would
/// let typed text become one.
fn scored_merges(scores: &[f32], spelled: &[&str], types: &[TokenType]) -> Result<Merges> {
    if scores.is_empty() {
        return Err(VocabularyError::Missing { key: "tokenizer.ggml.scores" });
    }
    let pieces: Vec<(u32, Cow<str>, f32)> = spelled
        .iter()
        .zip(types)
        .enumerate()
        .filter_map(|(token, (text, kind))| match kind {
            TokenType::Normal => Some((token as u32, Cow::Borrowed(*text), scores[token])),
            TokenType::UserDefined => Some((token as u32, Cow::Owned(text.replace(' ', SPACE_MARK)), 0.0)),
            _ => None,
        })
        .collect();
    let by_text: HashMap<&str, u32> = pieces.iter().map(|(token, text, _)| (&**text, *token)).collect();
    let mut merges = Vec::new();
    for (token, text, score) in &pieces {
        for (middle, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(middle);
            if let (Some(left), Some(right)) = (by_text.get(left), by_text.get(right)) {
                merges.push(Scored {
                    pair: (*left, *right),
                    token: *token,
                    score: *score,
                    left_bytes: middle,
                });
            }
        }
        bounded("tokenizer.ggml.scores", merges.len(), Vocabulary::MERGES_MAX)?;
    }
    merges.sort_by(|a, b| {
        b.score.total_cmp(&a.score).then(b.left_bytes.cmp(&a.left_bytes)).then(a.token.cmp(&b.token))
    });
    let ranked = merges.into_iter().enumerate();
    Ok(ranked.map(|(rank, merge)| (merge.pair, Merge { rank: rank as u32, token: merge.token })).collect())
}

/// A merge on its way to a rank.
struct Scored {
    pair: (u32, u32),
    token: u32,
    score: f32,
    left_bytes: usize,
}

/// The bytes each token stands for, in one buffer, and where each ends.
fn text_of_tokens(spelled: &[&str], types: &[TokenType], model: Model) -> Result<(Vec<u8>, Vec<u32>)> {
    let mut bytes = Vec::with_capacity(spelled.iter().map(|text| text.len()).sum());
    let mut ends = Vec::with_capacity(spelled.len());
    for (index, (text, kind)) in spelled.iter().zip(types).enumerate() {
        match (model, kind) {
            (Model::ByteLevel(_), TokenType::Normal) => match bytelevel::decode(text) {
                Some(decoded) => bytes.extend(decoded),
                // A token outside the byte alphabet was added to the vocabulary as plain text.
                None => bytes.extend(text.as_bytes()),
            },
            (Model::SentencePiece { .. }, TokenType::Normal) => {
                bytes.extend(text.replace(SPACE_MARK, " ").as_bytes());
            }
            (_, TokenType::Byte) => {
                let what = || "is a byte token, but not spelled like <0x0A>".to_owned();
                let byte = byte_of(text).ok_or_else(|| VocabularyError::Token { index, what: what() })?;
                bytes.push(byte);
            }
            _ => bytes.extend(text.as_bytes()),
        }
        ends.push(bytes.len() as u32);
    }
    Ok((bytes, ends))
}

fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

fn special_id(key: &'static str, id: Option<i64>, tokens: usize) -> Result<Option<TokenId>> {
    match id {
        None => Ok(None),
        Some(id) if (0..tokens as i64).contains(&id) => Ok(Some(TokenId(id as u32))),
        Some(id) => Err(VocabularyError::IdOutOfRange { key, id, tokens }),
    }
}

/// Fills the tables from which encoding starts: tokens of single characters and single bytes.
fn index_single_units(vocabulary: &mut Vocabulary, spelled: &[&str]) {
    for (token, text) in spelled.iter().enumerate() {
        let kind = vocabulary.types[token];
        match (vocabulary.model, kind) {
            (Model::ByteLevel(_), TokenType::Normal) => {
                if let Some([byte]) = bytelevel::decode(text).as_deref() {
                    vocabulary.byte_tokens[*byte as usize] = Some(token as u32);
                }
            }
            (Model::SentencePiece { .. }, TokenType::Byte) => {
                if let [byte] = *vocabulary.token_bytes(TokenId(token as u32)) {
                    vocabulary.byte_tokens[byte as usize] = Some(token as u32);
                }
            }
            (Model::SentencePiece { .. }, TokenType::Normal) => {
                let mut characters = text.chars();
                if let (Some(character), None) = (characters.next(), characters.next()) {
                    vocabulary.characters.insert(character, token as u32);
                }
            }
            _ => {}
        }
    }
}

/// Enough of a hostile file's string to recognize it in a message.
fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}
