//! `firstlight model inspect`: what a model is, what it costs, and what of it is unsupported.

use models::{Gguf, Inspection};

use crate::bytesize::ByteSize;
use crate::model::present;
use crate::vocabulary;

/// Tokens of a chat template that are printed unless all of it is asked for.
const TEMPLATE_PREVIEW: usize = 200;

/// Prints the description of a model file.
pub fn run(model: &str, template: bool, tensors: bool) -> anyhow::Result<()> {
    let present = present(Some(model))?;
    let gguf = Gguf::open(&present.path)?;
    let mut inspection = Inspection::of(&gguf)?;
    // What only the text side can tell: whether the tokenizer and the template work.
    if let Err(error) = vocabulary::text(gguf.metadata()) {
        inspection.warnings.push(format!("{error:#}"));
    }
    print(&present.path, &inspection);
    if let Some(source) = gguf.metadata().str("tokenizer.chat_template")? {
        let end = if template { source.len() } else { source.floor_char_boundary(TEMPLATE_PREVIEW) };
        let more = if end < source.len() { "… (--template prints all of it)" } else { "" };
        println!("\nchat template:\n{}{more}", &source[..end]);
    }
    if tensors {
        println!();
        for tensor in gguf.tensors() {
            println!("{:<36}{:<8}{:?}", tensor.name, tensor.format.name(), tensor.dimensions);
        }
    }
    Ok(())
}

fn print(path: &std::path::Path, inspection: &Inspection) {
    let line = |name: &str, value: String| println!("{name:<16}{value}");
    line("file", format!("{} ({})", path.display(), ByteSize(inspection.file_bytes as u64)));
    line("name", inspection.name.clone().unwrap_or_else(|| "(none)".to_owned()));
    line("architecture", inspection.architecture.clone());
    line("parameters", format!("{:.1} M", inspection.parameters as f64 / 1e6));
    if let Some(sizes) = &inspection.sizes {
        line(
            "layers",
            format!("{}, width {}, feed-forward {}", sizes.layers, sizes.width, sizes.feed_forward),
        );
        line("heads", format!("{}, KV heads {}, head size {}", sizes.heads, sizes.kv_heads, sizes.head_dim));
        if let Some(window) = &sizes.window {
            line(
                "window",
                format!("{} tokens in {} of {} layers", window.tokens, window.layers, sizes.layers),
            );
        }
        let head = if sizes.tied_head { "tied to the embedding" } else { "stored" };
        line("vocabulary", format!("{}, output head {head}", sizes.vocabulary));
        line("context", format!("{} tokens", sizes.context));
        let (token, full) = (sizes.kv_bytes_per_token as u64, sizes.kv_bytes_full_context as u64);
        line("KV per token", format!("{} in f16", ByteSize(token)));
        let note = if sizes.window.is_some() { ", windowed layers counted at their window" } else { "" };
        line("KV full context", format!("{}{note}", ByteSize(full)));
    }
    if let Some(tokenizer) = &inspection.tokenizer {
        line("tokenizer", format!("{tokenizer}, {} tokens", inspection.tokens.unwrap_or(0)));
    }
    println!("\n{:<8}{:>8}{:>12}{:>14}", "format", "tensors", "values", "bytes");
    for share in &inspection.formats {
        let millions = format!("{:.1} M", share.values as f64 / 1e6);
        let bytes = ByteSize(share.bytes as u64).to_string();
        println!("{:<8}{:>8}{millions:>12}{bytes:>14}", share.format, share.tensors);
    }
    for warning in &inspection.warnings {
        println!("\nwarning: {warning}");
    }
}
