"""Writes the committed goldens again: `python3 tools/golden/make.py [part ...]`.

Without a part named, all are made but `peer`, which needs a build of llama.cpp. `make.py show TEMPLATE TITLE` prints
the rendering behind a hash of `templates`.
"""

import sys

import dequantize
import logits_goldens
import peer
import template_goldens
import tiny_models
import tokenizer_goldens

# In the order of need: the prompts of `logits` use templates, and `peer` reads what the other parts wrote.
PARTS = {
    "dequantize": dequantize.main,
    "tokenizer": tokenizer_goldens.main,
    "templates": template_goldens.main,
    "tiny": tiny_models.main,
    "logits": logits_goldens.main,
    "peer": peer.main,
}


def main() -> None:
    if sys.argv[1:2] == ["show"]:
        return template_goldens.show(*sys.argv[2:])
    names = sys.argv[1:] or [part for part in PARTS if part != "peer"]
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.exit(f"unknown part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    for name in names:
        print(f"== {name}", flush=True)
        PARTS[name]()


if __name__ == "__main__":
    main()
