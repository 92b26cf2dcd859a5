"""The named faults fit the code that they are put into, and reach the whole contract."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from gate.faults import fault as fault_module
from gate.faults.fault import Fault, Seed, catalog, seed_of
from gate.faults.seeding import edited_functions
from gate.faults.source import Edit, FaultError
from properties.contract import contract

README = Path(__file__).parents[3] / "README.md"
IMPL = catalog("impl")
VLLM = catalog("vllm")
PLUGIN = catalog("vllm+plugin")


@pytest.mark.parametrize("fault", IMPL, ids=lambda fault: fault.id)
def test_a_fault_of_impl_fits_the_code(fault: Fault) -> None:
    assert seed_of(fault).texts


@pytest.mark.parametrize("fault", PLUGIN, ids=lambda fault: fault.id)
def test_a_fault_of_the_plug_in_fits_the_code(fault: Fault) -> None:
    assert edited_functions(seed_of(fault).texts)


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.parametrize("fault", VLLM, ids=lambda fault: fault.id)
def test_a_fault_of_vllm_fits_the_installed_code(fault: Fault) -> None:
    assert edited_functions(seed_of(fault).texts)


def test_the_readme_counts_them() -> None:
    count = len(IMPL) + len(VLLM) + len(PLUGIN)
    assert f"puts {count} named faults into" in README.read_text("utf-8")


def test_the_properties_that_must_kill_a_fault_are_those_of_its_clause() -> None:
    seed = Seed("s", ("LIN-2",), "", {})
    assert seed.place_of(("LIN-1", "LIN-2")) == 0
    assert seed.place_of(("LIN-1",)) is None
    families = Seed("s", ("GRP", "LIN"), "", {})
    assert families.place_of(("LIN-1",)) == 1
    assert families.place_of(("LIN-1", "GRP-3")) == 0
    assert families.place_of(("DEC-1",)) is None


def test_a_stale_fault_names_itself_and_its_file() -> None:
    stale = Fault("lin-2-old", "LIN-2", "", (Edit("impl.layout", "no such text", "x"),))
    with pytest.raises(FaultError, match=r"fault lin-2-old: 'no such text' occurs 0 times in impl"):
        seed_of(stale)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('id = "a"\nclause = "LIN-2"\nsentence = ""', "fault a lacks edits"),
        ('id = "a"\nclause = "LIN-99"\nsentence = ""\nedits = [{}]', "no clause LIN-99"),
        ('id = "a"\nclause = "LIN-2"\nsentence = ""\nedits = []', "fault a edits nothing"),
        ('id = "a"\nclause = "LIN-2"\nsentence = ""\nedits = [{}]', "an edit lacks module, new"),
        ('id = "a"\ncause = ""\nclause = "LIN-2"\nsentence = ""\nedits = []', "unknown key cause"),
    ],
)
def test_a_catalog_of_the_wrong_shape_is_refused(
    entry: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "lin.toml").write_text(f"[[fault]]\n{entry}\n")
    monkeypatch.setattr(fault_module, "HERE", tmp_path)
    with pytest.raises(FaultError, match=message):
        catalog("mine")


def test_faults_stand_in_the_order_of_the_contract() -> None:
    order = list(contract())
    places = [order.index(fault.clause) for fault in IMPL]
    assert places == sorted(places)
