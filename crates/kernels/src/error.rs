//! What can be wrong with a call: always the caller's data or request, never a broken invariant (those panic).

use crate::detect::Isa;
use crate::format::Format;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    #[error("unknown instruction set {name:?}: expected one of {}", Isa::ALL.map(Isa::name).join(", "))]
    UnknownIsa { name: String },

    #[error("this machine has no {isa}: it offers {}", Isa::available().into_iter().map(Isa::name).collect::<Vec<_>>().join(", "))]
    IsaUnavailable { isa: Isa },

    #[error("{threads} compute threads: expected 1 to {max}")]
    Threads { threads: usize, max: usize },

    #[error("cannot start compute thread {index}: {reason}")]
    Spawn { index: usize, reason: String },

    #[error("a row of {cols} inputs is not a whole number of {format} blocks of {block_len}")]
    Columns { format: Format, cols: usize, block_len: usize },

    #[error("{values} {format} values take {expected} bytes, found {found}")]
    Bytes { format: Format, values: usize, expected: usize, found: usize },
}
