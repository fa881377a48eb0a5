"""The witness: one plain float32 forward pass over a GGUF file, with no cache and no cleverness.

All sequences go through a layer together, so that each weight is dequantized (by the `gguf` package) once; attention
looks at one sequence at a time, every token at all before it. Families differ by the flags of `Config` alone.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

GEMMA3_WINDOW_ROPE_BASE = 10_000.0  # Not in the file; from Gemma 3's published configuration.
GEMMA3_WINDOW_PATTERN = 6  # Every sixth layer attends to everything; likewise.


@dataclass
class Config:
    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    epsilon: float
    rope_base: float
    rope_scale: float  # positions are divided by it, on layers without a window
    window: int  # 0 for none

    @property
    def gemma(self) -> bool:
        return self.architecture == "gemma3"

    @property
    def rope_pairs_adjacent(self) -> bool:
        """`llama` files have their query and key rows permuted, so that a rotated pair lies side by side."""
        return self.architecture == "llama"

    def has_window(self, layer: int) -> bool:
        return self.window > 0 and layer % GEMMA3_WINDOW_PATTERN != GEMMA3_WINDOW_PATTERN - 1


class Model:
    """Metadata and weights of one file, dequantized when asked for."""

    def __init__(self, path: Path):
        reader = GGUFReader(path)
        self.fields = reader.fields
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.config = self.read_config()

    def meta(self, name: str, default=None):
        field = self.fields.get(name)
        if field is None and default is None:
            raise KeyError(name)
        return default if field is None else field.contents()

    def read_config(self) -> Config:
        architecture = self.meta("general.architecture")
        assert architecture in ("llama", "qwen2", "qwen3", "gemma3"), architecture

        def meta(name, default=None):
            return self.meta(f"{architecture}.{name}", default)

        heads, width = meta("attention.head_count"), meta("embedding_length")
        scaling = meta("rope.scaling.type", "none")
        assert scaling in ("none", "linear"), scaling
        return Config(
            architecture=architecture,
            layers=meta("block_count"),
            width=width,
            heads=heads,
            kv_heads=meta("attention.head_count_kv", heads),
            head_dim=meta("attention.key_length", width // heads),
            epsilon=meta("attention.layer_norm_rms_epsilon"),
            rope_base=meta("rope.freq_base", 10_000.0),
            rope_scale=meta("rope.scaling.factor", 1.0) if scaling == "linear" else 1.0,
            window=meta("attention.sliding_window", 0) if architecture == "gemma3" else 0,
        )

    def weight(self, name: str) -> np.ndarray | None:
        """float32, [outputs, inputs] for a matrix; None when the file has no such tensor."""
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        data = dequantize(tensor.data, tensor.tensor_type)
        return data.astype(np.float32, copy=False).reshape(tensor.shape[::-1].tolist())

    def embedding(self, ids: list[int]) -> np.ndarray:
        """[tokens, width]. Only the rows asked for are dequantized."""
        tensor = self.tensors["token_embd.weight"]
        rows = dequantize(tensor.data[np.asarray(ids)], tensor.tensor_type)
        return rows.astype(np.float32, copy=False).reshape(len(ids), self.config.width)


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    """Over the last axis. Gemma's `1 + weight` is already in the file's weights."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)))


def rope_angles(config: Config, tokens: int, windowed: bool, factors: np.ndarray | None) -> np.ndarray:
    """[tokens, head_dim / 2], worked out in float64. `factors` slow single frequencies (Llama 3)."""
    base, scale = (GEMMA3_WINDOW_ROPE_BASE, 1.0) if windowed else (config.rope_base, config.rope_scale)
    frequencies = base ** (-np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim)
    if factors is not None:
        frequencies = frequencies / factors
    return np.arange(tokens)[:, None] / scale * frequencies[None, :]


def rotate(x: np.ndarray, angles: np.ndarray, adjacent: bool) -> np.ndarray:
    """x is [tokens, heads, head_dim]. A pair is (2i, 2i+1) if `adjacent`, else (i, i + head_dim/2)."""
    cos, sin = (f(angles)[:, None, :].astype(np.float32) for f in (np.cos, np.sin))
    half = x.shape[-1] // 2
    first, second = (x[..., 0::2], x[..., 1::2]) if adjacent else (x[..., :half], x[..., half:])
    rotated = np.empty_like(x)
    if adjacent:
        rotated[..., 0::2], rotated[..., 1::2] = first * cos - second * sin, first * sin + second * cos
    else:
        rotated[..., :half], rotated[..., half:] = first * cos - second * sin, first * sin + second * cos
    return rotated


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int) -> np.ndarray:
    """Causal attention of one sequence. q is [tokens, heads, head_dim]; k and v have fewer heads."""
    tokens, heads, head_dim = q.shape
    group = heads // k.shape[1]
    distance = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]  # [query, key]
    hidden = (distance < 0) | ((distance >= window) if window else False)
    out = np.empty_like(q)
    for head in range(heads):
        scores = q[:, head] @ k[:, head // group].T / np.float32(np.sqrt(head_dim))  # [query, key]
        scores[hidden] = -np.inf
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, head] = (scores / scores.sum(axis=1, keepdims=True)) @ v[:, head // group]
    return out


def attention_block(model: Model, layer: int, x: np.ndarray, spans: list[slice]) -> np.ndarray:
    """x is the normalized input, [rows, width]; `spans` cuts the rows into sequences."""
    config = model.config

    def project(name: str, heads: int) -> np.ndarray:
        projected = x @ model.weight(f"blk.{layer}.attn_{name}.weight").T
        bias = model.weight(f"blk.{layer}.attn_{name}.bias")
        projected = projected if bias is None else projected + bias
        projected = projected.reshape(len(x), heads, config.head_dim)
        norm = model.weight(f"blk.{layer}.attn_{name}_norm.weight")
        return projected if norm is None else rms_norm(projected, norm, config.epsilon)

    q = project("q", config.heads)  # [rows, heads, head_dim]
    k = project("k", config.kv_heads)  # [rows, kv_heads, head_dim]
    v = project("v", config.kv_heads)
    windowed = config.has_window(layer)
    factors = model.weight("rope_freqs.weight")
    out = np.empty_like(q)
    for span in spans:
        angles = rope_angles(config, span.stop - span.start, windowed, factors)
        rotated = [rotate(part[span], angles, config.rope_pairs_adjacent) for part in (q, k)]
        out[span] = attend(*rotated, v[span], config.window if windowed else 0)
    return out.reshape(len(x), -1) @ model.weight(f"blk.{layer}.attn_output.weight").T


def feed_forward_block(model: Model, layer: int, x: np.ndarray) -> np.ndarray:
    activation = gelu_tanh if model.config.gemma else silu
    gate = activation(x @ model.weight(f"blk.{layer}.ffn_gate.weight").T)
    return (gate * (x @ model.weight(f"blk.{layer}.ffn_up.weight").T)) @ model.weight(f"blk.{layer}.ffn_down.weight").T


def hidden_states(model: Model, sequences: list[list[int]]) -> np.ndarray:
    """The normalized output of the last layer, [all tokens, width]."""
    config = model.config
    ends = np.cumsum([len(sequence) for sequence in sequences])
    spans = [slice(int(end) - len(sequence), int(end)) for sequence, end in zip(sequences, ends)]
    x = model.embedding([token for sequence in sequences for token in sequence])
    if config.gemma:
        x = x * np.float32(np.sqrt(config.width))

    def norm(name: str, values: np.ndarray) -> np.ndarray:
        return rms_norm(values, model.weight(name), config.epsilon)

    for layer in range(config.layers):
        out = attention_block(model, layer, norm(f"blk.{layer}.attn_norm.weight", x), spans)
        x = x + (norm(f"blk.{layer}.post_attention_norm.weight", out) if config.gemma else out)
        out = feed_forward_block(model, layer, norm(f"blk.{layer}.ffn_norm.weight", x))
        x = x + (norm(f"blk.{layer}.post_ffw_norm.weight", out) if config.gemma else out)
    return norm("output_norm.weight", x)


def log_probabilities(model: Model, sequences: list[list[int]], chunk: int = 64):
    """Yields [up to `chunk` tokens, vocabulary], over all tokens of all sequences in order."""
    states = hidden_states(model, sequences)
    head = model.weight("output.weight")
    if head is None:
        head = model.weight("token_embd.weight")
    for start in range(0, len(states), chunk):
        logits = states[start : start + chunk] @ head.T
        logits -= logits.max(axis=1, keepdims=True)
        yield logits - np.log(np.exp(logits.astype(np.float64)).sum(axis=1, keepdims=True)).astype(np.float32)
