//! A model that is ready to compute: settings, weights, kernels, and the buffers between them.
//!
//! **Invariant:** once loaded, nothing of the model's file is read again: it may be replaced or removed.

use std::path::Path;

use kernels::{Isa, Kernels, Precision, RopeParameters, RopeScaling, RopeTable};

use crate::config::Config;
use crate::error::LoadError;
use crate::gguf::{Gguf, Metadata};
use crate::transformer::{Ropes, Scratch};
use crate::weights::{Progress, Weights};

/// A loaded model.
pub struct Model {
    pub(crate) config: Config,
    pub(crate) weights: Weights,
    pub(crate) kernels: Kernels,
    pub(crate) ropes: Ropes,
    pub(crate) scratch: Scratch,
    metadata: Metadata,
}

/// How to load and compute.
#[derive(Clone, Copy)]
pub struct LoadOptions<'a> {
    /// The instruction set; `None` takes the best that the machine has.
    pub isa: Option<Isa>,
    pub precision: Precision,
    pub threads: usize,
    /// Told how many bytes of how many are packed.
    pub progress: Option<Progress<'a>>,
}

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        LoadOptions { isa: None, precision: Precision::Fast, threads, progress: None }
    }
}

impl Model {
    /// Opens, checks and repacks a model file.
    pub fn load(path: &Path, options: &LoadOptions<'_>) -> Result<Model, LoadError> {
        Model::from_gguf(Gguf::open(path)?, options)
    }

    /// The same for a file that is open already.
    pub fn from_gguf(gguf: Gguf, options: &LoadOptions<'_>) -> Result<Model, LoadError> {
        let config = Config::read(&gguf)?;
        let isa = options.isa.unwrap_or_else(Isa::best);
        let kernels = Kernels::new(isa, options.precision, options.threads)?;
        let weights = Weights::load(&gguf, &config, kernels.pool(), options.progress)?;
        let ropes = Ropes::new(&config, weights.rope_factors.as_deref());
        let scratch = Scratch::new(weights.has_floats());
        Ok(Model { config, weights, kernels, ropes, scratch, metadata: gguf.into_metadata() })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The file's metadata: the tokenizer's data and the chat template among it.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Bytes held by the weights.
    pub fn memory_bytes(&self) -> usize {
        self.weights.bytes()
    }
}

impl Ropes {
    fn new(config: &Config, factors: Option<&[f32]>) -> Ropes {
        let rope = &config.rope;
        let full = RopeParameters {
            dims: rope.dims,
            base: rope.base,
            scaling: match rope.scaling_factor {
                1.0 => RopeScaling::None,
                factor => RopeScaling::Linear { factor },
            },
            factors,
            positions: config.context,
        };
        // Layers with a window never see far, so nothing stretches their positions; where every layer has one, its base is
        // the model's only one and so is its scaling.
        let window = match config.window {
            Some(window) if window.global_every.is_some() => {
                RopeParameters { base: rope.window_base, scaling: RopeScaling::None, ..full }
            }
            _ => full,
        };
        Ropes { full: RopeTable::new(full), window: RopeTable::new(window) }
    }
}
