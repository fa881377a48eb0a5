//! What computes a batch: a model on this machine's cores, or a fake one in simulations.

use ledger::Parts;
use models::{Batch, KvCache, Logits, Model};

/// Computes one step.
///
/// **Invariant expected of it:** a row's logits depend on its sequence's tokens alone, not on what else is in the batch
/// nor on how the prompt was cut into chunks.
pub trait Executor {
    /// Writes the KV of the batch's rows into their blocks and returns logits for `batch.logit_rows`, in order; adds the
    /// time spent to `parts`.
    ///
    /// # Errors
    /// The batch's sequences are then lost, the others are not.
    fn execute(&mut self, batch: &Batch, parts: &mut Parts) -> Result<Logits, ExecuteError>;

    /// The length from which on a prompt's tokens are rounded in another way than generated ones, if they are.
    fn wide_from(&self) -> Option<usize> {
        None
    }
}

impl<E: Executor + ?Sized> Executor for Box<E> {
    fn execute(&mut self, batch: &Batch, parts: &mut Parts) -> Result<Logits, ExecuteError> {
        (**self).execute(batch, parts)
    }

    fn wide_from(&self) -> Option<usize> {
        (**self).wide_from()
    }
}

/// A step that gave no logits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecuteError {
    #[error("the model could not compute this step: {0}")]
    Failed(String),
    #[error("the model broke down while it computed this step: {0}")]
    Panicked(String),
}

/// A model on this machine's cores.
pub struct CpuExecutor {
    model: Model,
    kv: KvCache,
}

impl CpuExecutor {
    /// Computes `model` over `kv`.
    pub fn new(model: Model, kv: KvCache) -> Self {
        CpuExecutor { model, kv }
    }
}

impl Executor for CpuExecutor {
    fn execute(&mut self, batch: &Batch, parts: &mut Parts) -> Result<Logits, ExecuteError> {
        Ok(self.model.forward(batch, &mut self.kv, parts))
    }

    fn wide_from(&self) -> Option<usize> {
        self.model.kernels().has_wide_rows().then_some(models::batch::WIDE_FROM)
    }
}
