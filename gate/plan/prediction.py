"""What a deployment may expect of query replication, step by step."""

from __future__ import annotations

from dataclasses import dataclass

from gate.plan.deployment import BYTES, Deployment
from gate.plan.machine import Machine
from gate.plan.work import query_of, rest_of

LARGEST_BATCH = 1024


@dataclass(frozen=True, slots=True)
class Setting:
    """What a prediction is for, apart from the batch.

    Attributes:
        machine: Its constants.
        deployment: The model over its ranks.
        context: Keys of a request, for a ratio of the whole span to the merged output; None
            for one of the query alone.
        gather: What replication is compared with: ``gather`` over NCCL, or ``gather-direct``.
    """

    machine: Machine
    deployment: Deployment
    context: int | None = None
    gather: str = "gather"


@dataclass(frozen=True, slots=True)
class Prediction:
    """One layer of one decode step on one rank.

    Attributes:
        batch: Tokens of the step.
        off: Microseconds with the gather.
        on: Microseconds with the replicated query.
    """

    batch: int
    off: float
    on: float

    @property
    def ratio(self) -> float:
        return self.on / self.off


@dataclass(frozen=True, slots=True)
class Saved:
    """What a step of one layer has less of.

    Attributes:
        link_bytes: Bytes that a rank receives from others.
        launches: Kernels and collectives.
    """

    link_bytes: int
    launches: int


def predict(setting: Setting, batch: int) -> Prediction:
    """Times of one layer with replication off and on.

    Raises:
        PlanError: The machine lacks the constants of a part.
    """
    deployment = setting.deployment
    rest = [] if setting.context is None else rest_of(deployment, batch, setting.context)
    off = query_of(deployment, batch, False, gather_kind=setting.gather)
    on = query_of(deployment, batch, True)
    machine = setting.machine
    return Prediction(batch, machine.microseconds(off + rest), machine.microseconds(on + rest))


def saved(setting: Setting, batch: int) -> Saved:
    """Bytes and launches that replication does without."""
    deployment = setting.deployment
    row = deployment.h * (deployment.model.L + deployment.model.R)
    off = query_of(deployment, batch, False, gather_kind=setting.gather)
    return Saved(
        link_bytes=(deployment.dcp - 1) * batch * row * BYTES[deployment.query_dtype],
        launches=len(off) - len(query_of(deployment, batch, True)),
    )


def flips(setting: Setting) -> list[int]:
    """Batches up to LARGEST_BATCH from which the answer is another than one token before."""
    pays = [predict(setting, batch).ratio < 1 for batch in range(1, LARGEST_BATCH + 1)]
    return [i + 1 for i in range(1, len(pays)) if pays[i] != pays[i - 1]]


def answer(setting: Setting, batch: int) -> str:
    """The plain answer for a batch, in a sentence."""
    ratio = predict(setting, batch).ratio
    error = setting.machine.error
    margin = f" +- {error:.0%}" if error is not None else ", with an error nobody measured"
    span = "query" if setting.context is None else "query, attention and merge"
    change = f"{abs(1 - ratio):.0%} {'less' if ratio < 1 else 'more'} time for the {span}{margin}"
    if error is not None and abs(ratio - 1) < error:
        return f"no clear difference at batch {batch} ({change}): leave it off, it costs memory"
    return f"switch it {'on' if ratio < 1 else 'off'} at batch {batch}: {change}"


def flip_sentence(setting: Setting) -> str:
    """Where the answer changes over the batch, in a sentence."""
    at = flips(setting)
    word = "on" if predict(setting, 1).ratio < 1 else "off"
    if not at:
        return f"{word} at every batch from 1 to {LARGEST_BATCH}"
    said = [f"{word} below batch {at[0]}"]
    for start in at:
        word = "off" if word == "on" else "on"
        said.append(f"{word} from {start}")
    return ", ".join(said)
