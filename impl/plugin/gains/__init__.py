"""What ``impl`` has over vLLM without anything being wrong there."""

from __future__ import annotations

from impl.plugin.gains import local_weight_within_the_group
from impl.plugin.mending import Mending

GAINS: tuple[Mending, ...] = (local_weight_within_the_group.GAIN,)
