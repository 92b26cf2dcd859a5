"""The table of what is replaced in vLLM is whole, and right."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from fixtures.subjects.subject import Basis
from fixtures.subjects.vllm import page, patches
from fixtures.subjects.vllm.patching import EVERY, Kind, Patch
from properties.contract import contract
from tests.subjects import patch_usage

ROOT = Path(__file__).parents[2]
SUBJECT = ROOT / "fixtures" / "subjects" / "vllm"
SOURCES = sorted(path for path in SUBJECT.rglob("*.py") if path.name != "patching.py")
installed = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"
)


def replacements(source: str) -> Iterator[str]:
    """What a module does to objects that are not its own."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                yield from _foreign(targets)
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                yield from _foreign([target])
            case ast.Call(func=ast.Name(id="setattr" | "delattr")):
                yield ast.unparse(node)
            case ast.Attribute(attr="environ" | "modules") if _is_name(node.value, "os", "sys"):
                yield ast.unparse(node)
            case ast.ImportFrom(module="unittest.mock", names=names):
                yield from (one.name for one in names if one.name != "MagicMock")
            case ast.ImportFrom(module="unittest", names=[ast.alias(name="mock")]):
                yield "mock"


def _is_name(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _foreign(targets: list[ast.expr]) -> Iterator[str]:
    for target in targets:
        match target:
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                yield from _foreign(elements)
            case ast.Attribute(value=value) if not _is_name(value, "self"):
                yield ast.unparse(target)
            case ast.Subscript(value=ast.Attribute()):
                yield ast.unparse(target)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_nothing_is_replaced_past_the_table(path: Path) -> None:
    assert not list(replacements(path.read_text("utf-8")))


@pytest.mark.parametrize(
    "source",
    [
        "linear.gemm = ours",
        "layer.forward_impl: object = ours",
        "kernels.CHOICES['cpu'] = ours",
        "os.environ['RANK'] = '0'",
        "setattr(torch, 'Event', ours)",
        "sys.modules.update(ours)",
        "from unittest import mock",
        "from unittest.mock import patch",
        "a, torch.Event = ours",
    ],
)
def test_a_replacement_is_seen(source: str) -> None:
    assert list(replacements(source))


def test_every_row_is_in_the_table_once() -> None:
    rows: list[Patch] = []
    for value in vars(patches).values():
        rows += [value] if isinstance(value, Patch) else []
        if isinstance(value, tuple) and value is not patches.TABLE:
            rows += [one for one in value if isinstance(one, Patch)]
    assert set(rows) == set(patches.TABLE)
    assert len({row.name for row in patches.TABLE}) == len(patches.TABLE)


@pytest.mark.parametrize("row", patches.TABLE, ids=lambda row: row.attribute)
def test_a_row_names_a_stand_in_and_clauses_that_there_are(row: Patch) -> None:
    assert row.clauses == EVERY or set(row.clauses) <= contract().keys()
    assert row.why.endswith(".")
    module, colon, path = row.stand_in.partition(":")
    if not colon or not module.startswith("fixtures"):
        return
    source = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
    scope: list[ast.stmt] = ast.parse(source).body
    for name in path.split("."):
        scope = next(body for found, body in _defined(scope) if found == name)


def _defined(scope: list[ast.stmt]) -> Iterator[tuple[str, list[ast.stmt]]]:
    for node in scope:
        match node:
            case ast.FunctionDef(name=name, body=body) | ast.ClassDef(name=name, body=body):
                yield name, body
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name, []


def test_rows_are_for_the_releases_that_need_them() -> None:
    old, new = Version("0.28.0"), Version("0.29.0rc1+cpu")
    for before, since in zip(patches.MERGE_KERNELS[3:], patches.MERGE_KERNELS[:3], strict=True):
        assert before.applies(old)
        assert since.applies(new)
        assert not before.applies(new)
        assert not since.applies(old)
    assert patches.SPLIT.applies(old)
    assert patches.SPLIT.applies(new)


def test_on_a_gpu_nothing_stands_for_what_a_gpu_has() -> None:
    replaced = {row.name for row in patches.TABLE if row.serves("cuda")}
    for row in (
        *patches.CACHE_KERNELS,
        *patches.QUANTIZED_KERNELS,
        *patches.MERGE_KERNELS,
        *patches.INTERPRETER,
        *patches.UNQUANTIZED_PRODUCT,
        patches.PLATFORM,
        patches.DECODE_BACKEND,
        patches.DECODE_BUILDER,
        patches.SPLIT,
    ):
        assert row.name not in replaced
    computing = {row for row in patches.TABLE if row.serves("cuda") and row.kind is Kind.STAND_IN}
    assert computing == {patches.SHARED_REDUCE_SCATTER, patches.SHARED_GATHER}


def test_a_clause_rests_on_what_computes_or_a_reason_says_why_not() -> None:
    version = Version("0.32.0")
    computing = [row for row in patches.TABLE if row.kind is Kind.STAND_IN and row.serves("cpu")]
    leaning = {clause for row in computing if row.applies(version) for clause in row.clauses}
    assert patches.DECIDED_BY_VLLM.keys() <= leaning
    assert patches.stood_in(version, "cpu") == leaning - patches.DECIDED_BY_VLLM.keys()
    assert not patches.stood_in(version, "cuda")


@pytest.mark.parametrize(
    ("basis", "kinds", "right"),
    [
        (Basis.STAND_IN, [Kind.STAND_IN], True),
        (Basis.STAND_IN, [Kind.CONFIGURATION], False),
        (Basis.INTERPRETED, [Kind.INTERPRETED], True),
        (Basis.INTERPRETED, [Kind.INTERPRETED, Kind.STAND_IN], False),
        (Basis.INTERPRETED, [Kind.CONFIGURATION], False),
        (Basis.OWN, [Kind.CONFIGURATION], True),
        (Basis.OWN, [Kind.STAND_IN], False),
        (Basis.OWN, [], True),
        (Basis.STAND_IN, [], True),
    ],
)
def test_what_a_property_is_said_to_rest_on_is_measured(
    basis: Basis, kinds: list[Kind], right: bool
) -> None:
    rows = tuple(
        next(row.name for row in patches.TABLE if row.kind is kind and "DEC-6" in row.clauses)
        for kind in kinds
    )
    used = patch_usage.Used("test_x", ("DEC-6",), rows, {"DEC-6": basis})
    assert bool(patch_usage.misdeclared([used])) is not right


def test_the_table_is_read_without_vllm() -> None:
    code = (
        "import sys, fixtures.subjects.vllm.patches\n"
        "print([m for m in ('vllm', 'triton', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("device", page.DOCUMENTS)
def test_the_document_shows_the_table(device: str) -> None:
    document = page.DOCUMENTS[device].read_text("utf-8")
    assert page.written(document, device) == document, "run python -m fixtures.subjects.vllm.page"


@installed
def test_clauses_are_those_that_run_a_row(tmp_path: Path) -> None:
    # Every property of one clause that is quickly judged, beside some that rest on other code.
    clauses, properties = ("MRG-6",), ("properties/test_kvs.py", "properties/test_mrg.py")
    chosen = "metadata_counts or order_of_the_ranks or agrees_on_the_merged or slots_and_tokens"
    file = tmp_path / "used.jsonl"
    options = "--subject vllm --hypothesis-profile ci -p no:cacheprovider"
    measure = f"-p tests.subjects.patch_usage --patch-usage {file}"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *properties, "-k", chosen),
            *options.split(),
            *measure.split(),
        ],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if "PYTEST" not in name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    used = patch_usage.read(file)
    assert {basis for one in used for basis in one.rests_on.values()} == set(Basis)
    assert not patch_usage.misdeclared(used)
    for clause in clauses:
        listed = {row for row in patches.leaning(clause) if not row.until and row.serves("cpu")}
        of_all = {row for row in patches.TABLE if row.clauses == EVERY}
        ran = {row for row in patches.TABLE if clause in patch_usage.measured(used, row)}
        assert ran - of_all == listed
