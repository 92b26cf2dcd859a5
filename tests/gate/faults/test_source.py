"""Edits of source text."""

from __future__ import annotations

import pytest

from gate.faults.source import Edit, FaultError, definitions, edited, path_of, text_of

TEXT = """\
LIMIT = 3


class Box:
    @property
    def size(self):
        return LIMIT + 1

    def grow(self):
        def twice(x):
            return x * 2
        return twice(self.size)


def size():
    return LIMIT + 1
"""


def test_an_edit_replaces_text_that_occurs_once() -> None:
    assert "LIMIT = 4" in edited(TEXT, Edit("box", "LIMIT = 3", "LIMIT = 4"))


def test_within_narrows_to_one_function() -> None:
    result = edited(TEXT, Edit("box", "LIMIT + 1", "LIMIT - 1", within="Box.size"))
    assert result.count("LIMIT - 1") == 1
    assert result.index("LIMIT - 1") < result.index("def grow")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit("box", "LIMIT + 1", "0"), "occurs 2 times in box"),
        (Edit("box", "LIMIT + 9", "0"), "occurs 0 times in box"),
        (Edit("box", "LIMIT + 1", "0", within="Box.grow"), "occurs 0 times in Box.grow of box"),
        (Edit("box", "LIMIT", "0", within="Box.shrink"), "box has no Box.shrink"),
        (Edit("box", "LIMIT = 3", "LIMIT ="), "leaves no valid Python"),
        (Edit("box", "LIMIT = 3", "LIMIT = 3"), "replaces 'LIMIT = 3' by 'LIMIT = 3'"),
        (Edit("box", "", "LIMIT = 3"), "replaces ''"),
    ],
)
def test_an_edit_that_does_not_fit_says_why(edit: Edit, message: str) -> None:
    with pytest.raises(FaultError, match=message.replace("(", r"\(")):
        edited(TEXT, edit)


def test_definitions_are_found_by_qualified_name() -> None:
    import ast

    names = [name for name, _ in definitions(ast.parse(TEXT))]
    assert names == ["Box", "Box.size", "Box.grow", "Box.grow.<locals>.twice", "size"]


def test_a_module_is_found_without_importing_it() -> None:
    assert path_of("impl.layout").name == "layout.py"
    assert path_of("impl.backends").name == "__init__.py"
    assert "def divide" in text_of("impl.layout")
    with pytest.raises(FaultError, match=r"impl.absent: no such module"):
        path_of("impl.absent")
    with pytest.raises(FaultError, match="no package absent is installed"):
        path_of("absent.module")
