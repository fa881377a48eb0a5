"""Writes the tokenizer goldens: ids of every text of the corpus under the three vocabularies."""

import gzip
import json
import random
from pathlib import Path

import corpus
import vocabulary

OUT = Path(__file__).parents[2] / "crates/text/tests/goldens/tokenizer"


def dump(value) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def encode(tokenizer, text: str, parse_special: bool) -> list[int]:
    tokenizer.encode_special_tokens = not parse_special
    return tokenizer.encode(text, add_special_tokens=False).ids


def golden_of(tokenizer, text: str) -> dict:
    """`special` and `decoded` are left out where they equal `plain` and the text."""
    plain = encode(tokenizer, text, parse_special=False)
    special = encode(tokenizer, text, parse_special=True)
    decoded = tokenizer.decode(plain, skip_special_tokens=False)
    golden = {"plain": plain}
    if special != plain:
        golden["special"] = special
    if decoded != text:
        golden["decoded"] = decoded
    return golden


def encoding_lines(pairs, loaded) -> list[str]:
    return [
        dump(
            {"group": group, "text": text}
            | {family: golden_of(tokenizer, text) for family, (_, tokenizer) in loaded.items()}
        )
        for group, text in pairs
    ]


def decoding_lines(loaded) -> list[str]:
    """Random ids and the bytes they stand for. Where those are UTF-8, `tokenizers` must decode to the same."""
    lines = []
    for family, (vocab, tokenizer) in loaded.items():
        source = random.Random(corpus.SEED)
        pieces = vocabulary.token_bytes(family, vocab)
        for _ in range(400):
            ids = corpus.random_ids(vocab, source, family)
            data = b"".join(pieces[index] for index in ids)
            try:
                assert tokenizer.decode(ids, skip_special_tokens=False) == data.decode(), (family, ids)
            except UnicodeDecodeError:
                pass
            lines.append(dump({"family": family, "ids": ids, "bytes": data.hex()}))
    return lines


def bos_lines(loaded) -> list[str]:
    """What a raw completion's prompt becomes: special tokens parsed, and one BOS where the file asks for it."""
    lines = []
    for family, (vocab, tokenizer) in loaded.items():
        for text in ["", "Hello world", " Hello", "<bos>Hello", "<bos>", "<bos><bos>x", "<|im_start|>user\nHi"]:
            ids = encode(tokenizer, text, parse_special=True)
            if vocab.add_bos and ids[:1] != [vocab.bos]:
                ids = [vocab.bos] + ids
            lines.append(dump({"family": family, "text": text, "ids": ids}))
    return lines


def write(name: str, lines: list[str]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    data = ("\n".join(lines) + "\n").encode()
    path = OUT / name
    path.write_bytes(gzip.compress(data, 9, mtime=0) if name.endswith(".gz") else data)
    print(f"{path.name}: {len(lines)} lines, {path.stat().st_size:,} bytes", flush=True)


def main() -> None:
    loaded = {family: vocabulary.load(family) for family in vocabulary.FILES}
    write("handwritten.jsonl", encoding_lines(corpus.handwritten({k: v for k, (v, _) in loaded.items()}), loaded))
    write("generated.jsonl.gz", encoding_lines(corpus.generated(), loaded))
    write("decoding.jsonl", decoding_lines(loaded))
    write("bos.jsonl", bos_lines(loaded))


if __name__ == "__main__":
    main()
