"""The pytest plugin: options, header, verdict, exit code."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from packaging.version import Version

from fixtures.model.layout import parse_layout
from fixtures.model.selection import Selection
from fixtures.ranks.gpus import visible_gpus
from fixtures.ranks.launched import launched_size
from fixtures.ranks.lifetime import die_with
from fixtures.ranks.pool import Worlds
from fixtures.subjects import registry
from fixtures.subjects.subject import Subject, SubjectError
from gate import known_list, profiles, run_settings, table
from gate.arguments import positive
from gate.command import run_with
from gate.judgement import Judgement
from gate.results import TestResult, Verdict
from gate.runner import PASSES_NOW, RESULT, Runner
from gate.shares import share_out
from properties.contract import MARK

NOT_JUDGED = 2
# Forked ranks, unless a larger layout is asked for by name.
MOST_FORKED = 8
# Of several workers, whose ranks of every size are up at once.
MOST_ON_A_GPU = 4
_SUBJECT = pytest.StashKey[tuple[Subject, Worlds]]()

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
        "--shares",
        type=positive,
        default=1,
        metavar="N",
        help="share the examples of each property out over N tests, for many workers (default: 1)",
    )
    group.addoption(
        "--reproduce", metavar="VERSION:BLOB", help="run one example of one property again"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the subject and its known list; whatever is wrong with them ends the run here."""
    config.addinivalue_line("markers", "clause(*ids, needs): clauses that the test checks")
    profile = config.getoption("--hypothesis-profile") or profiles.DEFAULT
    verdicts = config.getoption("verdicts")
    name = config.getoption("subject")
    device, layout = config.getoption("device"), config.getoption("layout")
    try:
        profiles.load(profile)
        if verdicts is not None and verdicts.is_dir():
            raise ValueError(f"--verdicts {verdicts} is a folder: name a file to be written")
        world = registry.world_kind(name, config.getoption("world"))
        shares_gpus = registry.SUBJECTS[name].shares_gpus
        selection = _selection(world, device, layout, shares_gpus)
        most_ranks = selection.only.tp if selection.only is not None else None
        subject, worlds = registry.load(name, world, device, most_ranks)
        if selection.reason:
            profiles.search_all_for_a_case(profile)
        subject.selection = dataclasses.replace(selection, kernels=subject.kernels)
        listed = known_list.load(config.getoption("known_list"), registry.SUBJECTS)
        entries = [
            entry
            for entry in listed.get(subject.name, ())
            if entry.applies_to(Version(subject.version)) and entry.is_of(device)
        ]
    except (SubjectError, known_list.KnownListError, ValueError) as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[_SUBJECT] = subject, worlds
    options = ["--subject", name, "--world", world, "--hypothesis-profile", profile]
    options += ["--device", device] if device != "cpu" else []
    options += ["--layout", layout] if layout is not None else []
    python = run_with(config.rootpath)
    runner = Runner(subject, entries, python, options)
    config.pluginmanager.register(runner, "gate-runner")
    if hasattr(config, "workerinput"):
        die_with(os.getppid())
        config.pluginmanager.register(Worker(runner), "gate-worker")
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
        whole=_is_whole(config),
        partial=bool(selection.reason or config.getoption("reproduce")),
    )
    config.pluginmanager.register(Judge(judgement, runner, verdicts), "gate-judge")


def _selection(world: str, device: str, layout: str | None, shares_gpus: bool = False) -> Selection:
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Share the examples of properties out."""
    if metafunc.definition.get_closest_marker(MARK):
        share_out(metafunc, metafunc.config.getoption("shares"))


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
    _, worlds = item.config.stash[_SUBJECT]
    if worlds.unavailable is not None and item.get_closest_marker(MARK):
        pytest.fail(f"no ranks: {worlds.unavailable}".partition("\n")[0], pytrace=False)


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """The implementation under judgement; its ranks end with the session."""
    chosen, worlds = request.config.stash[_SUBJECT]
    yield chosen
    worlds.close()


class Worker:
    """Hooks of an xdist worker: hand the plan to the process that judges."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        workeroutput: dict[str, object] = session.config.workeroutput  # type: ignore[attr-defined]
        workeroutput[RESULT] = {
            "plan": {test: list(ids) for test, ids in self._runner.plan.items()},
            "selected": sorted(self._runner.selected),
        }


class Judge:
    """Hooks of the process that the user started: gather, print, write, exit."""

    def __init__(self, judgement: Judgement, runner: Runner, path: Path | None) -> None:
        self._judgement = judgement
        self._runner = runner
        self._path = path
        self._failures = 0
        self._lost: dict[str, str] = {}

    def pytest_sessionstart(self) -> None:
        """Leave a file even of a run that is killed before its first result."""
        self._write()

    def pytest_report_header(self) -> list[str]:
        judgement = self._judgement
        settings_ = ", ".join(f"{name} {value}" for name, value in judgement.settings.items())
        return [
            f"subject: {judgement.subject} {judgement.version}, device {judgement.device}, "
            f"world {judgement.world}, profile {judgement.profile}",
            f"settings: {settings_}",
        ]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._judgement.plan.update(self._runner.plan)
        self._judgement.selected.update(self._runner.selected)
        self._write()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over the plan of an xdist worker; a crashed one leaves none."""
        output = getattr(node, "workeroutput", {}).get(RESULT)
        if output:
            self._judgement.plan.update({test: tuple(ids) for test, ids in output["plan"].items()})
            self._judgement.selected.update(output["selected"])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = _result_of(report)
        if result is not None:
            # What a test said stands, unless its tear-down fails after it.
            before = self._judgement.results.get(result.test)
            failed = before is not None and before.verdict is Verdict.FAIL
            if report.when != "teardown" or (report.failed and not failed):
                self._judgement.results[result.test] = result
                self._write()
            self._failures += result.verdict is Verdict.FAIL
        elif report.failed:
            self._lost[report.nodeid] = report.longreprtext.strip().rpartition("\n")[2]

    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, tuple[str, Mapping[str, bool]]] | None:
        """Count known failures and what is not applicable under their own names."""
        result = _result_of(report)
        verdict = result.verdict if result else None
        if verdict is Verdict.KNOWN:
            return "known", "k", ("KNOWN", {"yellow": True})
        if verdict is Verdict.NOT_APPLICABLE:
            return "not applicable", "n", ("NOT APPLICABLE", {"yellow": True})
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        judgement = self._judgement
        failed = self._failures
        for test, message in self._lost.items():
            if test in judgement.plan:
                judgement.results[test] = TestResult(
                    test, judgement.plan[test], Verdict.UNKNOWN, 0, reason=message
                )
            else:
                failed += 1
        finished = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        judgement.complete = finished and judgement.selected <= judgement.results.keys()
        if finished and (failed or judgement.complaints()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif finished and exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = NOT_JUDGED
        judgement.exit_code = int(session.exitstatus)
        self._write()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        judgement = self._judgement
        if not judgement.plan and not judgement.results:
            return
        writer = terminalreporter._tw
        terminalreporter.section(f"verdict on {judgement.subject} {judgement.version}")
        terminalreporter.write_line(table.render(judgement, writer.fullwidth, writer.hasmarkup))
        for result in judgement.results.values():
            if result.reason == PASSES_NOW:
                terminalreporter.write_line(f"{result.test}: {PASSES_NOW}", green=True)
        for complaint in judgement.complaints():
            terminalreporter.write_line(complaint, red=True)
        terminalreporter.write_line(table.summary(judgement))

    def _write(self) -> None:
        if self._path is not None:
            self._judgement.write(self._path)


def _result_of(report: pytest.TestReport | pytest.CollectReport) -> TestResult | None:
    """What the runner attached to the report of a property."""
    properties = dict(getattr(report, "user_properties", ()))
    return TestResult.from_json(properties[RESULT]) if RESULT in properties else None


def _is_whole(config: pytest.Config) -> bool:
    """Whether the run was asked for every property: whole folders, nothing deselected."""
    thinned = any(
        config.getoption(option, None)
        for option in ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf")
    )
    where = config.invocation_params.dir
    return not thinned and all((where / argument).is_dir() for argument in config.args)
