"""How long a machine takes for counted work: one set of constants for each kind of kernel."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gate.plan.errors import PlanError
from gate.plan.work import Work

# A hop of a ring over NVLink in NCCL's low-latency protocol, as NCCL's own tuning model has
# it; a calibration on two ranks sees no hop beyond the first, which is in the fixed time.
NVLINK_HOP_US = 0.6


@dataclass(frozen=True, slots=True)
class Rate:
    """What a kind of kernel is charged.

    The time of a part is ``fixed_us`` and what its activations and its link take, and the longer
    of what its weights and its arithmetic take, as a product computes while it loads; or
    ``floor_us`` where that is more, as a kernel that fills no wave of multiprocessors takes as
    long as one block does. A rate of 0 is never charged for.

    Attributes:
        fixed_us: Microseconds of one launch within a CUDA graph, and of its first and last
            wave; of a collective its latency between two ranks too.
        weights_tbs: TB/s of bytes that come from device memory.
        activations_tbs: TB/s of inputs and outputs, most of them in the L2.
        tflops: Arithmetic, TFLOP/s.
        link_gbs: GB/s that a rank receives.
        hop_us: Microseconds of each rank beyond the second.
        floor_us: Microseconds of the least that is ever done.
    """

    fixed_us: float
    weights_tbs: float = 0.0
    activations_tbs: float = 0.0
    tflops: float = 0.0
    link_gbs: float = 0.0
    hop_us: float = 0.0
    floor_us: float = 0.0

    def microseconds(self, work: Work) -> float:
        """Time of ``work`` on one rank."""
        return max(
            self.floor_us,
            self.fixed_us
            + max(self.loading(work), self.computing(work))
            + _over(work.activations, 1e6 * self.activations_tbs)
            + _over(work.link, 1e3 * self.link_gbs)
            + work.hops * self.hop_us,
        )

    def loading(self, work: Work) -> float:
        """Microseconds of reading what is in no cache."""
        return _over(work.weights, 1e6 * self.weights_tbs)

    def computing(self, work: Work) -> float:
        """Microseconds of arithmetic."""
        return _over(work.flops, 1e6 * self.tflops)


def _over(amount: float, per_microsecond: float) -> float:
    return amount / per_microsecond if per_microsecond else 0.0


@dataclass(frozen=True)
class Machine:
    """A kind of machine.

    Attributes:
        name: The GPU and its link.
        rates: By kind of part.
        error: Largest deviation of a predicted ratio from a measured one that the constants
            were not taken from, as a share of it; None where none was measured.
        ranks: Largest group that a gather was measured on; 1 where none was.
    """

    name: str
    rates: Mapping[str, Rate]
    error: float | None = None
    ranks: int = 1
    notes: tuple[str, ...] = field(default=())

    def microseconds(self, parts: Iterable[Work]) -> float:
        """Time of ``parts`` after each other.

        Raises:
            PlanError: A kind of part was never measured on this machine.
        """
        return sum(self._rate(work.kind).microseconds(work) for work in parts)

    def _rate(self, kind: str) -> Rate:
        if kind not in self.rates:
            raise PlanError(
                f"{self.name} has no measured constants for {kind}, only for "
                f"{', '.join(sorted(self.rates))}: calibrate on rows that have it"
            )
        return self.rates[kind]

    def with_link(
        self, gather: str, latency_us: float | None, bandwidth_gbs: float | None
    ) -> Machine:
        """This machine with another link between its ranks.

        The merge has two collectives, whose latency changes by as much each.

        Args:
            gather: Kind of the gather that crosses it.
            latency_us: Microseconds of a gather of no bytes between two ranks; None as it was.
            bandwidth_gbs: GB/s that a rank receives; None as it was.

        Raises:
            PlanError: Nothing is known of such a gather, and not all of it is given.
        """
        known = self.rates.get(gather)
        if known is None and (latency_us is None or bandwidth_gbs is None):
            raise PlanError(
                f"{self.name} has no measured {gather}: give --link-latency and --link-bandwidth"
            )
        before = known or Rate(latency_us or 0.0, hop_us=NVLINK_HOP_US)
        after = replace(
            before,
            fixed_us=before.fixed_us if latency_us is None else latency_us,
            link_gbs=before.link_gbs if bandwidth_gbs is None else bandwidth_gbs,
        )
        rates = {**self.rates, gather: after}
        # Copies both; only who measures on several GPUs has the first.
        if "reordering" not in rates and "assembly-bf16" in rates:
            rates["reordering"] = rates["assembly-bf16"]
        if gather == "gather" and "merging" in rates:
            merging = rates["merging"]
            slower = 2 * (after.fixed_us - before.fixed_us)
            rates["merging"] = replace(
                merging, fixed_us=max(merging.fixed_us + slower, 0.0), link_gbs=after.link_gbs
            )
        return replace(self, rates=rates, notes=(*self.notes, "the link is as you gave it"))

    def save(self, path: Path) -> None:
        """Write the constants as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path) -> Machine:
        """Read constants that :meth:`save` wrote.

        Raises:
            PlanError: The file does not hold them.
        """
        try:
            held = json.loads(path.read_text("utf-8"))
            rates = {kind: Rate(**rate) for kind, rate in held["rates"].items()}
            return cls(held["name"], rates, held["error"], held["ranks"], tuple(held["notes"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise PlanError(f"{path} holds no constants of a machine: {error!r}") from None
