"""The pages and the comparison say what the verdict files say."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.subjects.subject import Basis
from gate.judgement import Judgement
from gate.paste import ROOT, seen_from
from gate.report import columns, compare, pages, verdict_file
from gate.report.verdict_file import Run
from gate.results import FailureClass, KnownFailure, TestResult, Verdict


def _run(folder: Path, version: str, *results: TestResult, target: str = "") -> Run:
    path = folder / f"{target or f'vllm-{version}'}.json"
    Judgement(
        "vllm",
        version,
        "cpu",
        "forked",
        "ci",
        {"torch": "2.13.0"},
        run_with="PYTHONPATH=.tox/vllm/x .venv/bin/python",
        plan={result.test: result.clauses for result in results},
        selected={result.test for result in results},
        finished=True,
        results={result.test: result for result in results},
    ).write(path)
    return verdict_file.read(path)


def _result(verdict: Verdict, reason: str = "", clause: str = "LIN-2") -> TestResult:
    return TestResult(
        f"properties/test_x.py::test_{clause}",
        (clause,),
        verdict,
        7,
        reason=reason,
        counterexample="tp=2 <dcp=2>" if verdict is Verdict.FAIL else "",
        repeat="pytest --reproduce abc" if verdict is Verdict.FAIL else "",
        generated={"tp x dcp": {"8 x 2": 4, "2 x 2": 3}, "sequence length": {"17-32": 1, "2": 6}},
    )


def test_the_pages_show_verdict_reason_example_and_how_to_repeat(tmp_path: Path) -> None:
    failing = _run(tmp_path, "0.32.0", _result(Verdict.FAIL, "shard 1 | is wrong"))
    passing = _run(tmp_path, "0.33.0", _result(Verdict.PASS))
    pages.write(tmp_path, [failing, passing])

    html = (tmp_path / "index.html").read_text("utf-8")
    assert "tp=2 &lt;dcp=2&gt;" in html
    assert "pytest --reproduce abc" in html
    assert "https://" not in html
    assert html.index("<span>2</span>") < html.index("<span>17-32</span>")
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert "| LIN-2 | fail 7 | pass 7 |" in summary
    assert r"- LIN-2 **fail** on vllm 0.32.0: shard 1 \| is wrong" in summary
    assert "  - `pytest --reproduce abc`" in summary


def _known(*matches: str, clause: str = "LIN-2") -> TestResult:
    listed = tuple(
        KnownFailure(
            m,
            f"{m} is wrong",
            f"properties/scripts/{m}.py",
            FailureClass.BUG if m == "shape" else FailureClass.LATENT,
            f"who has a {m}",
        )
        for m in matches
    )
    reason = "; ".join(map(str, listed))
    return replace(_result(Verdict.KNOWN, reason, clause), listed=listed, counterexample="tp=2")


def test_a_reason_stands_once_with_its_script_its_clauses_and_its_releases(tmp_path: Path) -> None:
    runs = [
        _run(tmp_path, "0.30.0", _known("bias", "scale"), _known("bias", clause="GRP-1")),
        _run(tmp_path, "0.31.0", _known("bias"), _result(Verdict.PASS, clause="GRP-1")),
        _run(tmp_path, "0.32.0", _known("bias"), _result(Verdict.PASS, clause="GRP-1")),
    ]
    pages.write(tmp_path, runs)
    script = os.path.relpath(ROOT / "properties/scripts/bias.py", tmp_path)
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert summary.count("bias is wrong") == 1
    where = "LIN-2, GRP-1 on vllm 0.30.0 to 0.32.0"
    assert f"1. **latent** {where}: bias is wrong (who has a bias) ([shown]({script}))" in summary
    assert "2. **latent** LIN-2 on vllm 0.30.0: scale is wrong" in summary
    html = (tmp_path / "index.html").read_text("utf-8")
    assert f'<b>latent: LIN-2, GRP-1</b> bias is wrong (<a href="{script}">bias.py</a>)' in html
    # Of releases that fail alike, what is behind a cell tells once.
    assert "vllm 0.31.0, 0.32.0, 7 examples" in html


def test_the_summary_says_what_changed_from_release_to_release(tmp_path: Path) -> None:
    runs = [
        _run(tmp_path, "0.30.0", _known("bias", "scale")),
        _run(tmp_path, "0.31.0", _known("bias", "shape")),
        _run(tmp_path, "0.32.0", _known("bias", "shape")),
        _run(tmp_path, "0.33.0", _result(Verdict.PASS)),
    ]
    pages.write(tmp_path, runs)
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert (
        "- vllm 0.30.0 to vllm 0.31.0: known failure 1 is new; known failure 3 is gone\n"
        "- vllm 0.32.0 to vllm 0.33.0: LIN-2 from known to pass; known failures 1 to 2 are gone\n"
    ) in summary
    # Of what is known, bugs come first, and are counted apart.
    header = "| clauses | pass | known: bug | known: latent | examples | at known failures |"
    assert header in summary
    assert "| vllm 0.31.0, 0.32.0 | 0 | 1 | 0 | 7 | 0 |" in summary
    hit = "shape is wrong (who hits it: who has a shape)"
    assert f"1. **bug** LIN-2 on vllm 0.31.0, 0.32.0: {hit}" in summary


def test_the_summary_says_of_a_clause_that_does_not_apply_why(tmp_path: Path) -> None:
    lacks = "it came with 0.27.1"
    absent = replace(_result(Verdict.NOT_APPLICABLE, lacks, "LIN-3"), test="t::x", examples=0)
    partly = replace(_result(Verdict.NOT_APPLICABLE, "no GPU"), test="t::y", examples=0)
    pages.write(tmp_path, [_run(tmp_path, "0.26.0", absent, partly, _result(Verdict.PASS))])
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert f"- LIN-3 on vllm 0.26.0: {lacks}" in summary
    assert "no GPU" not in summary
    assert "no GPU" in (tmp_path / "index.html").read_text("utf-8")


def test_the_pages_say_what_a_verdict_rests_on(tmp_path: Path) -> None:
    results = [
        replace(_result(Verdict.PASS, clause=clause), rests_on={clause: basis})
        for clause, basis in (
            ("LIN-2", Basis.OWN),
            ("DEC-6", Basis.STAND_IN),
            ("MRG-1", Basis.INTERPRETED),
        )
    ]
    lacking = replace(_result(Verdict.NOT_APPLICABLE, "no GPU", "MRG-1"), test="t::x", examples=0)
    other = replace(
        _result(Verdict.PASS, clause="MRG-1"), test="t::y", rests_on={"MRG-1": Basis.STAND_IN}
    )
    known = replace(_known("bias", clause="DEC-7"), rests_on={"DEC-7": Basis.STAND_IN})
    pages.write(tmp_path, [_run(tmp_path, "0.32.0", *results, other, lacking, known)])

    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert "| clauses | pass | stand-in | known: latent | examples |" in summary
    for row in (
        "| LIN-2 | pass 7 |",
        "| DEC-6 | stand-in 7 |",
        "| MRG-1 | pass 7 of 14, interpreted, part |",
        "| DEC-7 | known: latent 7, stand-in |",
    ):
        assert row in summary
    html = (tmp_path / "index.html").read_text("utf-8")
    assert '<span class="word"> pass, interpreted, part</span>' in html
    assert '<button class="stand-in" popovertarget="DEC-6">○' in html
    assert "on own code:" in html
    for page in (html, summary):
        assert "Stand-in: every property that ran" in page


def test_releases_that_rest_on_different_code_are_not_alike(tmp_path: Path) -> None:
    own, interpreted = (
        replace(_result(Verdict.PASS), rests_on={"LIN-2": basis})
        for basis in (Basis.OWN, Basis.INTERPRETED)
    )
    runs = [
        _run(tmp_path, "0.30.0", own),
        _run(tmp_path, "0.31.0", own),
        _run(tmp_path, "0.32.0", interpreted),
    ]
    assert [len(block) for block in columns.alike(runs)] == [2, 1]


@pytest.mark.parametrize(
    ("meant", "words"),
    [
        ("a", "impl 1.0"),
        ("bc", "vllm 1.0, 1.1"),
        ("bcd", "vllm 1.0 to 1.2"),
        ("abd", "impl 1.0; vllm 1.0; vllm 1.2"),
        ("de", "vllm 1.2, 1.2 (vllm-mine)"),
        ("", ""),
    ],
)
def test_neighbors_of_one_subject_are_a_range(tmp_path: Path, meant: str, words: str) -> None:
    runs = {
        "a": replace(_run(tmp_path, "1.0", target="impl"), subject="impl"),
        "b": _run(tmp_path, "1.0"),
        "c": _run(tmp_path, "1.1"),
        "d": _run(tmp_path, "1.2"),
        "e": _run(tmp_path, "1.2", target="vllm-mine"),
    }
    assert columns.span([runs[name] for name in meant], list(runs.values())) == words


def test_the_page_links_the_scripts_of_a_failure(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "vllm-0.32.0" / "test_x-test_LIN-2.py"
    other = tmp_path / "scripts" / "vllm-0.31.0" / script.name
    for path in (script, other):
        path.parent.mkdir(parents=True)
        path.touch()
    pages.write(tmp_path, [_run(tmp_path, "0.32.0", _result(Verdict.FAIL, "wrong"))])
    html = (tmp_path / "index.html").read_text("utf-8")
    assert f'href="{script.relative_to(tmp_path)}"' in html
    line = f"PYTHONPATH=.tox/vllm/x .venv/bin/python {seen_from(ROOT, str(script))}"
    assert f"<pre>{line}</pre>" in html
    assert "0.31.0" not in html


@pytest.mark.parametrize(
    ("base", "patch", "changed"),
    [
        (_result(Verdict.PASS), _result(Verdict.PASS), []),
        (_result(Verdict.FAIL, "x"), _result(Verdict.FAIL, "x"), []),
        (_result(Verdict.FAIL, "x"), _result(Verdict.FAIL, "y"), ["LIN-2: fail -> fail"]),
        (_result(Verdict.PASS), _result(Verdict.FAIL, "y"), ["LIN-2: pass -> fail"]),
        (_result(Verdict.FAIL, "x"), _result(Verdict.PASS), ["LIN-2: fail -> pass"]),
    ],
)
def test_a_comparison_tells_what_changed(
    tmp_path: Path, base: TestResult, patch: TestResult, changed: list[str]
) -> None:
    found = compare.changes(_run(tmp_path, "1.0", base), _run(tmp_path, "1.1", patch))
    assert [str(change).partition(",")[0] for change in found] == changed
    assert any(change.is_new_failure for change in found) == any("-> fail" in c for c in changed)


def test_a_comparison_tells_what_a_pass_rests_on_no_more(tmp_path: Path) -> None:
    own, stand_in = (
        replace(_result(Verdict.PASS), rests_on={"LIN-2": basis})
        for basis in (Basis.OWN, Basis.STAND_IN)
    )
    base, patch = _run(tmp_path, "1.0", own), _run(tmp_path, "1.1", stand_in)
    (change,) = compare.changes(base, patch)
    assert str(change).splitlines()[1] == "    LIN-2 rests on own code -> stand-in"
    assert not change.is_new_failure
    assert not compare.changes(base, base)


def test_the_failures_closest_to_what_is_wrong_come_first_each_with_its_repeat_line(
    tmp_path: Path,
) -> None:
    wide = TestResult(
        "properties/test_serving.py::test_serving",
        ("DEC-1", "DEC-5", "KVS-1"),
        Verdict.FAIL,
        2,
        reason="it differs",
    )
    base = _run(
        tmp_path,
        "0.32.0",
        replace(wide, verdict=Verdict.PASS, reason=""),
        _result(Verdict.FAIL, "x", "COM-2"),
        _result(Verdict.PASS),
        _result(Verdict.PASS, clause="LIN-3"),
        _result(Verdict.PASS, clause="MEM-1"),
    )
    patch = _run(
        tmp_path,
        "0.32.0",
        wide,
        _result(Verdict.PASS, clause="COM-2"),
        _result(Verdict.FAIL, "shard 1 is wrong"),
        _result(Verdict.PASS, clause="LIN-3"),
        target="vllm-mine",
    )
    assert [str(change).splitlines() for change in compare.changes(base, patch)] == [
        [
            "LIN-2: pass -> fail, properties/test_x.py::test_LIN-2",
            "    shard 1 is wrong",
            "    to repeat it: pytest --reproduce abc",
        ],
        [
            "DEC-1, DEC-5, KVS-1: pass -> fail, properties/test_serving.py::test_serving",
            "    it differs",
        ],
        ["COM-2: fail -> pass, properties/test_x.py::test_COM-2"],
        ["MEM-1: pass -> unknown, properties/test_x.py::test_MEM-1", "    not run"],
    ]
    assert (base.title, patch.title) == ("vllm 0.32.0", "vllm 0.32.0 (vllm-mine)")


def test_a_file_that_is_no_verdict_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"schema": 0}', "utf-8")
    with pytest.raises(verdict_file.VerdictFileError, match=r"x\.json is of schema 0"):
        verdict_file.read(path)
