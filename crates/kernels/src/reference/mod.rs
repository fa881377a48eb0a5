//! Plain Rust on any machine: the definition of what is right, and what every other folder is tested against.

mod product;
mod quantize;
mod unpack;
pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod norm;
pub(crate) mod rope;
pub(crate) mod softmax;

/// The proof of nothing: always available.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference;
