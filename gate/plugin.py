"""The pytest plugin: its options, and what one run is made of."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from packaging.version import Version

from fixtures.model.layout import parse_layout
from fixtures.ranks.gpus import visible_gpus
from fixtures.ranks.lifetime import die_with
from fixtures.ranks.pool import Worlds
from fixtures.subjects import registry
from fixtures.subjects.subject import Subject, SubjectError
from gate import known_list, profiles, run_settings
from gate.judgement import Judgement
from gate.layouts import covered
from gate.paste import run_with
from gate.reporter import Reporter, WorkerReporter
from gate.runner import Runner
from properties.contract import MARK, effort_of

pytest_plugins = ("gate.scripts.plugin",)

SEED = "hypothesis_seed"
SUBJECT = pytest.StashKey[tuple[Subject, Worlds]]()

profiles.register()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that say what is judged, and where the verdict goes."""
    group = parser.getgroup("gate", "the subject and its verdict")
    group.addoption(
        "--subject",
        default="impl",
        metavar="NAME",
        help=f"implementation to judge: {', '.join(sorted(registry.SUBJECTS))} (default: impl)",
    )
    group.addoption(
        "--world",
        choices=registry.WORLDS,
        help="how ranks run: greenlets, forked processes, or torchrun "
        "(default: simulated for impl, forked for vllm)",
    )
    group.addoption(
        "--device",
        choices=registry.DEVICES,
        default="cpu",
        help="where its ranks compute (default: cpu)",
    )
    group.addoption(
        "--layout",
        metavar="SIZES",
        help="judge this layout alone, such as tp=8,dcp=4,interleave=16 (default: many)",
    )
    group.addoption(
        "--verdicts", type=Path, metavar="FILE", help="write the verdict as JSON to FILE"
    )
    group.addoption(
        "--known-list",
        type=Path,
        metavar="FILE",
        default=Path(__file__).parents[1] / "properties" / "known.toml",
        help="known failures of every subject and version (default: properties/known.toml)",
    )
    group.addoption(
        "--reproduce", metavar="VERSION:BLOB", help="run one example of one property again"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the subject and its known list; whatever is wrong with them ends the run here."""
    config.addinivalue_line("markers", "clause(*ids, needs, effort): clauses that the test checks")
    profile = config.getoption("--hypothesis-profile") or profiles.DEFAULT
    # Before Hypothesis reads it. A worker has that of the process which started it.
    given = getattr(config, "workerinput", {}).get(SEED, config.option.hypothesis_seed)
    config.option.hypothesis_seed = profiles.seed_of(profile, given)
    verdicts = config.getoption("verdicts")
    name = config.getoption("subject")
    device, layout = config.getoption("device"), config.getoption("layout")
    try:
        profiles.load(profile)
        if verdicts is not None and verdicts.is_dir():
            raise ValueError(f"--verdicts {verdicts} is a folder: name a file to be written")
        world = registry.world_kind(name, config.getoption("world"))
        selection = covered(world, device, layout, registry.SUBJECTS[name].shares_gpus)
        most_ranks = selection.only.tp if selection.only is not None else None
        subject, worlds = registry.load(name, world, device, most_ranks)
        if selection.reason:
            profiles.search_all_for_a_case(profile)
        subject.selection = dataclasses.replace(selection, kernels=subject.kernels)
        listed = known_list.load(config.getoption("known_list"), registry.SUBJECTS)
        entries = [
            entry
            for entry in listed.get(subject.listed_as or subject.name, ())
            if entry.applies_to(Version(subject.version))
            and entry.is_of(device)
            and entry.mended not in subject.mended
        ]
    except (SubjectError, known_list.KnownListError, ValueError) as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[SUBJECT] = subject, worlds
    options = ["--subject", name, "--world", world, "--hypothesis-profile", profile]
    options += ["--device", device] if device != "cpu" else []
    options += ["--layout", layout] if layout is not None else []
    python = run_with(config.rootpath)
    runner = Runner(subject, entries, python, options)
    config.pluginmanager.register(runner, "gate-runner")
    if hasattr(config, "workerinput"):
        die_with(os.getppid())
        config.pluginmanager.register(WorkerReporter(runner), "gate-reporter")
        return
    judgement = Judgement(
        subject=subject.name,
        version=subject.version,
        device=device,
        world=world,
        profile=profile,
        run_with=python,
        settings=run_settings.collect(
            workers=len(config.getoption("tx", None) or ()) or 1,
            seed=config.getoption("--hypothesis-seed"),
            layout=layout or selection.reason or None,
            known_failures=len(entries),
        ),
        entries=entries,
        full_suite=_is_full_suite(config),
        partial=bool(selection.reason or config.getoption("reproduce"))
        or not hypothesis.settings().derandomize,
    )
    config.pluginmanager.register(Reporter(judgement, runner, verdicts), "gate-reporter")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the seed to an xdist worker, which is given the command line alone."""
    node.workerinput[SEED] = node.config.option.hypothesis_seed


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a property its part of the profile's examples."""
    if (effort := effort_of(item)) != 1:
        assert isinstance(item, pytest.Function)
        profiles.scale(item.function, effort)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """As many workers as GPUs for their ranks: more would only wait for each other."""
    chosen = "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ
    if chosen or (config.getoption("world"), config.getoption("device")) != ("forked", "cuda"):
        return None
    text, gpus = config.getoption("layout"), len(visible_gpus())
    try:
        needed = parse_layout(text).tp if text else gpus
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    return max(1, gpus // max(1, needed))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Spend no time on a property whose ranks cannot be started, and have it said why."""
    _, worlds = item.config.stash[SUBJECT]
    if worlds.unavailable is not None and item.get_closest_marker(MARK):
        pytest.fail(f"no ranks: {worlds.unavailable}".partition("\n")[0], pytrace=False)


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """The implementation under judgement; its ranks end with the session."""
    chosen, worlds = request.config.stash[SUBJECT]
    yield chosen
    worlds.close()


def _is_full_suite(config: pytest.Config) -> bool:
    """True if the run was asked for every property: whole folders, nothing deselected."""
    thinned = any(
        config.getoption(option, None)
        for option in ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf")
    )
    where = config.invocation_params.dir
    return not thinned and all((where / argument).is_dir() for argument in config.args)
