"""Seeded tensors as expressions of torch alone."""

from __future__ import annotations

import zlib

from fixtures.model.numbers import Data, Pattern


def expression(data: Data, name: str, *shape: int, scale: float = 1.0) -> str:
    """Source text whose value is ``data.tensor(name, *shape, scale=scale)``.

    The text calls ``drawn(seed, *shape)``, float32 normal numbers, which the scripts define.
    """
    if data.pattern is Pattern.INDEX:
        count = 1
        for extent in shape:
            count *= extent
        factor = scale / max(count, 1)
        return f"torch.arange({count}, dtype=torch.float32).view({shape}) * {factor!r}"
    seed = zlib.crc32(name.encode()) ^ data.seed
    text = f"drawn({', '.join(map(str, (seed, *shape)))})"
    if scale != 1.0:
        text += f" * {scale!r}"
    if data.pattern is Pattern.EQUAL_ROWS:
        return f"({text})[:1].expand({shape}).contiguous()"
    if data.pattern is Pattern.SMALL:
        return f"{text} * 2.0**-5"
    if data.pattern is Pattern.TINY:
        return f"{text} * 2.0**-10"
    if data.pattern is Pattern.LARGE:
        return f"{text} * 2.0**3"
    return text
