"""Importing this never ends in a rank, nor where ranks are forked."""

import sys
import time

from fixtures.worlds.api import Rank

while getattr(sys.modules["__main__"].__spec__, "name", None) == "fixtures.worlds.zygote":
    time.sleep(1)


def my_rank(rank: Rank) -> int:
    return rank.rank
