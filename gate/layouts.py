"""Which layouts a run covers."""

from __future__ import annotations

from fixtures.model.layout import parse_layout
from fixtures.model.selection import Selection
from fixtures.ranks.gpus import visible_gpus
from fixtures.ranks.launched import launched_size

# Forked ranks, unless a larger layout is asked for by name.
MOST_FORKED = 8
# Of several workers, whose ranks of every size are up at once.
MOST_ON_A_GPU = 4


def covered(world: str, device: str, layout: str | None, shares_gpus: bool = False) -> Selection:
    """What the run covers: the layout asked for, or those that its ranks can have.

    Args:
        world: Kind of the world.
        device: Where ranks compute.
        layout: The one asked for; None for many.
        shares_gpus: True if ranks share a GPU where there is none for each.

    Raises:
        ValueError: ``layout`` spells none, or one that these ranks cannot have.
    """
    only = None if layout is None else parse_layout(layout)
    sizes, reason, way_out = None, "", ""
    if world == "forked" and device == "cuda" and shares_gpus:
        count, most = len(visible_gpus()), MOST_FORKED if only else MOST_ON_A_GPU
        sizes = range(1, most + 1)
        reason = f"at most {most} ranks, on {_over(count, most)}"
        way_out = f"choose a tp of at most {most}"
    elif world == "forked" and device == "cuda":
        count = len(visible_gpus())
        sizes = range(1, count + 1)
        reason = f"at most {count} ranks, one for each visible GPU"
        way_out = "choose a smaller tp, or --world simulated, whose ranks share one GPU"
    elif world == "launched":
        count = launched_size()
        sizes = range(count, count + 1)
        reason = f"{count} ranks, which torchrun launched"
        way_out = f"choose tp={count}, or launch as many ranks as the layout has"
    elif world == "forked" and only is None:
        sizes = range(1, MOST_FORKED + 1)
    if only is not None and sizes is not None and only.tp not in sizes:
        raise ValueError(
            f"--layout {layout} has {only.tp} ranks, but there are {reason}: {way_out}"
        )
    return Selection(only, sizes, f"--layout {layout}" if layout else reason)


def _over(gpus: int, most: int) -> str:
    """Which GPUs so many ranks are on, and what they exchange over."""
    shared = "one GPU that they share, over gloo"
    if gpus == 1:
        return shared
    own = f"a GPU each, over NCCL, up to {min(gpus, most)}"
    return own if gpus >= most else f"{own}, and more on {shared}"
