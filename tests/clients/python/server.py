"""Starts `firstlight serve` on a free loopback port for a test run."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Server:
    def __init__(self, *flags):
        binary = os.environ.get("FIRSTLIGHT_BIN", ROOT / "target/release/firstlight")
        command = [str(binary), "serve", "smollm2-135m-instruct", "--port", "0", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            found = re.search(r"http://\S+", line)
            if found:
                self.url = found.group(0).rstrip("/")
                return
        raise RuntimeError(f"{command} ended before it listened")

    def stop(self):
        self.process.terminate()
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        return code
