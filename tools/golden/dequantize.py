"""Writes crates/kernels/tests/goldens/<format>.bin: random blocks of every weight format and their values.

The values come from the `gguf` package's own dequantization, which shares no code with Firstlight. A file holds the blocks'
bytes followed by their values as little-endian f32; the number of blocks follows from the file's size.

    pip install numpy gguf
    python3 tools/golden/dequantize.py
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGML_QUANT_SIZES
from gguf.quants import dequantize

# Where a block's f16 scales stand, by format: the other bytes may be anything.
SCALES_AT = {
    Type.F32: [],
    Type.F16: [],
    Type.BF16: [],
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q8_0: [0],
    Type.Q2_K: [80, 82],
    Type.Q3_K: [108],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
    Type.IQ4_NL: [0],
    Type.IQ4_XS: [0],
    Type.MXFP4: [],
}
EXTREME = [0.0, -0.0, 65504.0, -65504.0, 2.0**-24, -(2.0**-24), 2.0**-14, 1.0]


def blocks_of(kind, rng):
    """A few dozen blocks: random bytes, scales of ordinary size, the first ones extreme."""
    length, size = GGML_QUANT_SIZES[kind]
    count = 16 if length == 256 else 64
    if kind in (Type.F32, Type.F16, Type.BF16):
        values = np.concatenate([EXTREME, rng.normal(size=256 - len(EXTREME))]).astype(np.float32)
        if kind == Type.F32:
            return values.view(np.uint8)
        if kind == Type.F16:
            return values.astype(np.float16).view(np.uint8)
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    blocks = rng.integers(0, 256, size=(count, size), dtype=np.uint8)
    for at in SCALES_AT[kind]:
        scales = rng.normal(scale=0.02, size=count)
        scales[: len(EXTREME)] = rng.permutation(EXTREME)
        blocks[:, at : at + 2] = scales.astype(np.float16).reshape(count, 1).view(np.uint8)
    if kind == Type.MXFP4:
        blocks[:, 0] = rng.integers(100, 140, size=count)
        blocks[:4, 0] = [0, 1, 2, 250]  # larger exponents overflow f32
    return blocks.reshape(-1)


def main():
    folder = Path(__file__).parents[2] / "crates/kernels/tests/goldens"
    rng = np.random.default_rng(20)
    for kind in SCALES_AT:
        blocks = blocks_of(kind, rng)
        values = dequantize(blocks, kind).astype("<f4").reshape(-1)
        assert np.isfinite(values).all(), kind
        (folder / f"{kind.name.lower()}.bin").write_bytes(blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
