//! From a model file's metadata to the model's text: the one place where the two crates' types meet.

use std::sync::Arc;

use anyhow::Context;
use api::prompt::ModelText;
use models::families::Normalization;
use models::gguf::Metadata;
use text::{ChatTemplate, Tokenizer, VocabularySource};

/// The tokenizer, the chat template and the end-of-generation tokens of a model.
pub fn text(metadata: &Metadata) -> anyhow::Result<ModelText> {
    let read = models::Vocabulary::read(metadata)?;
    let vocabulary = Arc::new(text::Vocabulary::new(source(&read))?);
    let eog = vocabulary.eog().into();
    let tokenizer = Arc::new(Tokenizer::new(vocabulary));
    let template = read.chat_template.map(|source| ChatTemplate::new(source, Arc::clone(&tokenizer)));
    let template = template.transpose().context("tokenizer.chat_template")?;
    Ok(ModelText { tokenizer, template, eog })
}

fn source(read: &models::Vocabulary<'_>) -> VocabularySource {
    let owned = |texts: &[&[u8]]| texts.iter().map(|text| text.to_vec()).collect();
    VocabularySource {
        model: read.model.to_owned(),
        pre: read.pre.map(str::to_owned),
        tokens: owned(&read.tokens),
        token_types: read.token_types.clone(),
        scores: read.scores.clone(),
        merges: owned(&read.merges),
        bos: read.special.bos,
        eos: read.special.eos,
        eot: read.special.eot,
        eom: read.special.eom,
        unknown: read.special.unknown,
        padding: read.special.padding,
        add_bos: read.add_bos,
        add_eos: read.add_eos,
        add_space_prefix: read.add_space_prefix,
        normalize_nfc: read.normalization == Normalization::Nfc,
    }
}
