//! From what a user typed to a file: the name of a known model, or a path. Nothing is fetched here.

use std::fs::File;
use std::io::Read;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};

use crate::cache::Place;
use crate::error::CatalogueError;
use crate::find::Catalogue;
use crate::model::Model;

/// The four bytes every GGUF file begins with.
const MAGIC: &[u8; 4] = b"GGUF";

/// The file a user means.
#[derive(Clone, Debug)]
pub struct Resolved<'a> {
    /// The name to serve it under: the model's, or the file's without its ending.
    pub name: String,
    pub path: PathBuf,
    /// Whether the file is there; a model that is not has to be pulled first.
    pub present: bool,
    /// The catalogue's entry, when it was named; none for a path.
    pub model: Option<&'a Model>,
}

impl Catalogue {
    /// Finds the file for a model's name or for the path of a `.gguf` file.
    ///
    /// What looks like a path (it ends in `.gguf`, has a separator in it, or names an existing file) is taken for one.
    pub fn resolve(&self, name_or_path: &str) -> Result<Resolved<'_>, CatalogueError> {
        let path = Path::new(name_or_path);
        let has_separator = name_or_path.contains('/') || name_or_path.contains(MAIN_SEPARATOR);
        let ends_in_gguf = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"));
        if has_separator || ends_in_gguf || path.is_file() {
            return local(path);
        }
        let model = self.find(name_or_path)?;
        let place = Place::of(&self.folder()?, model);
        let present = place.is_finished(model);
        Ok(Resolved { name: model.name.to_owned(), path: place.file, present, model: Some(model) })
    }
}

fn local(path: &Path) -> Result<Resolved<'static>, CatalogueError> {
    if path.is_dir() {
        return Err(CatalogueError::NotGguf { path: path.to_owned(), found: "is a folder".to_owned() });
    }
    if !path.exists() {
        return Err(CatalogueError::NoSuchFile { path: path.to_owned() });
    }
    let mut start = Vec::new();
    let mut file = File::open(path).map_err(CatalogueError::io("open", path))?.take(MAGIC.len() as u64);
    file.read_to_end(&mut start).map_err(CatalogueError::io("read", path))?;
    if start != MAGIC {
        let found = match start.is_empty() {
            true => "is empty".to_owned(),
            false => format!("begins with \"{}\"", start.escape_ascii()),
        };
        return Err(CatalogueError::NotGguf { path: path.to_owned(), found });
    }
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(Resolved { name, path: path.to_owned(), present: true, model: None })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fetch::Network;

    fn catalogue(folder: &Path) -> Catalogue {
        Catalogue::new(crate::table::models(), folder.to_owned(), Box::new(Network::from_environment()))
    }

    #[track_caller]
    fn check(typed: &Path, expected: Result<&str, &str>) {
        let catalogue = catalogue(Path::new("/nowhere"));
        match (catalogue.resolve(&typed.to_string_lossy()), expected) {
            (Ok(found), Ok(name)) => assert_eq!((found.name.as_str(), found.present), (name, true)),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expected) => panic!("{typed:?} gave {found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn a_local_gguf_file_is_served_under_its_own_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my-model.Q8_0.gguf");
        fs::write(&path, b"GGUF and so on").unwrap();
        check(&path, Ok("my-model.Q8_0"));
    }

    #[test]
    fn a_path_that_is_not_a_gguf_file_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        check(&folder.path().join("missing.gguf"), Err("there is no file at"));
        check(folder.path(), Err("is a folder"));
        check(&write("empty.gguf", b""), Err("is empty"));
        check(&write("short.gguf", b"GG"), Err("begins with \"GG\""));
        check(&write("model.safetensors", b"PK\x03\x04..."), Err(r#"begins with "PK\x03\x04""#));
    }

    #[test]
    fn a_name_is_resolved_to_where_its_file_is_or_will_be() {
        let folder = tempfile::tempdir().unwrap();
        let catalogue = catalogue(folder.path());
        let found = catalogue.resolve("gemma-3").unwrap();
        assert_eq!((found.name.as_str(), found.present), ("gemma-3-270m", false));
        assert_eq!(found.path, folder.path().join("models").join("gemma-3-270m.gguf"));
        assert!(found.model.is_some());
    }

    #[test]
    fn a_file_of_the_wrong_length_is_not_taken_for_the_model() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("models")).unwrap();
        fs::write(folder.path().join("models").join("gemma-3-270m.gguf"), b"GGUF").unwrap();
        assert!(!catalogue(folder.path()).resolve("gemma-3-270m").unwrap().present);
    }
}
