"""Tiny models with random weights from fixed seeds, for the families and variants that no real model here covers.

The weights mean nothing; the files are whole GGUF models with a working tokenizer, and their logits are goldens.
"""

import random
from pathlib import Path

import gguf
import numpy as np

import forward
import logits_goldens
import vocabulary

OUT = Path(__file__).parents[2] / "crates/models/tests/goldens/tiny"
TYPES = gguf.GGMLQuantizationType
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PAIRS = "th he in er an re on at en nd ti es or te of ed is it al ar".split()
VOCABULARY = 300
CONTEXT = 512
EPSILON = 0.01  # far larger than any real one, so that leaving it out or misplacing it shows

# What differs from file to file. `types` are dealt out to the matrices in turn.
MODELS = {
    "llama-gqa-freq-factors": {
        "architecture": "llama", "width": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 96, "layers": 3,
        "rope_base": 500_000.0, "freq_factors": True, "tied": False, "types": ["Q8_0", "F16", "Q8_0", "F32"],
    },
    "mistral-wide-heads": {
        "architecture": "llama", "width": 96, "heads": 4, "kv_heads": 1, "head_dim": 32, "ffn": 128, "layers": 2,
        "rope_base": 1_000_000.0, "tied": False, "types": ["Q4_0", "Q5_1", "Q8_0", "BF16"],
    },
    "llama-tied-mha": {
        "architecture": "llama", "width": 64, "heads": 4, "kv_heads": 4, "head_dim": 16, "ffn": 128, "layers": 2,
        "rope_base": 10_000.0, "tied": True, "types": ["Q4_1", "Q5_0", "F16"],
    },
    "qwen2-biases": {
        "architecture": "qwen2", "width": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 96, "layers": 2,
        "rope_base": 1_000_000.0, "tied": True, "types": ["F16", "Q8_0"],
    },
    "qwen3": {
        "architecture": "qwen3", "width": 64, "heads": 4, "kv_heads": 2, "head_dim": 32, "ffn": 96, "layers": 3,
        "rope_base": 1_000_000.0, "tied": True, "types": ["Q8_0", "F16", "Q8_0", "F32"],
    },
    "qwen3-untied": {
        "architecture": "qwen3", "width": 96, "heads": 6, "kv_heads": 3, "head_dim": 16, "ffn": 64, "layers": 2,
        "rope_base": 10_000.0, "tied": False, "types": ["BF16", "Q4_0", "Q5_0"],
    },
    "gemma3-window-8": {
        "architecture": "gemma3", "width": 64, "heads": 4, "kv_heads": 1, "head_dim": 16, "ffn": 64, "layers": 7,
        "rope_base": 1_000_000.0, "window": 8, "tied": True, "types": ["Q8_0", "F16", "Q5_0", "Q8_0"],
    },
    "gemma3-scaled-rope": {
        "architecture": "gemma3", "width": 64, "heads": 2, "kv_heads": 1, "head_dim": 32, "ffn": 64, "layers": 6,
        "rope_base": 1_000_000.0, "rope_scale": 8.0, "window": 16, "tied": True, "types": ["Q8_0", "F16", "Q4_1", "Q8_0"],
    },
}  # fmt: skip


def byte_level_vocabulary(writer: gguf.GGUFWriter) -> None:
    """256 bytes, merges of common pairs (and of a space before them), control tokens, and unused ones to fill up."""
    tokens = list(vocabulary.byte_alphabet().values())
    merges = [f"{pair[0]} {pair[1]}" for pair in PAIRS] + [f"Ġ {pair}" for pair in PAIRS]
    tokens += [merge.replace(" ", "") for merge in merges] + CONTROLS
    types = [vocabulary.NORMAL] * (len(tokens) - len(CONTROLS)) + [vocabulary.CONTROL] * len(CONTROLS)
    while len(tokens) < VOCABULARY:
        types.append(vocabulary.UNUSED)
        tokens.append(f"[PAD{len(tokens)}]")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)


def byte_fallback_vocabulary(writer: gguf.GGUFWriter) -> None:
    """Gemma's kind: control tokens, 256 byte tokens, and some pieces with scores."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [vocabulary.CONTROL] * 4 + [vocabulary.BYTE] * 256
    pieces = [vocabulary.SPACE, *sorted(set("".join(PAIRS))), *PAIRS][: VOCABULARY - len(tokens)]
    scores = [0.0] * len(tokens) + [float(-index) for index in range(len(pieces))]
    tokens, types = tokens + pieces, types + [vocabulary.NORMAL] * len(pieces)
    while len(tokens) < VOCABULARY:
        types.append(vocabulary.CONTROL)
        scores.append(-1000.0)
        tokens.append(f"<unused{len(tokens)}>")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


def add_metadata(writer: gguf.GGUFWriter, shape: dict) -> None:
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape["width"])
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["ffn"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_key_length(shape["head_dim"])
    writer.add_value_length(shape["head_dim"])
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(shape["rope_base"])
    if shape["architecture"] == "llama":
        writer.add_rope_dimension_count(shape["head_dim"])
        writer.add_vocab_size(VOCABULARY)
    if "window" in shape:
        writer.add_sliding_window(shape["window"])
    if "rope_scale" in shape:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(shape["rope_scale"])


def matrices(shape: dict) -> dict[str, tuple[int, int]]:
    """Name to [outputs, inputs]."""
    width, ffn = shape["width"], shape["ffn"]
    rows, kv_rows = shape["heads"] * shape["head_dim"], shape["kv_heads"] * shape["head_dim"]
    result = {"token_embd.weight": (VOCABULARY, width)}
    if not shape["tied"]:
        result["output.weight"] = (VOCABULARY, width)
    for layer in range(shape["layers"]):
        block = {
            "attn_q": (rows, width), "attn_k": (kv_rows, width), "attn_v": (kv_rows, width),
            "attn_output": (width, rows), "ffn_gate": (ffn, width), "ffn_up": (ffn, width), "ffn_down": (width, ffn),
        }  # fmt: skip
        result |= {f"blk.{layer}.{name}.weight": size for name, size in block.items()}
    return result


def vectors(shape: dict) -> dict[str, tuple[int, float, float]]:
    """Name to length, mean and spread."""
    width, head_dim = shape["width"], shape["head_dim"]
    result = {"output_norm.weight": (width, 1.0, 0.2)}
    for layer in range(shape["layers"]):
        block = {"attn_norm.weight": (width, 1.0, 0.2), "ffn_norm.weight": (width, 1.0, 0.2)}
        if shape["architecture"] in ("qwen3", "gemma3"):
            block |= {"attn_q_norm.weight": (head_dim, 1.5, 0.3), "attn_k_norm.weight": (head_dim, 1.5, 0.3)}
        if shape["architecture"] == "gemma3":
            block |= {"post_attention_norm.weight": (width, 1.0, 0.2), "post_ffw_norm.weight": (width, 1.0, 0.2)}
        if shape["architecture"] == "qwen2":
            kv_rows = shape["kv_heads"] * head_dim
            block |= {"attn_q.bias": (shape["heads"] * head_dim, 0.0, 0.5)}
            block |= {"attn_k.bias": (kv_rows, 0.0, 0.5), "attn_v.bias": (kv_rows, 0.0, 0.5)}
        result |= {f"blk.{layer}.{name}": size for name, size in block.items()}
    return result


def write_model(name: str, shape: dict, seed: int) -> Path:
    path = OUT / f"{name}.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, shape["architecture"])
    writer.add_name(f"tiny {name}")
    add_metadata(writer, shape)
    (byte_fallback_vocabulary if shape["architecture"] == "gemma3" else byte_level_vocabulary)(writer)

    source = np.random.Generator(np.random.PCG64(seed))
    for index, (tensor, (outputs, inputs)) in enumerate(matrices(shape).items()):
        kind = TYPES[shape["types"][index % len(shape["types"])]]
        # A head that is louder than the rest makes predictions that stand out, as those of trained models do.
        spread = 2.0 if tensor in ("token_embd.weight", "output.weight") else 1.5
        values = source.normal(0, spread / np.sqrt(inputs), (outputs, inputs)).astype(np.float32)
        writer.add_tensor(tensor, gguf.quants.quantize(values, kind), raw_dtype=kind)
    for tensor, (length, mean, spread) in vectors(shape).items():
        writer.add_tensor(tensor, source.normal(mean, spread, length).astype(np.float32))
    if shape.get("freq_factors"):
        factors = np.linspace(1, 8, shape["head_dim"] // 2).astype(np.float32)
        writer.add_tensor("rope_freqs.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sequences(seed: int) -> dict[str, list[int]]:
    """Random ids, short and past every window here, and one that repeats itself."""
    source = random.Random(seed)
    long = [source.randrange(VOCABULARY) for _ in range(70)]
    return {"one": [65], "short": long[:9], "long": long, "repeating": (long[:25] * 3)[:60]}


def main() -> None:
    for seed, (name, shape) in enumerate(MODELS.items()):
        path = write_model(name, shape, seed)
        golden = logits_goldens.golden_of(path, sequences(seed))
        out = OUT / f"{name}.float32.jsonl.gz"
        logits_goldens.write(out, golden)
        spread = np.ptp([row[0] for row in golden["long"]["logprobs"]])
        assert path.stat().st_size < 300_000, path.stat().st_size
        sizes = f"{path.stat().st_size:,} + {out.stat().st_size:,} bytes"
        print(f"{name}: {sizes}, best log-probabilities spread {spread:.2f}", flush=True)


if __name__ == "__main__":
    main()
