//! The table with names to find entries by. A name is found by exactly one entry, or the error says which was meant.

use std::path::PathBuf;

use crate::cache::{self, Listing};
use crate::error::CatalogueError;
use crate::fetch::{Fetch, Network};
use crate::model::Model;
use crate::table;

/// The models known by name, the folder they lie in, and the way to fetch them.
pub struct Catalogue {
    models: Vec<Model>,
    /// None: the user's cache folder, looked up when it is needed.
    folder: Option<PathBuf>,
    pub(crate) fetch: Box<dyn Fetch>,
}

impl Catalogue {
    /// The models that come with Firstlight, in the user's cache folder, fetched over the network.
    pub fn builtin() -> Catalogue {
        Catalogue { models: table::models(), folder: None, fetch: Box::new(Network::from_environment()) }
    }

    /// A catalogue of other models, in another folder, fetched another way.
    pub fn new(models: Vec<Model>, folder: PathBuf, fetch: Box<dyn Fetch>) -> Catalogue {
        Catalogue { models, folder: Some(folder), fetch }
    }

    /// The name of the model that is served when none is named.
    pub fn default_name() -> &'static str {
        table::DEFAULT
    }

    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// Finds a model by its name or an alias, in any case.
    pub fn find(&self, name: &str) -> Result<&Model, CatalogueError> {
        let wanted = name.trim().to_lowercase();
        let found = self.models.iter().find(|model| names(model).any(|known| known == wanted));
        found.ok_or_else(|| CatalogueError::UnknownModel {
            name: name.to_owned(),
            hint: self.nearest(&wanted).map_or(String::new(), |near| format!(" (did you mean {near:?}?)")),
            known: self.models.iter().map(|model| model.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Every model, and whether it is here.
    pub fn list(&self) -> Result<Vec<Listing<'_>>, CatalogueError> {
        let folder = self.folder()?;
        Ok(self.models.iter().map(|model| cache::listing(&folder, model)).collect())
    }

    pub(crate) fn folder(&self) -> Result<PathBuf, CatalogueError> {
        self.folder.clone().map_or_else(cache::cache_dir, Ok)
    }

    /// The name that is most like `wanted`, if any is near enough to have been meant.
    fn nearest(&self, wanted: &str) -> Option<&'static str> {
        const NEAR_ENOUGH: f64 = 0.8;
        let likeness = |known: &str| {
            let contained = wanted.len() >= 4 && known.contains(wanted);
            if contained { 1.0 } else { strsim::jaro_winkler(known, wanted) }
        };
        let scored = self.models.iter().map(|model| {
            let best = names(model).map(likeness).fold(0.0, f64::max);
            (best, model.name)
        });
        scored
            .filter(|(score, _)| *score >= NEAR_ENOUGH)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, name)| name)
    }
}

fn names(model: &Model) -> impl Iterator<Item = &'static str> {
    std::iter::once(model.name).chain(model.aliases.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::model::Source;

    #[track_caller]
    fn check(typed: &str, expected: Result<&str, &str>) {
        let catalogue = Catalogue::builtin();
        match (catalogue.find(typed), expected) {
            (Ok(model), Ok(name)) => assert_eq!(model.name, name),
            (Err(error), Err(part)) => {
                let message = error.to_string();
                assert!(message.contains(part), "{message:?} should contain {part:?}");
            }
            (found, expected) => {
                panic!("{typed:?} gave {:?}, expected {expected:?}", found.map(|m| m.name))
            }
        }
    }

    #[test]
    fn names_and_aliases_are_found_in_any_case() {
        check("smollm2-135m-instruct", Ok("smollm2-135m-instruct"));
        check("SmolLM2", Ok("smollm2-135m-instruct"));
        check(" Qwen2.5-Coder-1.5B-Instruct ", Ok("qwen2.5-coder-1.5b-instruct"));
    }

    #[test]
    fn a_near_miss_is_told_what_was_meant() {
        check("smolm2", Err("did you mean \"smollm2-135m-instruct\"?"));
        check("gema-3-270m", Err("did you mean \"gemma-3-270m\"?"));
        check("qwen2.5-coder-1.5b-instrct", Err("did you mean \"qwen2.5-coder-1.5b-instruct\"?"));
        check("270m", Err("did you mean \"gemma-3-270m\"?"));
    }

    #[test]
    fn a_name_like_nothing_gets_the_list_and_no_guess() {
        check(
            "xyzzy",
            Err("no model is called \"xyzzy\"; known models: smollm2-135m-instruct, gemma-3-270m"),
        );
        check("", Err("known models"));
    }

    #[test]
    fn no_name_or_file_is_used_twice_and_the_default_exists() {
        let catalogue = Catalogue::builtin();
        let mut seen = HashSet::new();
        for model in catalogue.models() {
            for name in names(model) {
                assert!(seen.insert(name), "{name} names two models");
                assert_eq!(name, name.to_lowercase());
            }
            assert!(seen.insert(model.file), "{} is the file of two models", model.file);
        }
        assert!(catalogue.find(Catalogue::default_name()).is_ok());
    }

    #[test]
    fn the_parts_of_every_model_add_up_to_its_file() {
        for model in table::models() {
            assert_eq!(model.sha256.len(), 64);
            for source in &model.sources {
                let Source::Wheels(parts) = source else { continue };
                assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), model.bytes, "{}", model.name);
                assert!(parts.iter().all(|part| part.sha256.len() == 64 && part.wheel_bytes > 0));
            }
        }
    }
}
