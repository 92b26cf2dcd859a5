"""Run the properties on a subject; one of these lives in every process that runs tests."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Sequence

import pytest
from hypothesis import is_hypothesis_test
from hypothesis.errors import DidNotReproduce, Unsatisfiable

from fixtures.strategies.layouts import covering
from fixtures.subjects.subject import Subject
from gate import known
from gate.causes import place_of
from gate.examples import (
    Examples,
    explained_by,
    in_words,
    is_of_an_example,
    names_of,
    tolerate_known_failures,
)
from gate.reproduction import option_of, pin
from gate.results import KnownFailure, TestResult, Verdict
from gate.shrinking import STOPPED_EARLY
from properties.contract import MARK, clauses_of, needs_of

RESULT = "gate"
PASSES_NOW = "this example passes now"
EXAMPLES = pytest.StashKey[Examples]()


class Runner:
    """Hooks that run tests and attach a :class:`TestResult` to the reports of properties."""

    def __init__(
        self,
        subject: Subject,
        entries: Sequence[known.Entry],
        run_with: str,
        options: Sequence[str],
    ) -> None:
        """Judge one subject.

        Args:
            subject: The subject.
            entries: Its known list.
            run_with: Start of a command line that runs this Python from pytest's root.
            options: Choose this subject, world and profile again.
        """
        self._subject = subject
        self._entries = entries
        self._run_with = run_with
        self._options = options
        self.plan: dict[str, tuple[str, ...]] = {}
        self.selected: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note which clauses are covered, before ``-k`` and the like thin the tests out."""
        self.plan = {item.nodeid: clauses_of(item) for item in items if _is_property(item)}
        for item in filter(_is_property, items):
            assert isinstance(item, pytest.Function)
            for entry in self._entries_of(item):
                if wrong := known.misplaced(entry, item.nodeid, *names_of(item)):
                    raise pytest.UsageError(
                        f"known list: the entry {entry.match.pattern!r} is misplaced: {wrong}"
                    )

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what is left to run."""
        if reproduce := session.config.getoption("reproduce"):
            pin(session.items, reproduce)
        self.selected = {item.nodeid for item in session.items if _is_property(item)}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Leave out a property whose needs the subject lacks, with its reason."""
        reasons = [
            self._subject.lacks[part] for part in needs_of(item) if part in self._subject.lacks
        ]
        if reasons:
            pytest.skip("; ".join(dict.fromkeys(reasons)))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Count the examples of a property; other plugins find the count in its stash."""
        if not _is_property(item):
            return (yield)
        assert isinstance(item, pytest.Function)
        entries = self._entries_of(item)
        result = None
        with (
            covering(self._subject.selection),
            tolerate_known_failures(item, entries) as examples,
        ):
            item.stash[EXAMPLES] = examples
            try:
                result = yield
            except DidNotReproduce:
                # Also said of an example that could not be built again, which is no pass.
                if not (examples.finished or examples.at_known_failures):
                    raise
        if examples.known:
            raise BaseExceptionGroup("failures as listed", list(examples.known.values()))
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Judge the test, and give its report the outcome that goes with the verdict."""
        report = yield
        if not _is_property(item) or (report.passed and call.when != "call"):
            return report
        result = self._judge(item, call, report)
        report.user_properties.append((RESULT, result.to_json()))
        if result.verdict is Verdict.KNOWN:
            report.outcome = "skipped"
            report.wasxfail = result.reason
        elif result.verdict is Verdict.NOT_APPLICABLE and report.failed:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, result.reason)
        elif result.verdict is Verdict.UNKNOWN and not report.failed:
            report.outcome = "failed"
            report.longrepr = result.reason
        elif report.failed:
            if result.counterexample:
                report.sections.append(("the example in words", result.counterexample))
            if result.stopped_early:
                report.sections.append(("how small it is", STOPPED_EARLY))
            report.sections.append(("to repeat", result.repeat))
        return report

    def _judge(
        self, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
    ) -> TestResult:
        examples = item.stash.get(EXAMPLES, Examples())
        verdict, reason, counterexample = Verdict.PASS, "", ""
        listed: tuple[KnownFailure, ...] = ()
        errors = _raised_by_examples(call.excinfo.value) if call.excinfo else []
        skipped = call.excinfo and isinstance(call.excinfo.value, pytest.skip.Exception)
        # Hypothesis skips a test that its settings leave no example: that says nothing.
        ran = examples.finished or examples.at_known_failures
        silent = not examples.started if skipped else not (call.excinfo or ran)
        if call.when == "call" and silent:
            verdict, reason = Verdict.UNKNOWN, "executed no example"
        elif call.excinfo is None:
            reason = PASSES_NOW if item.config.getoption("reproduce") else ""
        elif skipped:
            verdict, reason = Verdict.NOT_APPLICABLE, str(call.excinfo.value)
        elif call.when != "call":
            verdict = Verdict.UNKNOWN
            reason = f"{call.when} failed: {_headline(call.excinfo.value)}"
        else:
            verdict, reason, listed = self._judge_errors(item, errors)
            if self._subject.selection.reason and all(
                isinstance(error, Unsatisfiable) for error in errors
            ):
                verdict = Verdict.NOT_APPLICABLE
                reason = f"{self._subject.selection.reason}: this property has no such case"
            if (
                verdict is Verdict.FAIL
                and _has_examples(item)
                and not any(map(is_of_an_example, errors))
            ):
                # Raised while an example was drawn: no word on the subject.
                verdict = Verdict.UNKNOWN
            # Of a listed failure nothing else is shown.
            words = in_words if verdict is not Verdict.KNOWN else _in_words_and_message
            counterexample = "\n\n".join(filter(None, map(words, errors)))
        repeat = place = ""
        if call.excinfo and not report.skipped:
            repeat = self._repeat(item, examples.decorators)
            places = (place_of(error, self._subject.name) for error in errors)
            place = next(filter(None, places), "")
        return TestResult(
            test=item.nodeid,
            clauses=clauses_of(item),
            verdict=verdict,
            examples=examples.finished,
            known_examples=examples.at_known_failures,
            seconds=round(report.duration, 3),
            reason=reason,
            counterexample=counterexample,
            repeat=repeat,
            stopped_early=examples.stopped_early,
            place=place,
            generated=examples.features.to_json(),
            listed=listed,
            rests_on={id_: self._subject.rests_on(id_, needs_of(item)) for id_ in clauses_of(item)},
        )

    def _judge_errors(
        self, item: pytest.Item, errors: Sequence[BaseException]
    ) -> tuple[Verdict, str, tuple[KnownFailure, ...]]:
        """Known only if every distinct failure is; else those that are not known decide.

        Returns:
            The verdict, its reason, and the known failures among ``errors``.
        """
        entries = self._entries_of(item)
        listed: dict[KnownFailure, None] = {}
        new: list[BaseException] = []
        for error in errors:
            # Of an example it is said where the arguments are known.
            by = explained_by(error) or known.explanation(entries, error)
            if by is None:
                new.append(error)
            else:
                listed[by.as_failure()] = None
        if not new:
            return Verdict.KNOWN, "; ".join(dict.fromkeys(map(str, listed))), tuple(listed)
        failures = [error for error in new if not isinstance(error, known.UNDECIDED)]
        verdict = Verdict.FAIL if failures else Verdict.UNKNOWN
        headlines = dict.fromkeys(map(_headline, failures or new))
        return verdict, "; ".join(headlines), tuple(listed)

    def _entries_of(self, item: pytest.Item) -> list[known.Entry]:
        return [entry for entry in self._entries if entry.covers(item.nodeid, clauses_of(item))]

    def _repeat(self, item: pytest.Item, decorators: Sequence[str]) -> str:
        # Hypothesis ends with the smallest of several.
        command = ["-m", "pytest", item.nodeid, *self._options]
        if decorators:
            command += ["--reproduce", option_of(decorators[-1])]
        return f"{self._run_with} {shlex.join(command)}"


def _has_examples(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and is_hypothesis_test(item.function)


def _is_property(item: pytest.Item) -> bool:
    return item.get_closest_marker(MARK) is not None


def _message(error: BaseException) -> str:
    if isinstance(error, pytest.fail.Exception):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _headline(error: BaseException) -> str:
    return _message(error).partition("\n")[0]


def _raised_by_examples(error: BaseException) -> list[BaseException]:
    """The errors by which single examples failed; an example may itself raise a group."""
    if isinstance(error, BaseExceptionGroup) and not is_of_an_example(error):
        return [raised for inner in error.exceptions for raised in _raised_by_examples(inner)]
    return [error]


def _in_words_and_message(error: BaseException) -> str:
    return "\n".join(filter(None, [in_words(error), _headline(error)]))
