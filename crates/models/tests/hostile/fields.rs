//! One field overwritten at a time: lengths, counts, types, shapes, offsets, sizes.

use models::testing::{Datum, FileBuilder, Image, tiny_model};

use crate::{accept, check};

const QUERY: &str = "blk.0.attn_q.weight";

fn tiny() -> FileBuilder {
    tiny_model("llama")
}

fn image() -> Image {
    tiny().build()
}

#[track_caller]
fn check_field(field: &str, bytes: &[u8], parts: &[&str]) {
    check(image().overwrite(field, bytes).bytes(), parts);
}

/// Sets a key to a value and expects a message that names the key.
#[track_caller]
fn check_key(key: &str, value: Datum, parts: &[&str]) {
    check(tiny().set(key, value).build().bytes(), parts);
}

#[test]
fn the_tiny_models_themselves_are_accepted() {
    for family in &models::families::FAMILIES {
        accept(&tiny_model(family.architecture).build());
    }
    accept(&tiny().version(2).build());
}

#[test]
fn files_that_are_no_gguf_are_refused() {
    check(b"", &["ends inside the header"]);
    check(b"G", &["ends inside the header"]);
    check(image().truncate(23).bytes(), &["ends inside the header"]);
    check(
        b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f",
        &["tensors", "at most"],
    );
    check(&[0; 4096], &["not a GGUF file"]);
    check_field("magic", b"FUGG", &["not a GGUF file", "FUGG"]);
    check_field("magic", b"\xff\x00\n\"", &["not a GGUF file"]);
}

#[test]
fn other_versions_are_refused_by_number() {
    for version in [0u32, 1, 4, 99, u32::MAX] {
        check_field("version", &version.to_le_bytes(), &["version", &version.to_string()]);
    }
    check_field("version", &3u32.to_be_bytes(), &["big-endian"]);
}

#[test]
fn counts_beyond_any_file_are_refused() {
    for count in [u64::MAX, 1 << 63, 1 << 40, 300_000] {
        check_field("tensors", &count.to_le_bytes(), &["tensors", "at most"]);
        check_field("keys", &count.to_le_bytes(), &["metadata keys", "at most"]);
    }
}

#[test]
fn counts_within_the_limit_but_beyond_the_file_are_refused() {
    check_field("keys", &60_000u64.to_le_bytes(), &["ends inside"]);
    check_field("tensors", &60_000u64.to_le_bytes(), &["tensor"]);
}

#[test]
fn string_lengths_beyond_the_file_are_refused() {
    for length in [u64::MAX, 1 << 63, 1 << 40, 1 << 30] {
        let length = length.to_le_bytes();
        check_field("general.name/name-length", &length, &["ends inside", "key 1"]);
        check_field("general.name/value", &length, &["ends inside", "general.name"]);
        check_field(&format!("{QUERY}/name-length"), &length, &["ends inside", "name of tensor"]);
    }
}

#[test]
fn empty_and_overlong_names_are_refused() {
    check(tiny().add("", "value").build().bytes(), &["its name has 0 bytes"]);
    check(tiny().add(&"k".repeat(70_000), "value").build().bytes(), &["its name has 70000 bytes"]);
    check(tiny().tensor_f32("", &[1], &[0.0]).build().bytes(), &["its name has 0 bytes"]);
    check(tiny().tensor_f32(&"t".repeat(2_000), &[1], &[0.0]).build().bytes(), &["its name has 2000 bytes"]);
    check_field("general.name/name", b"\xff\xfe", &["not valid UTF-8"]);
    check_field(&format!("{QUERY}/name"), b"\xff\xfe", &["not valid UTF-8"]);
}

#[test]
fn a_name_in_a_message_is_cut_to_fit() {
    check(
        tiny().add(&"k".repeat(10_000), Datum::Raw { kind: 99, payload: vec![] }).build().bytes(),
        &["(10000 bytes)"],
    );
}

#[test]
fn duplicate_keys_and_tensors_are_refused() {
    check(tiny().add("general.name", "again").build().bytes(), &["general.name", "appears twice"]);
    check(tiny().tensor_f32(QUERY, &[1], &[0.0]).build().bytes(), &[QUERY, "appears twice"]);
}

#[test]
fn unknown_value_types_are_refused() {
    for kind in [13u32, 255, u32::MAX] {
        check_field("general.name/type", &kind.to_le_bytes(), &["general.name", "unknown value type"]);
        check_field("tokenizer.ggml.tokens/value", &kind.to_le_bytes(), &["tokens", "unknown value type"]);
    }
    check_key("general.flag", Datum::Raw { kind: 7, payload: vec![2] }, &["general.flag", "bool of value 2"]);
}

/// An array's header: the type of its elements and their claimed count.
fn array_header(kind: u32, count: u64) -> Vec<u8> {
    [kind.to_le_bytes().to_vec(), count.to_le_bytes().to_vec()].concat()
}

#[test]
fn array_counts_beyond_the_file_are_refused() {
    for kind in 0..=12 {
        for count in [u64::MAX, 1 << 63, 1 << 61, 1 << 40, 10_000_000] {
            let value = Datum::Raw { kind: 9, payload: array_header(kind, count) };
            // As the last key, so that the claim meets the tensor table and then the end of the file.
            check_key("general.array", value, &["general.array"]);
        }
    }
}

#[test]
fn arrays_nested_deeply_are_refused_and_shallowly_accepted() {
    let nested = |depth: usize| {
        let mut payload = Vec::new();
        for _ in 1..depth {
            payload.extend(array_header(9, 1));
        }
        payload.extend(array_header(0, 0));
        Datum::Raw { kind: 9, payload }
    };
    accept(&tiny().set("general.array", nested(4)).build());
    check_key("general.array", nested(5), &["general.array", "nested"]);
    check_key("general.array", nested(100_000), &["general.array", "nested"]);
}

#[test]
fn shapes_whose_product_wraps_are_refused() {
    let shapes: [&[u64]; 8] = [
        &[u64::MAX, u64::MAX],
        &[1 << 32, 1 << 32],
        &[(1 << 42) + 1, 1 << 22],
        &[1 << 63, 2],
        &[1 << 62, 4],
        &[i64::MAX as u64, 1],
        &[1 << 16, 1 << 16, 1 << 16, 1 << 16],
        &[1 << 31, 1 << 31, 1],
    ];
    for shape in shapes {
        check(tiny().reshape(QUERY, shape).build().bytes(), &[QUERY]);
    }
}

#[test]
fn shapes_larger_than_the_data_are_refused() {
    for shape in [[64, 1 << 30], [1 << 40, 1], [64, 129], [1 << 34, 1 << 24]] {
        check(tiny().reshape(QUERY, &shape).build().bytes(), &[QUERY]);
    }
}

#[test]
fn empty_dimensions_are_refused() {
    for shape in [&[0, 64][..], &[64, 0], &[0], &[64, 64, 0, 1]] {
        check(tiny().reshape(QUERY, shape).build().bytes(), &[QUERY, "empty dimension"]);
    }
}

#[test]
fn dimension_counts_out_of_range_are_refused() {
    for count in [0u32, 5, 1_000_000, u32::MAX] {
        check_field(&format!("{QUERY}/dimension-count"), &count.to_le_bytes(), &[QUERY, "dimensions"]);
    }
}

#[test]
fn unknown_and_retired_tensor_types_are_refused() {
    // 4, 5, 31 to 33 and 36 to 38 were retired; 24 to 28 are plain integers and f64, no weights.
    for format in [4u32, 5, 24, 27, 28, 31, 36, 38, 1_000, u32::MAX] {
        check_field(
            &format!("{QUERY}/format"),
            &format.to_le_bytes(),
            &[QUERY, "has type", &format.to_string()],
        );
    }
}

#[test]
fn rows_that_are_no_whole_blocks_are_refused() {
    for format in [2u32, 8, 12, 14] {
        let file = tiny().tensor("odd", &[33, 2], format, vec![0; 1024]);
        check(file.build().bytes(), &["odd", "rows of 33 values"]);
    }
}

#[test]
fn offsets_out_of_place_are_refused() {
    for offset in [u64::MAX, u64::MAX - 31, 1 << 63, 1 << 40] {
        check_field(&format!("{QUERY}/offset"), &offset.to_le_bytes(), &[QUERY]);
    }
    check_field(&format!("{QUERY}/offset"), &1u64.to_le_bytes(), &[QUERY, "multiple of the alignment"]);
    check_field(&format!("{QUERY}/offset"), &0u64.to_le_bytes(), &["overlaps"]);
}

#[test]
fn sizes_out_of_range_are_refused() {
    let wrong = [
        ("block_count", [0, 1 << 31, u32::MAX]),
        ("embedding_length", [0, 63, u32::MAX]),
        ("feed_forward_length", [0, 1 << 31, u32::MAX]),
        ("attention.head_count", [0, 1 << 31, u32::MAX]),
        ("attention.head_count_kv", [0, 3, 8]),
        ("context_length", [0, 1 << 31, u32::MAX]),
        ("attention.key_length", [0, 31, u32::MAX]),
        ("attention.value_length", [0, 16, u32::MAX]),
        ("attention.sliding_window", [0, 1 << 31, u32::MAX]),
        ("rope.dimension_count", [0, 31, 34]),
    ];
    for (key, values) in wrong {
        let name = format!("llama.{key}");
        for value in values {
            let file = tiny().set(&name, Datum::U32(value)).build();
            // The width is contradicted by the embedding before anything else.
            let named = if key == "embedding_length" { "embedding_length" } else { &name };
            check(file.bytes(), &[named]);
        }
        check_key(&name, Datum::from("many"), &[&name, "must be an integer"]);
        check_key(&name, Datum::I32(-1), &[&name, "negative"]);
        check_key(&name, Datum::F32(3.0), &[&name, "must be an integer"]);
        check_key(&name, Datum::Integers(vec![4]), &[&name, "must be an integer"]);
    }
}

#[test]
fn heads_must_divide_the_width_where_no_head_size_is_given() {
    let file = tiny().remove("llama.attention.key_length").remove("llama.attention.value_length");
    let file = file
        .set("llama.attention.head_count", Datum::U32(6))
        .set("llama.attention.head_count_kv", Datum::U32(2));
    check(file.build().bytes(), &["llama.attention.head_count", "does not divide"]);
}

#[test]
fn numbers_that_are_not_positive_are_refused() {
    for key in ["llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon", "llama.rope.scaling.factor"]
    {
        for value in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            check_key(key, Datum::F32(value), &[key, "finite number above 0"]);
        }
        check_key(key, Datum::from("0.1"), &[key, "must be a float"]);
    }
}

#[test]
fn missing_keys_are_named() {
    for key in [
        "general.architecture",
        "llama.block_count",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.context_length",
        "llama.attention.layer_norm_rms_epsilon",
    ] {
        check(tiny().remove(key).build().bytes(), &[key, "is missing"]);
    }
}

#[test]
fn what_is_unsupported_is_named_together_with_what_is_supported() {
    let other = tiny().set("general.architecture", "mamba");
    check(other.build().bytes(), &["mamba", "llama, qwen2, qwen3, gemma3"]);
    check_key("llama.expert_count", Datum::U32(8), &["not supported", "experts"]);
    check_key(
        "llama.rope.scaling.type",
        "yarn".into(),
        &["not supported", "yarn", "llama.rope.scaling.type"],
    );
    check_key("split.count", Datum::U32(3), &["several files"]);
    check_key("general.type", "adapter".into(), &["adapter"]);
    let window = tiny_model("qwen2").set("qwen2.attention.sliding_window", Datum::U32(64));
    check(window.build().bytes(), &["sliding window", "qwen2"]);
    let window = tiny_model("gemma3").remove("gemma3.attention.sliding_window");
    check(window.build().bytes(), &["gemma3.attention.sliding_window", "is missing"]);
}

#[test]
fn alignments_out_of_range_or_of_a_wrong_type_are_refused() {
    const KEY: &str = "general.alignment";
    for alignment in [0, 1, 3, 7, 48, 1 << 31, u32::MAX] {
        check_key(KEY, Datum::U32(alignment), &[KEY, "power of two"]);
    }
    check_key(KEY, Datum::I32(32), &[KEY, "must be u32, but is i32"]);
    check_key(KEY, Datum::U64(32), &[KEY, "must be u32, but is u64"]);
    check_key(KEY, "32".into(), &[KEY, "must be u32, but is string"]);
}

#[test]
fn honest_alignments_are_accepted() {
    for alignment in [8, 32, 64, 4096] {
        accept(&tiny().set("general.alignment", Datum::U32(alignment)).build());
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = image();
    let (header, end) = (whole.header_bytes(), whole.bytes().len());
    let table = whole.field("token_embd.weight/name-length").start;
    let mut random = models::testing::Random(68);
    let within_metadata = (0..10).map(|_| random.below(table)).collect::<Vec<_>>();
    let within_table = (0..10).map(|_| table + random.below(header - table)).collect::<Vec<_>>();
    for length in within_metadata.into_iter().chain(within_table) {
        check(whole.clone().truncate(length).bytes(), &["ends inside"]);
    }
    for length in [header, header + 1, end / 2, end - 1] {
        check(whole.clone().truncate(length).bytes(), &["tensor", "cut short"]);
    }
}

#[test]
fn folders_and_pipes_are_refused_without_waiting() {
    let message = crate::load(&std::env::temp_dir()).expect_err("a folder is no model");
    assert!(message.contains("not a regular file"), "{message}");
    let message = crate::load(std::path::Path::new("/nonexistent.gguf")).expect_err("nothing is there");
    assert!(message.contains("/nonexistent.gguf"), "{message}");
}
