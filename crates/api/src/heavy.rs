//! Work that grows with its input, kept from holding up the other requests of its thread.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does `work` on an input of `bytes`; for a long one, the runtime moves the other requests of this thread elsewhere first.
pub fn heavy<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    const LONG: usize = 16 << 10;
    match bytes > LONG && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}
