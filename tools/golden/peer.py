"""The second witness: llama.cpp's server on the same files, asked for the same things.

Needs a `llama-server` (environment variable `LLAMA_SERVER`); see README.md for the version and how it was built.
"""

import gzip
import json
import os
import subprocess
import sys
import time
import unicodedata
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import logits_goldens
import tiny_models
import tokenizer_goldens
import vocabulary

PORT = 18190
CANDIDATES = 60  # asked of the server, so that most of the other witness's 20 are among them
SHORT_STRIDE, LONG_STRIDE = 4, 30  # every how many positions the server is asked


@contextmanager
def server(model: Path):
    program = os.environ.get("LLAMA_SERVER")
    if not program:
        sys.exit("the part 'peer' needs llama.cpp: set LLAMA_SERVER to its llama-server (see tools/golden/README.md)")
    flags = ["-c", "2048", "-t", "1", "-np", "1", "-fa", "off", "--swa-full", "--port", str(PORT)]
    process = subprocess.Popen([program, "-m", model, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health").read()
                break
            except OSError:
                assert process.poll() is None, f"llama-server ended with {process.returncode}"
                time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def post(route: str, body: dict) -> dict:
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{route}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    return json.load(urllib.request.urlopen(request))


def candidates(tokens: list[int], anchor: int) -> dict[int, float]:
    """Log-probabilities of what llama.cpp thinks follows, by token id, best first.

    `anchor` is the token that the server is made to choose: were it to end the text or to cut a character, the server
    would send no probabilities. Those it sends are taken before the bias.
    """
    bias = {"logit_bias": [[anchor, 1000.0]], "temperature": 0}
    answer = post("/completion", {"prompt": tokens, "n_predict": 1, "n_probs": CANDIDATES, **bias})
    return {entry["id"]: entry["logprob"] for entry in answer["completion_probabilities"][0]["top_logprobs"]}


def compare(name: str, path: Path, witness: Path, out: Path) -> None:
    """Writes llama.cpp's top tokens at some positions and prints its distance from the other witness."""
    reference = logits_goldens.read(witness)
    golden, distances, first, flips, missing = {}, [], [], [], 0
    with server(path):
        anchor = post("/tokenize", {"content": "A", "add_special": False})["tokens"][-1]
        for prompt, entry in reference.items():
            tokens = entry["tokens"]
            stride = LONG_STRIDE if len(tokens) > 400 else SHORT_STRIDE
            positions = sorted({*range(0, len(tokens), stride), len(tokens) - 1})
            tops = []
            for position in positions:
                found = candidates(tokens[: position + 1], anchor)
                tops.append(list(found.items())[: logits_goldens.TOP])
                wanted = dict(zip(entry["top"][position], entry["logprobs"][position]))
                apart = [abs(found[token] - value) for token, value in wanted.items() if token in found]
                (distances if position else first).extend(apart)
                missing += len(wanted.keys() - found.keys())
                best = entry["top"][position][0]
                if tops[-1][0][0] != best:
                    flips.append(round(tops[-1][0][1] - found.get(best, float("-inf")), 2))
            golden[prompt] = {
                "positions": positions,
                "top": [[token for token, _ in top] for top in tops],
                "logprobs": [logits_goldens.rounded(value for _, value in top) for top in tops],
            }
    logits_goldens.write(out, golden)
    mean = sum(distances) / len(distances)
    print(
        f"{name}: {out.stat().st_size:,} bytes, mean distance {mean:.3f} over {len(distances)}"
        f" (worst {max(distances):.2f}, {missing} not among {CANDIDATES}), at first tokens {sum(first) / len(first):.3f},"
        f" other argmax at {len(flips)} of {sum(len(entry['positions']) for entry in golden.values())}: {flips}",
        flush=True,
    )


def compare_tokenizer(family: str) -> None:
    """Prints the texts that llama.cpp encodes otherwise; nothing is written."""
    folder = tokenizer_goldens.OUT
    lines = (folder / "handwritten.jsonl").read_text().splitlines()
    lines += gzip.open(folder / "generated.jsonl.gz", "rt").read().splitlines()
    different, normalized = [], 0
    for golden in map(json.loads, lines):
        for key in ("plain", "special"):
            wanted = golden[family].get(key, golden[family]["plain"])
            body = {"content": golden["text"], "add_special": False, "parse_special": key == "special"}
            if post("/tokenize", body)["tokens"] == wanted:
                continue
            if family == "qwen2" and unicodedata.normalize("NFC", golden["text"]) != golden["text"]:
                normalized += 1  # llama.cpp leaves Qwen's normalization out
            else:
                different.append((golden["group"], key, golden["text"]))
    print(f"{family}: {normalized} differ by normalization, {len(different)} otherwise", flush=True)
    for item in different:
        print(f"  {item}")


def main() -> None:
    for family, file in vocabulary.FILES.items():
        with server(vocabulary.MODELS / file):
            compare_tokenizer(family)
    for name in tiny_models.MODELS:
        witness = tiny_models.OUT / f"{name}.float32.jsonl.gz"
        compare(name, tiny_models.OUT / f"{name}.gguf", witness, tiny_models.OUT / f"{name}.llamacpp.jsonl.gz")
    for name in logits_goldens.NAMES:
        witness = logits_goldens.OUT / f"{name}.float32.jsonl.gz"
        compare(name, vocabulary.MODELS / f"{name}.gguf", witness, logits_goldens.OUT / f"{name}.llamacpp.jsonl.gz")


if __name__ == "__main__":
    main()
