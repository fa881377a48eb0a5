//! What loading refuses, and what it tells while it works.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};

use models::testing::{FileBuilder, tiny_model};
use models::{Gguf, Inspection, LoadOptions, Model};

use crate::{logits_alone, try_load};

/// Loading fails with a message that holds each of `parts`.
#[track_caller]
fn check(file: FileBuilder, parts: &[&str]) {
    let error = try_load(&file, &LoadOptions::default()).err().expect("the file should be refused");
    for part in parts {
        assert!(error.to_string().contains(part), "the message {error} lacks {part:?}");
    }
}

#[test]
fn every_missing_tensor_is_named() {
    for architecture in ["llama", "qwen2", "qwen3", "gemma3"] {
        let file = tiny_model(architecture);
        // Without a head of its own a model is a tied one, and complete.
        for name in file.tensor_names().iter().filter(|name| *name != "output.weight") {
            check(file.clone().remove_tensor(name), &[name, "is missing"]);
        }
    }
}

#[test]
fn every_misshapen_tensor_is_named() {
    let file = tiny_model("gemma3");
    for name in file.tensor_names() {
        // Half of every tensor is still within the file.
        let shape: &[u64] = if name.contains("norm") { &[16] } else { &[32, 32] };
        check(file.clone().reshape(&name, shape), &[&name, "shape"]);
    }
}

#[test]
fn trailing_dimensions_of_one_are_no_fault() {
    let file = tiny_model("llama").reshape("blk.0.attn_q.weight", &[64, 128, 1, 1]);
    assert!(try_load(&file, &LoadOptions::default()).is_ok());
}

#[test]
fn tensors_that_the_architecture_does_not_have_are_refused() {
    let extra = tiny_model("llama").tensor_f32("blk.0.ffn_gate_inp.weight", &[64, 8], &[0.0; 512]);
    check(extra, &["not supported", "blk.0.ffn_gate_inp.weight"]);
    let biases = tiny_model("llama").tensor_f32("blk.0.ffn_up.bias", &[96], &[0.0; 96]);
    check(biases, &["not supported", "blk.0.ffn_up.bias"]);
}

#[test]
fn rope_factors_that_are_no_divisors_are_refused() {
    for factor in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let file = tiny_model("llama").tensor_f32("rope_freqs.weight", &[16], &[factor; 16]);
        check(file, &["rope_freqs.weight", "finite number above 0"]);
    }
}

#[test]
fn an_impossible_number_of_threads_is_refused() {
    let options = LoadOptions { threads: 0, ..LoadOptions::default() };
    assert!(try_load(&tiny_model("llama"), &options).is_err());
}

#[test]
fn progress_rises_to_the_whole() {
    let seen = RefCell::new(Vec::new());
    let report = |done: usize, total: usize| seen.borrow_mut().push((done, total));
    let options = LoadOptions { progress: Some(&report), ..LoadOptions::default() };
    try_load(&tiny_model("qwen2"), &options).expect("the file is valid");
    let seen = seen.into_inner();
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 == pair[1].1));
    assert!(seen.last().is_some_and(|(done, total)| done == total));
}

#[test]
fn the_memory_of_a_model_is_about_its_file() {
    let file = tiny_model("llama");
    let model = try_load(&file, &LoadOptions::default()).expect("the file is valid");
    let (held, stored) = (model.memory_bytes() as f64, file.build().bytes().len() as f64);
    assert!(held > 0.9 * stored && held < 1.1 * stored, "{held} bytes held for {stored} stored");
}

/// A file in the temporary folder, and what it is open as.
fn open(name: &str) -> (PathBuf, Gguf) {
    let path = std::env::temp_dir().join(format!("firstlight-{name}-{}.gguf", std::process::id()));
    tiny_model("llama").build().write(&path);
    let gguf = Gguf::open(&path).expect("the file is valid");
    (path, gguf)
}

fn cut(path: &Path) {
    let file = File::options().write(true).open(path).expect("the file is there");
    file.set_len(100).expect("a file can be cut");
}

#[test]
fn a_file_that_is_cut_between_opening_and_loading_is_refused() {
    let (path, gguf) = open("cut-early");
    cut(&path);
    let error = Model::from_gguf(gguf, &LoadOptions::default()).err().expect("its weights are gone");
    assert!(error.to_string().contains("shrank"), "{error}");
    std::fs::remove_file(&path).expect("the file is there");
}

#[test]
fn a_file_that_is_cut_after_loading_is_not_missed() {
    let (path, gguf) = open("cut-late");
    let mut model = Model::from_gguf(gguf, &LoadOptions::default()).expect("the file is whole");
    let before = logits_alone(&mut model, &[1, 2, 3]);
    cut(&path);
    assert!(logits_alone(&mut model, &[1, 2, 3]) == before);
    assert!(models::Vocabulary::read(model.metadata()).is_ok());
    std::fs::remove_file(&path).expect("the file is there");
}

#[test]
fn a_small_file_is_inspected_in_full() {
    let path = std::env::temp_dir().join(format!("firstlight-inspect-{}.gguf", std::process::id()));
    tiny_model("gemma3").build().write(&path);
    let gguf = models::Gguf::open(&path).expect("the file is valid");
    let seen = Inspection::of(&gguf).expect("the file is valid");
    std::fs::remove_file(&path).expect("the file was just written");
    let sizes = seen.sizes.expect("the sizes are supported");
    assert_eq!(
        (seen.architecture.as_str(), seen.tokens, seen.has_chat_template),
        ("gemma3", Some(80), false)
    );
    assert_eq!((sizes.layers, sizes.vocabulary, sizes.context), (7, 80, 256));
    let window = sizes.window.expect("gemma3 has a window");
    assert_eq!((window.tokens, window.layers), (8, 6));
    // Keys and values of 2 heads of 32 in 2 bytes, over 7 layers.
    assert_eq!(sizes.kv_bytes_per_token, 7 * 2 * 2 * 32 * 2);
    assert_eq!(sizes.kv_bytes_full_context, (6 * 8 + 256) * 2 * 2 * 32 * 2);
    assert_eq!(seen.formats.len(), 1);
    assert_eq!((seen.formats[0].format, seen.formats[0].values), ("F32", seen.parameters));
    assert!(seen.warnings.iter().any(|warning| warning.contains("chat template")));
}
