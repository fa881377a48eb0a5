"""Rebuilds each model's original tokenizer from the vocabulary inside its GGUF file.

The vocabulary and the merges come from the file; everything a GGUF does not carry (normalizer, pre-tokenizer,
decoder, the ranks of Gemma's merges) is written here as the model's own `tokenizer.json` has it. The result is a
Hugging Face `tokenizers` object, so that the ids in the goldens are computed by code this project did not write.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from transformers.tokenization_utils_base import generate_merges

MODELS = Path(os.environ.get("FIRSTLIGHT_MODELS", "~/.cache/firstlight/models")).expanduser()

FILES = {
    "smollm2": "smollm2-135m-instruct.gguf",
    "gemma3": "gemma-3-270m.gguf",
    "qwen2": "qwen2.5-coder-0.5b-instruct.gguf",
}

# Token types as GGUF numbers them.
NORMAL, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 3, 4, 5, 6

SPACE = "\u2581"

# The split pattern of Qwen2's tokenizer.json (also `PRETOKENIZE_REGEX` in transformers' Qwen2 tokenizer).
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


@dataclass
class Vocabulary:
    """The tokenizer fields of one GGUF file."""

    tokens: list[str]
    types: list[int]
    scores: list[float] | None
    merges: list[tuple[str, str]] | None
    bos: int
    add_bos: bool

    def of_type(self, kind: int) -> list[int]:
        return [index for index, value in enumerate(self.types) if value == kind]


def read_vocabulary(path: Path) -> Vocabulary:
    fields = GGUFReader(path).fields

    def field(name, default=None):
        return fields[f"tokenizer.ggml.{name}"].contents() if f"tokenizer.ggml.{name}" in fields else default

    merges = field("merges")
    return Vocabulary(
        tokens=field("tokens"),
        types=field("token_type"),
        scores=field("scores"),
        merges=[tuple(merge.split(" ")) for merge in merges] if merges else None,
        bos=field("bos_token_id"),
        add_bos=field("add_bos_token", False),
    )


def add_special_pieces(tokenizer: Tokenizer, vocabulary: Vocabulary, text_of) -> None:
    """Registers user-defined tokens (they match in plain text) and control tokens (they match on request)."""
    added = [
        AddedToken(text_of(index), normalized=False, special=vocabulary.types[index] == CONTROL)
        for index in range(len(vocabulary.tokens))
        if vocabulary.types[index] in (CONTROL, USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
    for index in vocabulary.of_type(CONTROL) + vocabulary.of_type(USER_DEFINED):
        assert tokenizer.token_to_id(text_of(index)) == index, (index, text_of(index))


def byte_level(vocabulary: Vocabulary) -> Tokenizer:
    """Byte-level BPE without normalizer and pre-tokenizer."""
    pieces = {text: index for index, text in enumerate(vocabulary.tokens) if vocabulary.types[index] != UNUSED}
    tokenizer = Tokenizer(BPE(vocab=pieces, merges=vocabulary.merges, fuse_unk=False, byte_fallback=False))
    tokenizer.decoder = decoders.ByteLevel()
    add_special_pieces(tokenizer, vocabulary, lambda index: vocabulary.tokens[index])
    return tokenizer


def smollm2(vocabulary: Vocabulary) -> Tokenizer:
    """Digits one by one, then GPT-2's split. Eight bytes have no token; the original drops them silently."""
    tokenizer = byte_level(vocabulary)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    )
    return tokenizer


def qwen2(vocabulary: Vocabulary) -> Tokenizer:
    tokenizer = byte_level(vocabulary)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    return tokenizer


def gemma_piece(vocabulary: Vocabulary, index: int) -> str:
    """A token's text as the original has it: the GGUF converter wrote runs of U+2581 as runs of spaces."""
    text = vocabulary.tokens[index]
    return text.replace(" ", SPACE) if vocabulary.types[index] == USER_DEFINED else text


def gemma_merges(vocabulary: Vocabulary, pieces: dict[str, int]) -> list[tuple[str, str]]:
    """Every split of every piece into two pieces, best score first, as transformers derives them.

    The original gives pieces that were not learned the score 0; the converter overwrote it with -1000.
    """
    scores = {
        text: vocabulary.scores[index] if vocabulary.types[index] == NORMAL else 0.0 for text, index in pieces.items()
    }
    return generate_merges(pieces, scores)


def gemma3(vocabulary: Vocabulary) -> Tokenizer:
    pieces = {gemma_piece(vocabulary, index): index for index in range(len(vocabulary.tokens))}
    model = BPE(
        vocab=pieces,
        merges=gemma_merges(vocabulary, pieces),
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous", invert=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    add_special_pieces(tokenizer, vocabulary, lambda index: gemma_piece(vocabulary, index))
    return tokenizer


BUILDERS = {"smollm2": smollm2, "gemma3": gemma3, "qwen2": qwen2}


def load(family: str) -> tuple[Vocabulary, Tokenizer]:
    vocabulary = read_vocabulary(MODELS / FILES[family])
    return vocabulary, BUILDERS[family](vocabulary)


def token_bytes(family: str, vocabulary: Vocabulary) -> list[bytes]:
    """The bytes each token stands for, worked out without `tokenizers`, to check its decoder on whole texts."""
    alphabet = {char: byte for byte, char in byte_alphabet().items()}
    result = []
    for text, kind in zip(vocabulary.tokens, vocabulary.types):
        if kind in (CONTROL, USER_DEFINED, UNUSED):
            result.append(text.encode())
        elif kind == BYTE:
            result.append(bytes([int(text[3:5], 16)]))
        elif family == "gemma3":
            result.append(text.replace(SPACE, " ").encode())
        else:
            result.append(bytes(alphabet[char] for char in text))
    return result


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for every byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    stand_ins = {byte: chr(byte) for byte in plain}
    others = (byte for byte in range(256) if byte not in stand_ins)
    return stand_ins | {byte: chr(256 + index) for index, byte in enumerate(others)}
