"""Importing this starts a thread, which no fork copies, and asks which rank it is."""

from concurrent.futures import ThreadPoolExecutor

import torch.distributed as dist

from fixtures.worlds.api import Rank

POOL = ThreadPoolExecutor(1)
RANK = POOL.submit(lambda: dist.get_rank() if dist.is_initialized() else 0).result()


def answers(rank: Rank) -> tuple[int, int]:
    return RANK, POOL.submit(abs, -rank.rank).result()


def fails(rank: Rank) -> None:
    raise ValueError("it is too much")
