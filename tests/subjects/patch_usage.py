"""A pytest plugin: which rows of the vllm subject's table the ranks use in each property.

``pytest properties --subject vllm -p tests.subjects.patch_usage --patch-usage FILE`` adds a line
of JSON to FILE for each property. Run as a program on such a file of a whole run, this prints
where the table's clauses, or what a property is said to rest on, are not what was measured, and
fails if they are not.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fixtures.subjects.subject import Basis
from fixtures.subjects.vllm import patches
from fixtures.subjects.vllm.patching import EVERY, NOTES, Kind, Patch
from properties.contract import clauses_of, contract, needs_of


@dataclass(frozen=True)
class Used:
    """What a property used.

    Attributes:
        test: Its node id.
        clauses: Those that it checks.
        rows: Names of the table's rows.
        rests_on: What a verdict says that it rests on, by clause.
    """

    test: str
    clauses: tuple[str, ...]
    rows: tuple[str, ...]
    rests_on: Mapping[str, Basis]


def read(file: Path) -> list[Used]:
    """What the plugin wrote."""
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return [
        Used(
            line["test"],
            tuple(line["clauses"]),
            tuple(line["rows"]),
            {clause: Basis(basis) for clause, basis in line["rests_on"].items()},
        )
        for line in lines
    ]


def measured(used: Iterable[Used], patch: Patch) -> tuple[str, ...]:
    """Clauses whose properties used a row, in the contract's order."""
    found = {clause for one in used if patch.name in one.rows for clause in one.clauses}
    return tuple(clause for clause in contract() if clause in found)


def misdeclared(used: Iterable[Used]) -> list[str]:
    """Where a verdict says of a property that it rests on what it did not run, a line each."""
    computing, interpreted = (
        {row.name for row in patches.TABLE if row.kind is kind and row.clauses != EVERY}
        for kind in (Kind.STAND_IN, Kind.INTERPRETED)
    )
    wrong = []
    for one in used:
        stands_in, interprets = (bool(names & {*one.rows}) for names in (computing, interpreted))
        for clause, basis in one.rests_on.items():
            right = {
                Basis.OWN: not stands_in or clause in patches.DECIDED_BY_VLLM,
                Basis.INTERPRETED: interprets and not stands_in,
                Basis.STAND_IN: stands_in,
            }
            # What did not run used no row.
            if one.rows and not right[basis]:
                wrong.append(f"{one.test}: {clause} is said to rest on {basis}, but ran {one.rows}")
    return wrong


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--patch-usage", metavar="FILE", required=True)


def pytest_configure(config: pytest.Config) -> None:
    # Workers and ranks take it over.
    if NOTES not in os.environ:
        os.environ[NOTES] = tempfile.mkdtemp(prefix="patches-used-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(NOTES)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    folder = Path(os.environ[NOTES], os.environ.get("PYTEST_XDIST_WORKER", "main"))
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    result = yield
    # Pytest rewrites the assertions of a plugin, unless another one has imported it before.
    from gate.plugin import SUBJECT

    subject, _ = item.config.stash[SUBJECT]
    line = {
        "test": item.nodeid,
        "clauses": clauses_of(item),
        "rests_on": {id_: subject.rests_on(id_, needs_of(item)) for id_ in clauses_of(item)},
        "rows": sorted(file.name for file in folder.iterdir()),
    }
    with Path(item.config.getoption("--patch-usage")).open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")
    return result


def main(file: Path) -> int:
    used = read(file)
    wrong = 0
    for patch in patches.TABLE:
        if patch.clauses != EVERY and not patch.until and patch.clauses != measured(used, patch):
            wrong += 1
            print(f"{patch.name}\n  listed   {patch.clauses}\n  measured {measured(used, patch)}")
    for line in misdeclared(used):
        wrong += 1
        print(line)
    return wrong


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) > 0)
