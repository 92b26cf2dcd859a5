"""How a model is served: over which ranks, and in which numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gate.plan.errors import PlanError
from gate.plan.models import MLAModel

Dtype = Literal["bf16", "fp8"]
BYTES: dict[Dtype, int] = {"bf16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model over ranks.

    Attributes:
        model: The model.
        tp: Tensor-parallel ranks.
        dcp: Ranks of a decode-context-parallel group.
        dtype: Of the query projection's weight. W_UK_T is bfloat16 in any case, as vLLM
            derives it.
        query_dtype: Of the query that crosses the link: fp8 with an fp8 KV cache.

    Raises:
        PlanError: The ranks do not divide what they have to.
    """

    model: MLAModel
    tp: int
    dcp: int
    dtype: Dtype = "bf16"
    query_dtype: Dtype = "bf16"

    def __post_init__(self) -> None:
        if min(self.tp, self.dcp) < 1:
            raise PlanError(f"tp {self.tp} and dcp {self.dcp} must be at least 1")
        if self.dcp < 2:
            raise PlanError("dcp 1 has no group to replicate over: the feature changes nothing")
        if self.tp % self.dcp:
            choices = ", ".join(str(dcp) for dcp in group_sizes(self.tp)) or "none"
            raise PlanError(f"dcp {self.dcp} does not divide tp {self.tp}; of that: {choices}")
        if self.model.H % self.tp:
            raise PlanError(
                f"tp {self.tp} does not divide the {self.model.H} heads of {self.model.name}"
            )

    @property
    def h(self) -> int:
        """Heads of one rank."""
        return self.model.H // self.tp

    @property
    def Hg(self) -> int:
        """Heads of one DCP group."""
        return self.h * self.dcp


def group_sizes(tp: int) -> list[int]:
    """Sizes above 1 that a DCP group of ``tp`` ranks may have."""
    return [dcp for dcp in range(2, tp + 1) if tp % dcp == 0]
