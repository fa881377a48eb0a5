"""Chat templates of public models, which are their makers' and not ours to carry: fetched, never committed.

They come with the source package of llama-cpp-python, in llama.cpp's collection. Run by itself, this lays them into
`templates/` beside the models' folder, where the tests read them; a second run finds them there. Needs only pip.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
INSIDE = "vendor/llama.cpp/models/templates/"


def folder() -> Path:
    models = os.environ.get("FIRSTLIGHT_MODELS") or Path.home() / ".cache/firstlight/models"
    return Path(models).parent / "templates" / f"{PACKAGE}-{VERSION}"


def fetch() -> Path:
    target = folder()
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        # Only the package itself is wanted from its source; what pip needs to look at it may be built already.
        options = ["--no-deps", f"--no-binary={PACKAGE}", "--no-cache-dir", "--disable-pip-version-check", "-q"]
        command = [sys.executable, "-m", "pip", "download", *options, "-d", scratch, f"{PACKAGE}=={VERSION}"]
        subprocess.run(command, check=True)
        laid_out = Path(scratch) / "templates"
        laid_out.mkdir()
        with tarfile.open(next(Path(scratch).glob("*.tar.gz"))) as archive:
            for member in archive:
                name = Path(member.name)
                if member.isfile() and INSIDE in member.name and name.suffix == ".jinja":
                    (laid_out / name.name).write_bytes(archive.extractfile(member).read())
        try:
            laid_out.rename(target)  # at once, so that a folder that is there is whole
        except OSError:
            if not target.is_dir():  # else another process was faster
                raise
    return target


if __name__ == "__main__":
    print(fetch())
