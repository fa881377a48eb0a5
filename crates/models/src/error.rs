//! Why a model could not be loaded or run.

use crate::gguf::GgufError;

/// Why a file could not become a model.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Gguf(#[from] GgufError),

    #[error("architecture {architecture:?} is not supported; supported are {supported}")]
    Architecture { architecture: String, supported: String },

    #[error("the model asks for something that is not supported: {0}")]
    Unsupported(String),

    #[error("tensor {tensor:?}: {source}")]
    Pack { tensor: String, source: kernels::KernelError },

    #[error(transparent)]
    Kernel(#[from] kernels::KernelError),
}
