#!/usr/bin/env python3
"""Compares `firstlight bench --dialect vllm` with `vllm bench serve` itself, on one schedule.

    tools/bench/vllm_dialect.py --vllm PATH/vllm [--rounds 3] [--users 8]

Both ask the mock server of `cargo run --release -p load --example mock_server` the same questions in the same order, turn
about. Its delays depend on the question, so both are given the same. Printed are both tools' figures (medians over the rounds)
and their ratios; the exit status is 1 if one is off by more than --within.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CALLS = 240

SCALARS = [
    "completed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
]
SPREADS = ["ttft", "tpot", "itl", "e2el"]


def tokenizer(folder: Path) -> str:
    """A script that makes a tokenizer of words: the counts come from the server's usage, but vLLM's client wants one."""
    script = f"""
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = Tokenizer(models.WordLevel({{"word": 0, "<unk>": 1}}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained({str(folder)!r})
"""
    return script


def theirs(options, url, folder, round_number) -> dict:
    name = f"vllm-{round_number}.json"
    command = [
        options.vllm, "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
        "--base-url", url, "--model", "mock", "--tokenizer", str(folder / "tokenizer"), "--skip-chat-template",
        "--dataset-name", "custom", "--dataset-path", str(folder / "theirs.jsonl"), "--disable-shuffle",
        "--custom-output-len", "-1", "--num-prompts", str(CALLS), "--max-concurrency", str(options.users),
        "--percentile-metrics", ",".join(SPREADS), "--metric-percentiles", "95,99", "--disable-tqdm",
        "--save-result", "--result-dir", str(folder), "--result-filename", name,
    ]  # fmt: skip
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=offline)
    if done.returncode != 0:
        sys.exit(f"vllm bench serve failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    result = json.loads((folder / name).read_text())
    figures = {name: result[name] for name in SCALARS}
    for metric in SPREADS:
        figures |= {
            f"{metric} mean": result[f"mean_{metric}_ms"],
            f"{metric} median": result[f"median_{metric}_ms"],
            f"{metric} p95": result[f"p95_{metric}_ms"],
            f"{metric} p99": result[f"p99_{metric}_ms"],
        }
    return figures


def ours(options, url, folder) -> dict:
    command = [
        options.firstlight, "bench", url, "--model", "mock", "--kind", "opaque", "--users", str(options.users),
        "--think", "0s", "--workload", f"file:{folder / 'ours.jsonl'}", "--dialect", "vllm", "--no-files",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"firstlight bench failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    spoken = done.stdout[done.stdout.index("in the definitions of vllm") :]
    result = json.loads(spoken[spoken.index("\n") :])
    result = result.get("vllm", result)
    figures = {name: result[name] for name in SCALARS}
    for metric in SPREADS:
        spread = result[f"{metric}_ms"]
        figures |= {
            f"{metric} mean": spread["mean"],
            f"{metric} median": spread["p50"],
            f"{metric} p95": spread["p95"],
            f"{metric} p99": spread["p99"],
        }
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True, help="the vllm command")
    parser.add_argument("--firstlight", default=str(ROOT / "target/release/firstlight"))
    parser.add_argument("--mock", default=str(ROOT / "target/release/examples/mock_server"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--within", type=float, default=0.02)
    options = parser.parse_args()

    mock = subprocess.Popen([options.mock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        url = mock.stdout.readline().strip()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            python = Path(options.vllm).resolve().parent / "python"
            subprocess.run([python, "-c", tokenizer(folder / "tokenizer")], check=True)
            with (folder / "theirs.jsonl").open("w") as theirs_file, (folder / "ours.jsonl").open("w") as ours_file:
                for number in range(CALLS):
                    question = f"question {number}"
                    theirs_file.write(json.dumps({"prompt": question, "output_tokens": 64}) + "\n")
                    messages = [{"role": "user", "content": question}]
                    ours_file.write(json.dumps({"messages": messages, "max_tokens": 64}) + "\n")
            rounds = [(theirs(options, url, folder, k), ours(options, url, folder)) for k in range(options.rounds)]
    finally:
        mock.stdin.close()
        mock.wait()

    off = 0
    print(f"{'':24}{'vllm':>12}{'firstlight':>12}{'ratio':>9}")
    for name in rounds[0][0]:
        their, our = (statistics.median(pair[side][name] for pair in rounds) for side in (0, 1))
        ratio = our / their
        off += abs(ratio - 1) > options.within
        print(f"{name:24}{their:12.3f}{our:12.3f}{ratio:9.4f}{'  <' if abs(ratio - 1) > options.within else ''}")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
