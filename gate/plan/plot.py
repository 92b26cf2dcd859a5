"""Batch against ratio, one line for each size of the DCP group."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gate.plan.deployment import group_sizes
from gate.plan.errors import PlanError
from gate.plan.prediction import Setting, predict

BATCHES = tuple(sorted({round(2 ** (step / 4)) for step in range(37)}))


def curves(setting: Setting) -> dict[int, list[float]]:
    """Ratios at BATCHES, by the size of the group; every one that divides tp."""
    deployment = setting.deployment
    return {
        dcp: [
            predict(replace(setting, deployment=replace(deployment, dcp=dcp)), batch).ratio
            for batch in BATCHES
        ]
        for dcp in group_sizes(deployment.tp)
    }


def draw(setting: Setting, path: Path) -> None:
    """Write the plot, in the format that the name ends with.

    Raises:
        PlanError: matplotlib is not installed, or does not know the format.
    """
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError:
        raise PlanError("a plot needs matplotlib: pip install matplotlib") from None
    figure = figures.Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for dcp, ratios in curves(setting).items():
        axes.plot(BATCHES, ratios, label=f"dcp {dcp}")
        if setting.machine.error is not None:
            low, high = (_scaled(ratios, 1 + sign * setting.machine.error) for sign in (-1, 1))
            axes.fill_between(BATCHES, low, high, alpha=0.15, linewidth=0)
    axes.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
    axes.set_xscale("log", base=2)
    axes.set_xticks([1 << power for power in range(10)], [str(1 << power) for power in range(10)])
    axes.set_xlabel("tokens of a decode step")
    span = "query" if setting.context is None else f"layer at {setting.context} keys"
    axes.set_ylabel(f"time of the {span}, on / off")
    model = setting.deployment.model
    axes.set_title(f"{model.name}, tp {setting.deployment.tp}, {setting.machine.name}")
    axes.legend()
    try:
        figure.savefig(path)
    except ValueError as error:
        raise PlanError(f"{path} cannot be drawn: {error}") from None


def _scaled(ratios: Sequence[float], factor: float) -> list[float]:
    return [factor * ratio for ratio in ratios]
