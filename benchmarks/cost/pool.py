"""Random numbers in device memory, cut into weights that no step finds in a cache."""

from __future__ import annotations

import math

import torch

# More than the L2 of any GPU so far, and thrice, so that a set is gone before it comes again.
COLD_BYTES = 3 * 60 << 20
SETS = (20, 64)


class Pool:
    """One block of small random numbers for a dtype; tensors are views of it.

    Args:
        size: Numbers in the block.
        device: Where they are.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(0)
        self._numbers = torch.empty(size, dtype=torch.bfloat16, device=device)
        self._numbers.normal_(0, 0.02, generator=generator)
        self._by_dtype = {torch.bfloat16: self._numbers}

    @property
    def size(self) -> int:
        return self._numbers.numel()

    def numbers(self, dtype: torch.dtype) -> torch.Tensor:
        """The block, flat, in ``dtype``."""
        if dtype not in self._by_dtype:
            self._by_dtype[dtype] = self._numbers[: self.size // 2].to(dtype)
        return self._by_dtype[dtype]

    def tensor(self, shape: tuple[int, ...], index: int, dtype: torch.dtype) -> torch.Tensor:
        """Tensor ``index`` of that shape; another index is other memory, while there is room."""
        block, length = self.numbers(dtype), math.prod(shape)
        # 256 bytes, as an allocator would align it.
        stride = -(-length // 256) * 256
        room = (block.numel() - length) // stride + 1
        if room < 1:
            raise MemoryError(f"{shape} does not fit a pool of {block.numel()} numbers")
        start = index % room * stride
        return block[start : start + length].view(shape)


def sets_for(step_bytes: int) -> int:
    """Steps, each with weights of its own, after which the first have left the cache."""
    return min(max(-(-COLD_BYTES // max(step_bytes, 1)), SETS[0]), SETS[1])
