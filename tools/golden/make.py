"""Writes the committed goldens again: `python3 tools/golden/make.py [part ...]`, all parts when none is named."""

import sys

import logits_goldens
import peer
import template_goldens
import tiny_models
import tokenizer_goldens

# In the order of need: the prompts of `logits` use templates, and `peer` reads what the other parts wrote.
PARTS = {
    "tokenizer": tokenizer_goldens.main,
    "templates": template_goldens.main,
    "tiny": tiny_models.main,
    "logits": logits_goldens.main,
    "peer": peer.main,
}


def main() -> None:
    names = sys.argv[1:] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.exit(f"unknown part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    for name in names:
        print(f"== {name}", flush=True)
        PARTS[name]()


if __name__ == "__main__":
    main()
