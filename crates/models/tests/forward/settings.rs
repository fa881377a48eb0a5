//! Each setting of a file changes what it should, and nothing else.

use models::testing::{Datum, FileBuilder, Random, tiny_model};

use crate::{exact, logits_alone, tokens};

/// Logits of a fixed sequence.
fn run(file: &FileBuilder) -> Vec<Vec<f32>> {
    let mut model = exact(file);
    let tokens = tokens(&mut Random(21), &model, 40);
    logits_alone(&mut model, &tokens)
}

/// The last logits after `first` and 39 fixed tokens.
fn last_after(file: &FileBuilder, first: u32) -> Vec<f32> {
    let mut model = exact(file);
    let mut tokens = tokens(&mut Random(22), &model, 40);
    tokens[0] = first;
    logits_alone(&mut model, &tokens).pop().expect("there are 40")
}

#[test]
fn without_a_window_the_first_token_is_never_forgotten() {
    let file = tiny_model("llama");
    assert!(last_after(&file, 5) != last_after(&file, 6));
}

#[test]
fn a_window_in_every_layer_hides_what_lies_behind_all_of_them() {
    // Three layers of 8 reach 21 tokens back at most.
    let file = tiny_model("llama").set("llama.attention.sliding_window", Datum::U32(8));
    assert!(last_after(&file, 5) == last_after(&file, 6));
    let wide = tiny_model("llama").set("llama.attention.sliding_window", Datum::U32(16));
    assert!(last_after(&wide, 5) != last_after(&wide, 6));
}

#[test]
fn gemma_remembers_through_its_global_layer() {
    let file = tiny_model("gemma3");
    assert!(last_after(&file, 5) != last_after(&file, 6));
}

#[test]
fn a_window_wider_than_the_sequence_changes_nothing() {
    let wide = tiny_model("llama").set("llama.attention.sliding_window", Datum::U32(40));
    assert!(run(&wide) == run(&tiny_model("llama")));
}

#[test]
fn rope_factors_of_one_change_nothing_and_of_two_equal_linear_scaling() {
    let factors = |factor: f32| tiny_model("llama").tensor_f32("rope_freqs.weight", &[16], &[factor; 16]);
    let linear = |factor: f32| {
        let file = tiny_model("llama").set("llama.rope.scaling.type", "linear");
        file.set("llama.rope.scaling.factor", Datum::F32(factor))
    };
    let plain = run(&tiny_model("llama"));
    assert!(run(&factors(1.0)) == plain);
    assert!(run(&linear(1.0)) == plain);
    assert!(run(&factors(2.0)) == run(&linear(2.0)));
    assert!(run(&factors(2.0)) != plain);
    let none = linear(2.0).set("llama.rope.scaling.type", "none");
    assert!(run(&none) == plain);
}

#[test]
fn every_rope_setting_is_heard() {
    let plain = run(&tiny_model("gemma3"));
    for key in ["gemma3.rope.freq_base", "gemma3.rope.freq_base_swa"] {
        assert!(run(&tiny_model("gemma3").set(key, Datum::F32(5e4))) != plain, "{key}");
    }
    let partial = tiny_model("llama").set("llama.rope.dimension_count", Datum::U32(16));
    assert!(run(&partial) != run(&tiny_model("llama")));
}

#[test]
fn softcaps_are_heard_and_bound_the_logits() {
    let plain = run(&tiny_model("gemma3"));
    let capped = run(&tiny_model("gemma3").set("gemma3.final_logit_softcapping", Datum::F32(0.5)));
    assert!(capped.iter().flatten().all(|logit| logit.abs() <= 0.5));
    assert!(plain.iter().flatten().any(|logit| logit.abs() > 0.5));
    let scores = run(&tiny_model("gemma3").set("gemma3.attn_logit_softcapping", Datum::F32(0.5)));
    assert!(scores != plain);
}

#[test]
fn biases_that_a_family_need_not_have_are_added_where_they_are() {
    let with = |value: f32| {
        let file = tiny_model("llama").tensor_f32("blk.1.attn_output.bias", &[64], &[value; 64]);
        file.tensor_f32("blk.0.attn_q.bias", &[128], &[value; 128])
    };
    let plain = run(&tiny_model("llama"));
    assert!(run(&with(0.0)) == plain);
    assert!(run(&with(0.1)) != plain);
}

#[test]
fn a_head_of_its_own_equal_to_the_embedding_gives_the_same_logits() {
    let tied = tiny_model("llama");
    let image = tied.build();
    let embedding = image.bytes()[image.field("token_embd.weight/data")].to_vec();
    let stored = tied.clone().tensor("output.weight", &[64, 80], 0, embedding);
    assert!(run(&stored) == run(&tied));
}

#[test]
fn any_alignment_gives_the_same_logits() {
    let plain = run(&tiny_model("qwen3"));
    for alignment in [8, 64, 4096] {
        assert!(run(&tiny_model("qwen3").set("general.alignment", Datum::U32(alignment))) == plain);
    }
}
