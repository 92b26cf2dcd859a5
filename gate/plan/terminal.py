"""A plan on the terminal: one table, and the answer in words."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from gate.plan.calibration import Check
from gate.plan.machine import Machine
from gate.plan.memory import replicated_bytes
from gate.plan.prediction import Setting, answer, flip_sentence, predict, saved

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
GIB, MIB, KIB = 2**30, 2**20, 2**10


def in_words(size: float) -> str:
    """Bytes with a unit."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} B"


def show_plan(
    console: Console, setting: Setting, batch: int, layers: int | None, step_ms: float | None
) -> None:
    """Print what the setting's deployment may expect.

    Args:
        console: Where.
        setting: What is asked about.
        batch: The batch that the answer is for.
        layers: Layers with MLA; None prints figures of one layer.
        step_ms: A measured decode step of the whole model, to say what share is saved.
    """
    deployment = setting.deployment
    model = deployment.model
    times = 1 if layers is None else layers
    of = "one layer" if layers is None else f"{layers} layers"
    console.print(
        f"{model.name}, tp {deployment.tp}, dcp {deployment.dcp}: {deployment.h} heads a rank, "
        f"{deployment.Hg} a group; {deployment.dtype} projection, {deployment.query_dtype} query, "
        f"{setting.machine.name}"
    )
    copy = times * replicated_bytes(deployment)
    view = times * replicated_bytes(deployment, local_is_view=True)
    console.print(
        f"replicated on each rank, {of}: {in_words(copy)}, or {in_words(view)} where the local "
        "W_UK_T is a view of the group's"
    )
    table = Table(title=f"one decode step, {of}")
    for heading in ("batch", "saved link bytes", "saved launches", "off us", "on us", "on / off"):
        table.add_column(heading, justify="right")
    for tokens in sorted({*BATCHES, batch}):
        step, less = predict(setting, tokens), saved(setting, tokens)
        table.add_row(
            str(tokens),
            in_words(times * less.link_bytes),
            str(times * less.launches),
            f"{times * step.off:.1f}",
            f"{times * step.on:.1f}",
            f"{step.ratio:.2f}",
            style="bold" if tokens == batch else None,
        )
    console.print(table)
    for note in _notes(setting):
        console.print(f"note: {note}")
    console.print(answer(setting, batch))
    console.print(flip_sentence(setting))
    if step_ms is not None:
        step = predict(setting, batch)
        share = times * (step.off - step.on) / (1e3 * step_ms)
        console.print(f"of a decode step of {step_ms:g} ms that is {share:+.1%}")


def _notes(setting: Setting) -> list[str]:
    machine, deployment = setting.machine, setting.deployment
    notes = list(machine.notes)
    if deployment.dcp > machine.ranks:
        notes.append(
            f"a gather was measured on {machine.ranks} ranks at most; {deployment.dcp} adds "
            "NCCL's own figure for each hop of the ring"
        )
    if deployment.model.topk is not None and setting.context is not None:
        notes.append(
            f"attention over {deployment.model.topk} chosen keys at most, charged as dense "
            "attention over as many; the indexer is left out"
        )
    return notes


def show_calibration(console: Console, machine: Machine, checks: Sequence[Check]) -> None:
    """Print constants, and how well they predict the pairs that they were not taken from."""
    table = Table(title=f"constants of {machine.name}")
    for heading in (
        "part",
        "least us",
        "fixed us",
        "weights TB/s",
        "activations TB/s",
        "TFLOP/s",
        "link GB/s",
    ):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    for kind, rate in sorted(machine.rates.items()):
        numbers = (rate.weights_tbs, rate.activations_tbs, rate.tflops, rate.link_gbs)
        table.add_row(
            kind,
            f"{rate.floor_us:.2f}",
            f"{rate.fixed_us:.2f}",
            *(f"{one:.4g}" if one else "" for one in numbers),
        )
    console.print(table)
    if not checks:
        console.print("no pair was measured, so the constants are not checked")
        return
    deviations = sorted(abs(one.deviation) for one in checks)
    wrong = [one for one in checks if not one.answer_is_right]
    console.print(
        f"{len(checks)} ratios held out: deviation {deviations[len(deviations) // 2]:.1%} in the "
        f"median, {deviations[-1]:.1%} at most; {len(wrong)} answers wrong"
    )
    for one in sorted(checks, key=lambda one: -abs(one.deviation))[:5]:
        pair = one.pair
        console.print(
            f"  {pair.span} of {pair.path}, {pair.heads} heads, dcp {pair.ranks}, batch "
            f"{pair.batch}, {pair.dtype}, context {pair.context}: measured {pair.ratio:.2f}, "
            f"predicted {one.predicted:.2f}"
        )
