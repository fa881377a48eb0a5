"""Writes the logits goldens: the 20 likeliest tokens at every position, by the plain forward pass of `forward.py`."""

import gzip
import json
import time
from pathlib import Path

import numpy as np

import forward
import prompts
import vocabulary

OUT = Path(__file__).parents[2] / "crates/models/tests/goldens/logits"
NAMES = ["smollm2-135m-instruct", "gemma-3-270m", "qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"]
TOP = 20


def top_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids and log-probabilities of the `TOP` likeliest, best first; both [tokens, TOP]."""
    ids = np.argpartition(-rows, TOP, axis=1)[:, :TOP]
    values = np.take_along_axis(rows, ids, axis=1)
    order = np.lexsort((ids, -values), axis=1)
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(values, order, axis=1)


def rounded(values) -> list[float]:
    return [round(float(value), 4) for value in values]


def write(path: Path, golden: dict[str, dict]) -> None:
    """One line a prompt."""
    lines = [json.dumps({"prompt": prompt} | entry, separators=(",", ":")) for prompt, entry in golden.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), 9, mtime=0))


def read(path: Path) -> dict[str, dict]:
    return {entry.pop("prompt"): entry for entry in map(json.loads, gzip.open(path, "rt"))}


def golden_of(path: Path, sequences: dict[str, list[int]]) -> dict[str, dict]:
    """Per prompt: `tokens`; `top` and `logprobs` of what follows each; `next`, that of the token that does follow."""
    model = forward.Model(path)
    following = np.array([token for tokens in sequences.values() for token in [*tokens[1:], 0]])
    ids, values, following_values = [], [], []
    position = 0
    for rows in forward.log_probabilities(model, list(sequences.values())):
        top_ids, top_values = top_of(rows)
        ids += top_ids.tolist()
        values += [rounded(row) for row in top_values]
        following_values += rounded(rows[np.arange(len(rows)), following[position : position + len(rows)]])
        position += len(rows)
    golden = {}
    start = 0
    for prompt, tokens in sequences.items():
        span = slice(start, start + len(tokens))
        golden[prompt] = {
            "tokens": tokens,
            "top": ids[span],
            "logprobs": values[span],
            "next": following_values[span][:-1],
        }
        start += len(tokens)
    return golden


def main(names: list[str] = NAMES) -> None:
    for name in names:
        started = time.monotonic()
        vocab, tokenizer = vocabulary.load(prompts.family_of(name))
        golden = golden_of(vocabulary.MODELS / f"{name}.gguf", prompts.sequences(name, vocab, tokenizer))
        path = OUT / f"{name}.float32.jsonl.gz"
        write(path, golden)
        perplexity = {prompt: round(float(np.exp(-np.mean(entry["next"]))), 2) for prompt, entry in golden.items()}
        seconds = time.monotonic() - started
        print(f"{path.name}: {path.stat().st_size:,} bytes, {seconds:.0f} s, perplexity {perplexity}", flush=True)


if __name__ == "__main__":
    main()
