//! Command-line flags: a pure parse, with names that users of vLLM and llama.cpp expect where the meaning is the same.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::bytesize::ByteSize;

/// Serves large language models and accounts for every nanosecond of every request.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model through an OpenAI-compatible API.
    Serve(ServeFlags),
    /// Talk to a model in the terminal; each answer ends with where its time went.
    Chat(ChatFlags),
    /// List, fetch and inspect models.
    #[command(subcommand)]
    Model(ModelCommand),
}

#[derive(Debug, Args)]
pub struct ServeFlags {
    #[command(flatten)]
    pub engine: EngineFlags,
    /// Address to listen on. Anything but a loopback address should come with --api-key.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: std::net::IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Key that clients must send as `Authorization: Bearer KEY`; may be given several times.
    #[arg(long = "api-key", env = "FIRSTLIGHT_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub api_keys: Vec<String>,
    /// Name(s) that requests use for the model, the first one being the one that answers carry [default: the model's own].
    #[arg(long = "served-model-name", value_name = "NAME", num_args = 1..)]
    pub served_model_names: Vec<String>,
    /// Seconds that running requests may take to finish after a first SIGTERM or Ctrl-C.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub drain_timeout: u64,
    /// Seconds between signs of life on a silent stream; 0 sends none.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub keepalive: u64,
}

/// What decides how the model runs; the same for `serve` and for a `chat` of its own.
#[derive(Debug, Args)]
pub struct EngineFlags {
    /// A name from `firstlight model ls`, or the path of a .gguf file [default: the catalogue's small default model].
    pub model: Option<String>,
    /// Tokens that prompt and answer may have together [default: the model's context, if the KV memory holds it].
    #[arg(long, value_name = "TOKENS")]
    pub max_model_len: Option<usize>,
    /// Sequences that run at once.
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub max_num_seqs: usize,
    /// Tokens that one engine step computes, prompts and answers together.
    #[arg(long, default_value_t = 512, value_name = "TOKENS")]
    pub max_num_batched_tokens: usize,
    /// Sequences that wait before new ones are refused with 503.
    #[arg(long, default_value_t = 1024, value_name = "N")]
    pub max_queue: usize,
    /// Memory for the KV cache, such as 512MiB or 4GiB.
    #[arg(long, default_value = "2GiB", value_name = "BYTES")]
    pub kv_memory: ByteSize,
    /// Compute threads [default: the cores this process may use].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Compute with f32 activations and f32 KV: slower, and as near to the weights as they are stored.
    #[arg(long)]
    pub exact: bool,
}

#[derive(Debug, Args)]
pub struct ChatFlags {
    #[command(flatten)]
    pub engine: EngineFlags,
    /// Talk to this server instead of starting one, such as http://127.0.0.1:8000.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Key for --url.
    #[arg(long, env = "FIRSTLIGHT_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub api_key: Option<String>,
    /// Say this, print the answer, and leave.
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// A system message to begin with.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Print the waterfall after each answer, not only on /why.
    #[arg(long)]
    pub waterfall: bool,
    /// Sampling temperature [default: the server's].
    #[arg(long, value_name = "T")]
    pub temperature: Option<f32>,
    /// Tokens that an answer has at most.
    #[arg(long, default_value_t = 1024, value_name = "TOKENS")]
    pub max_tokens: usize,
}

#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// List the catalogue's models and which of them are here.
    Ls,
    /// Fetch a model into the cache; does nothing if it is there.
    Pull {
        /// A name from `firstlight model ls` [default: the small default model].
        name: Option<String>,
    },
    /// Print what a model is, what it costs, and what of it is unsupported.
    Inspect {
        /// A name from `firstlight model ls`, or the path of a .gguf file.
        model: PathBuf,
        /// Print the chat template in full.
        #[arg(long)]
        template: bool,
        /// List every tensor.
        #[arg(long)]
        tensors: bool,
    },
}
