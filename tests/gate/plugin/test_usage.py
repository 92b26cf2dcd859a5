"""A wrong question gets one sentence and an exit code, and nothing is run."""

from __future__ import annotations

import pytest

from gate.exit_codes import ExitCode
from tests.gate.plugin.conftest import Gate

PASSES = (
    "from properties.contract import clause\n\n@clause('LIN-1')\ndef test_passes():\n    pass\n"
)


@pytest.mark.parametrize(
    ("subject", "arguments", "sentence"),
    [
        ("nobody", (), "there is no subject 'nobody': choose one of absent, impl, nothing, vllm"),
        ("nothing", ("--world", "forked"), "choose --world simulated"),
        ("vllm", ("--world", "simulated"), "choose --world forked"),
        ("absent", (), "fixtures.subjects.absent needs the module"),
        ("nothing", ("--reproduce", "0.1:abc"), "--reproduce is of Hypothesis 0.1"),
        ("nothing", ("--layout", "dcp=4"), "tp is missing, as in tp=8,dcp=4"),
        ("nothing", ("--layout", "tp=6,dcp=4"), "dcp 4 does not divide tp 6"),
        ("nothing", ("--layout", "tp=4,pcp=2"), "spells no layout at 'pcp=2'"),
        ("nothing", ("--hypothesis-profile", "week"), "choose dev, ci, fresh, nightly"),
        ("nothing", ("--verdicts", "."), "--verdicts . is a folder"),
        ("nothing", ("--known-list", "nowhere"), "nowhere: cannot be read: No such file"),
    ],
)
def test_a_wrong_question_is_answered_in_a_sentence(
    gate: Gate, subject: str, arguments: tuple[str, ...], sentence: str
) -> None:
    gate.write("test_properties.py", PASSES)
    run = gate.run(*arguments, ".", subject=subject)

    assert run.code == ExitCode.USAGE
    assert sentence in run.output
    assert "Traceback" not in run.output
    assert "passed" not in run.output


def test_an_unknown_clause_is_an_error_when_the_property_is_imported(gate: Gate) -> None:
    gate.write("test_properties.py", PASSES.replace("LIN-1", "LIN-99"))
    run = gate.run()

    assert run.code == ExitCode.INTERRUPTED
    assert "LIN-99: no such clause" in run.output
