from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.subjects.registry import SUBJECTS
from gate import findings, known_list
from gate.commands.findings import KNOWN_LIST, PAGE
from gate.known_list import KnownListError
from gate.results import FailureClass
from impl.plugin.mendings import MENDINGS


def test_the_page_shows_the_known_list() -> None:
    assert PAGE.read_text("utf-8") == findings.page(findings.read(KNOWN_LIST, SUBJECTS)), (
        "write it anew: python -m gate findings"
    )


def test_bugs_come_first() -> None:
    kinds = [finding.kind for finding in findings.read(KNOWN_LIST, SUBJECTS)]
    assert kinds == sorted(kinds, key=[FailureClass.BUG, FailureClass.LATENT].index)


def test_a_finding_without_its_table_is_named(tmp_path: Path) -> None:
    text = KNOWN_LIST.read_text("utf-8")
    path = tmp_path / "known.toml"
    path.write_text(text.replace("[finding.merge_for_three_ranks]", "[finding.another]"), "utf-8")
    with pytest.raises(KnownListError, match="another, merge_for_three_ranks"):
        findings.read(path, SUBJECTS)


def test_entries_name_mendings_of_the_plug_in_and_their_own_finding() -> None:
    listed = known_list.load(KNOWN_LIST, SUBJECTS)["vllm"]
    named = {entry.mended for entry in listed if entry.mended}
    assert named <= {mending.name for mending in MENDINGS}
    assert all(Path(entry.link).stem == entry.mended for entry in listed if entry.mended)
