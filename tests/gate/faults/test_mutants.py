"""Generic mutants."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gate.faults import mutants as mutants_module
from gate.faults.mutants import mutants, mutations
from gate.faults.source import FaultError


def changed(text: str) -> set[tuple[str, str]]:
    return {(one.old, one.new) for one in mutations(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < b", {("a < b", "a <= b")}),
        ("a < b < c", {("a < b < c", "a <= b < c"), ("a < b < c", "a < b <= c")}),
        ("x is None", {("x is None", "x is not None")}),
        ("a // b", {("a // b", "((a) % (b))")}),
        ("a + b * c", {("a + b * c", "((a) - (b * c))"), ("b * c", "((b) // (c))")}),
        ("a and b", {("a and b", "((a) or (b))")}),
        ("not a", {("not a", "(a)")}),
        ("x = 2", {("2", "3")}),
        ("x = True", {("True", "False")}),
        ("x[:n]", {(":n", "n:")}),
        ("x[n:]", {("n:", ":n")}),
        ("x[a:b]", set()),
        ("f(x)", {("f(x)", "pass")}),
        ("x = a if b else c", {("b", "not (b)")}),
        ("x += y", {("x += y", "x -= y")}),
        ("é = 1; b = é < c", {("1", "2"), ("é < c", "é <= c")}),
    ],
)
def test_each_kind_of_mutation(text: str, expected: set[tuple[str, str]]) -> None:
    assert changed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError(f'{a + 1}')",
        "assert a < b, 1",
        "x: int",
        "f'{a + 1}'",
        "'a' + f'{b}'",
        "def f(x: list[1]) -> None: ...",
    ],
)
def test_what_nobody_computes_with_is_left_alone(text: str) -> None:
    assert changed(text) == set()


def test_a_mutation_tells_where_it_is() -> None:
    text = "class A:\n    def f(self):\n        if self.x:\n            return g(1)\n"
    assert {one.where for one in mutations(text)} == {"A.f"}
    for one in mutations(text):
        assert text[one.first : one.last] == one.old


def test_every_mutant_of_impl_is_another_valid_module() -> None:
    seeds = mutants()
    assert len({seed.id for seed in seeds}) == len(seeds)
    for seed in seeds:
        for text in seed.texts.values():
            ast.parse(text)


def test_an_argument_about_a_mutant_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(
        'equivalent = [{ mutant = "impl.layout:f: a -> b", why = "no reason" }]\n'
        '[clauses]\n"impl.layout" = ["KVS"]\n'
    )
    monkeypatch.setattr(mutants_module, "SETTINGS", settings)
    with pytest.raises(FaultError, match=r"no such mutant: impl.layout:f: a -> b"):
        mutants()
