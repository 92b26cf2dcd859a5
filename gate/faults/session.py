"""A pytest session that collects the properties once and runs them on one fault after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import hypothesis
import pytest
from hypothesis import Phase

from fixtures.subjects.subject import Subject
from gate import profiles
from gate.faults.fault import Seed
from gate.faults.forks import in_forks
from gate.faults.outcome import Outcome, judge
from gate.faults.ranks import on_ranks
from gate.faults.trials import Report, Trial
from gate.plugin import SUBJECT
from gate.results import Verdict
from properties.contract import MARK, clauses_of

PROFILE = "faults"


def register_profile() -> None:
    """The examples of profile ``ci``, the first failing one ending the property unshrunk."""
    profiles.register()
    hypothesis.settings.register_profile(
        PROFILE,
        hypothesis.settings.get_profile("ci"),
        phases=(Phase.explicit, Phase.generate),
        report_multiple_bugs=False,
        print_blob=False,
    )


@dataclass
class Session:
    """Runs the baseline, then every fault; a plugin of one ``pytest.main``.

    Attributes:
        seeds: The faults.
        jobs: Faults that run at the same time.
        on_progress: Called with what is over: a fault's outcome, or None for a property of
            the baseline.
        on_start: Called with the number of properties of the baseline, and of faults.
        red: Properties that fail without any fault, with their reasons.
        outcomes: Of the faults, in their order.
        subject: Under judgement, known once the session has begun.
        not_collected: Why properties cannot be imported.
    """

    seeds: Sequence[Seed]
    jobs: int
    on_start: Callable[[int, int], None]
    on_progress: Callable[[Outcome | None], None]
    red: dict[str, str] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    subject: Subject | None = None
    not_collected: list[str] = field(default_factory=list)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a module of properties cannot be imported."""
        if report.failed:
            self.not_collected.append(f"{report.nodeid}: {report.longreprtext}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the faults in place of the tests."""
        if session.testsfailed:
            raise session.Interrupted("the properties cannot be collected")
        subject, worlds = session.config.stash[SUBJECT]
        self.subject = subject
        properties = [item for item in session.items if item.get_closest_marker(MARK)]
        needed = [
            item
            for item in properties
            if any(seed.place_of(clauses_of(item)) is not None for seed in self.seeds)
        ]
        self.on_start(len(needed), len(self.seeds))
        simulated = session.config.getoption("world") == "simulated"
        run = in_forks(subject, self.jobs) if simulated else on_ranks(subject, worlds, self.jobs)
        for trial, report in run([Trial(None, [item]) for item in needed]):
            for result in report.results:
                if result.verdict in (Verdict.FAIL, Verdict.UNKNOWN):
                    self.red[result.test] = result.reason
            if report.error:
                self.red[trial.items[0].nodeid] = report.error
            self.on_progress(None)
        green = [item for item in properties if item.nodeid not in self.red]
        trials = [Trial(seed, _in_order(seed, green)) for seed in self.seeds]
        outcomes = {}
        for trial, report in run(trials):
            outcome = _judge(trial, report)
            outcomes[outcome.id] = outcome
            self.on_progress(outcome)
        self.outcomes = [outcomes[seed.id] for seed in self.seeds]
        return True


def _judge(trial: Trial, report: Report) -> Outcome:
    seed = trial.seed
    assert seed is not None
    if report.fate is None:
        return judge(seed, report.results, report.seconds)
    return Outcome(
        seed.id, seed.clauses, seed.sentence, report.fate, reason=report.error,
        seconds=report.seconds,
    )  # fmt: skip


def _in_order(seed: Seed, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The properties that must kill ``seed``, in the order of its clauses."""
    places = [(seed.place_of(clauses_of(item)), item) for item in items]
    return [
        item
        for place, item in sorted(places, key=lambda pair: -1 if pair[0] is None else pair[0])
        if place is not None
    ]
