"""Which layouts a run covers."""

from __future__ import annotations

from fixtures.model.layout import parse_layout
from fixtures.model.selection import Selection
from fixtures.ranks.gpus import visible_gpus
from fixtures.ranks.launched import launched_size

# Forked ranks, unless a larger layout is asked for by name.
MOST_FORKED = 8


def covered(world: str, device: str, layout: str | None) -> Selection:
    """What the run covers: the layout asked for, or those that its ranks can have.

    Raises:
        ValueError: ``layout`` spells none, or one that these ranks cannot have.
    """
    only = None if layout is None else parse_layout(layout)
    sizes, reason, way_out = None, "", ""
    if world == "forked" and device == "cuda":
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
