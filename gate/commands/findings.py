"""Write docs/findings.md, what was found in vLLM and what would mend it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from fixtures.subjects.registry import SUBJECTS
from gate import findings
from gate.exit_codes import ExitCode
from gate.known_list import KnownListError
from gate.paste import ROOT

KNOWN_LIST = ROOT / "properties" / "known.toml"
PAGE = ROOT / "docs" / "findings.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the page goes."""
    parser.add_argument("--to", type=Path, default=PAGE, help="(default: docs/findings.md)")


def run(options: argparse.Namespace) -> ExitCode:
    """Write the page.

    Raises:
        pytest.UsageError: The known list is wrong.
    """
    try:
        found = findings.read(KNOWN_LIST, SUBJECTS)
    except KnownListError as error:
        raise pytest.UsageError(str(error)) from error
    options.to.write_text(findings.page(found), "utf-8")
    print(f"{len(found)} findings are in {options.to}")
    return ExitCode.PASSED
