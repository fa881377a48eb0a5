"""Writes the committed goldens again: `python3 tools/golden/make.py [part ...]`, all parts when none is named."""

import sys

import template_goldens
import tokenizer_goldens

PARTS = {"tokenizer": tokenizer_goldens.main, "templates": template_goldens.main}


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
