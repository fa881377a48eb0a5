"""What the ledger costs: output tokens per second of eight streams, with accounting and without.

Builds the server twice (the second time with the ledger's `off` feature), has both up, loads them in turn, and prints
the ratio of each pair and the median with its 95% interval. Ratios of neighbouring runs hold on a machine whose speed
drifts; single figures do not.

    python3 tools/bench/ledger_cost.py [pairs]
"""

import contextlib
import http.client
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STREAMS = 8
TOKENS = 128


def build(target, *features):
    command = ["cargo", "build", "--release", "--package", "firstlight", "--target-dir", str(ROOT / target), *features]
    subprocess.run(command, cwd=ROOT, check=True)
    return ROOT / target / "release/firstlight"


def stream(address, read):
    connection = http.client.HTTPConnection(address)
    body = {"prompt": "one two three", "max_tokens": TOKENS, "temperature": 0, "stream": True, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    read.append(connection.getresponse().read().count(b"data: ") - 1)


@contextlib.contextmanager
def serving(binary):
    """A server of its own, by its address. One that is not asked anything costs nothing: its threads sleep."""
    command = [str(binary), "serve", "smollm2-135m-instruct", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield re.search(r"http://(\S+)", server.stdout.readline()).group(1)
    finally:
        server.terminate()
        server.wait()


def tokens_per_second(address):
    read = []
    threads = [threading.Thread(target=stream, args=(address, read)) for _ in range(STREAMS)]
    began = time.perf_counter()
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    took = time.perf_counter() - began
    assert len(read) == STREAMS and min(read) > 1, read
    return STREAMS * TOKENS / took


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    binaries = build("target"), build("target/ledger-off", "--features", "ledger/off")
    ratios = []
    with serving(binaries[0]) as on, serving(binaries[1]) as off:
        tokens_per_second(on), tokens_per_second(off)  # warm up
        for pair in range(pairs):
            order = [on, off] if pair % 2 == 0 else [off, on]
            speed = {address: tokens_per_second(address) for address in order}
            ratios.append(speed[on] / speed[off])
            print(f"on {speed[on]:7.1f}  off {speed[off]:7.1f} tokens/s  ratio {ratios[-1]:.4f}", flush=True)
    low, high = interval(ratios)
    print(f"median ratio {statistics.median(ratios):.4f} (95%: {low:.4f} to {high:.4f}) over {pairs} pairs")


def interval(ratios):
    """Where the median lies, by drawing the pairs anew 10,000 times."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(10_000))
    return medians[250], medians[9_750]


if __name__ == "__main__":
    main()
