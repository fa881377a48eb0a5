"""What the ledger costs: output tokens per second of eight streams, with accounting and without.

Builds the server twice (the second time with the ledger's `off` feature), runs the two in turn, and prints the ratio of
each pair and its median. Ratios of neighbouring runs hold on a machine whose speed drifts; single figures do not.

    python3 tools/bench/ledger_cost.py [pairs]
"""

import http.client
import json
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STREAMS = 8
TOKENS = 256


def build(target, *features):
    command = ["cargo", "build", "--release", "--package", "firstlight", "--target-dir", str(ROOT / target), *features]
    subprocess.run(command, cwd=ROOT, check=True)
    return ROOT / target / "release/firstlight"


def stream(address, read):
    connection = http.client.HTTPConnection(address)
    body = {"prompt": "one two three", "max_tokens": TOKENS, "temperature": 0, "stream": True, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    read.append(connection.getresponse().read().count(b"data: ") - 1)


def tokens_per_second(binary):
    command = [str(binary), "serve", "smollm2-135m-instruct", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = re.search(r"http://(\S+)", server.stdout.readline()).group(1)
        speeds = []
        for _ in range(2):  # the first run warms up
            read = []
            threads = [threading.Thread(target=stream, args=(address, read)) for _ in range(STREAMS)]
            began = time.perf_counter()
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            speeds.append(STREAMS * TOKENS / (time.perf_counter() - began))
            assert len(read) == STREAMS and min(read) > 1, read
        return speeds[-1]
    finally:
        server.terminate()
        server.wait()


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    on, off = build("target"), build("target/ledger-off", "--features", "ledger/off")
    ratios = []
    for pair in range(pairs):
        order = [(on, "on"), (off, "off")] if pair % 2 == 0 else [(off, "off"), (on, "on")]
        speed = {name: tokens_per_second(binary) for binary, name in order}
        ratios.append(speed["on"] / speed["off"])
        print(f"on {speed['on']:7.1f}  off {speed['off']:7.1f} tokens/s  ratio {ratios[-1]:.4f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.4f} over {pairs} pairs")


main()
