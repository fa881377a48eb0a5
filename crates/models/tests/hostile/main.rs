//! Files that were made to hurt: every one is refused with a message that names the key or the tensor.

mod fields;
mod mutations;
mod process;
mod vocabulary;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use models::testing::Image;
use models::{Gguf, LoadOptions, Model, Vocabulary};

/// Reads all that a server reads at start, and says what went wrong.
fn load(path: &Path) -> Result<(), String> {
    let gguf = Gguf::open(path).map_err(|error| error.to_string())?;
    Vocabulary::read(gguf.metadata()).map_err(|error| error.to_string())?;
    Model::from_gguf(gguf, &LoadOptions::default()).map_err(|error| error.to_string())?;
    Ok(())
}

/// A file that is removed with its handle.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn of(bytes: &[u8]) -> TemporaryFile {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name =
            format!("firstlight-hostile-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).expect("the temporary folder is writable");
        TemporaryFile(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // A file left behind in the temporary folder is no reason to fail.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The file is refused, and the message holds each of `parts`.
#[track_caller]
fn check(bytes: &[u8], parts: &[&str]) {
    let file = TemporaryFile::of(bytes);
    let message = load(&file.0).expect_err(&format!("a file was accepted that should fail with {parts:?}"));
    for part in parts {
        assert!(message.contains(part), "the message {message:?} lacks {part:?}");
    }
    assert!(message.len() < 500, "a message of {} bytes", message.len());
}

/// The file is accepted.
#[track_caller]
fn accept(image: &Image) {
    let file = TemporaryFile::of(image.bytes());
    load(&file.0).expect("a valid file is accepted");
}
