//! What made-up prompts are made of: the model's own tokens where its tokenizer is at hand.

use std::sync::Arc;

use anyhow::{Context, bail};
use catalogue::Catalogue;
use load::workload::{Material, TextTokens};
use models::Gguf;
use protocol::TokenId;
use text::{ShowSpecial, Special, Tokenizer};

use crate::flags::BenchFlags;
use crate::vocabulary;

/// A model's tokenizer, as workloads use it.
struct Own(Arc<Tokenizer>);

impl TextTokens for Own {
    fn encode(&self, text: &str) -> Vec<u32> {
        self.0.encode(text, Special::Plain).into_iter().map(|token| token.0).collect()
    }

    fn decode(&self, ids: &[u32]) -> String {
        let tokens: Vec<TokenId> = ids.iter().copied().map(TokenId).collect();
        self.0.decode(&tokens, ShowSpecial::No)
    }

    fn vocabulary(&self) -> usize {
        self.0.vocabulary().len()
    }
}

/// The tokenizer that was asked for; else that of the served model, if the catalogue has it here; else plain words.
pub fn choose(flags: &BenchFlags, model: &str) -> anyhow::Result<Material> {
    match (&flags.tokenizer, flags.vocab_size) {
        (Some(_), Some(_)) => bail!("--tokenizer and --vocab-size exclude each other"),
        (None, Some(vocabulary)) => Ok(Material::Ids { vocabulary }),
        (Some(name), None) => {
            let catalogue = Catalogue::builtin();
            let found = catalogue.resolve(name)?;
            if !found.present {
                bail!("--tokenizer {name} is not here yet; fetch it with `firstlight model pull {name}`");
            }
            Ok(Material::Exact(Arc::new(Own(read(&found.path)?))))
        }
        (None, None) => match Catalogue::builtin().resolve(model) {
            Ok(found) if found.present => {
                eprintln!("prompts are made with the tokenizer of {}", found.path.display());
                Ok(Material::Exact(Arc::new(Own(read(&found.path)?))))
            }
            _ => Ok(Material::Words),
        },
    }
}

fn read(path: &std::path::Path) -> anyhow::Result<Arc<Tokenizer>> {
    let gguf = Gguf::open(path)?;
    let text = vocabulary::text(gguf.metadata()).with_context(|| path.display().to_string())?;
    Ok(text.tokenizer)
}
