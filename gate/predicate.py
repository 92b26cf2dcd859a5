"""Conditions on an example, which an entry of the known list states as Python expressions."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

FUNCTIONS = ("abs", "all", "any", "len", "max", "min", "round", "set", "sorted", "sum")
_BUILTINS = {name: getattr(builtins, name) for name in FUNCTIONS}
# Nothing among these assigns, imports or has an effect.
_ALLOWED = (
    ast.Expression,
    ast.BoolOp,
    ast.boolop,
    ast.UnaryOp,
    ast.unaryop,
    ast.BinOp,
    ast.operator,
    ast.Compare,
    ast.cmpop,
    ast.IfExp,
    ast.Call,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Name,
    ast.expr_context,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.GeneratorExp,
    ast.ListComp,
    ast.SetComp,
    ast.comprehension,
)


class PredicateError(Exception):
    """A condition cannot be evaluated on an example; says which, and what to change."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on the arguments of a property.

    Attributes:
        text: The expression.
        names: Arguments that it asks for.
    """

    text: str
    names: frozenset[str]
    _code: CodeType = field(repr=False, compare=False)

    def holds(self, arguments: Mapping[str, Any]) -> bool:
        """Whether an example with these arguments is one of those meant.

        Raises:
            PredicateError: It asks for what the example does not have.
        """
        try:
            # One namespace, so that a generator expression sees the arguments as well.
            return bool(eval(self._code, {"__builtins__": _BUILTINS, **arguments}))
        except Exception as error:
            raise PredicateError(
                f"known list: when = {self.text!r} cannot be evaluated: "
                f"{type(error).__name__}: {error}; the example has {', '.join(sorted(arguments))}"
            ) from error


def parse(text: str) -> Predicate:
    """The condition that ``text`` states.

    Raises:
        ValueError: It is no expression of the kind that is allowed here; says what to change.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"is no Python expression: {error.msg}") from error
    bound: set[str] = set()
    read: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise ValueError(
                f"has a {type(node).__name__}: compare, calculate and call "
                f"{', '.join(FUNCTIONS)}, nothing else"
            )
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            raise ValueError(f"reads {node.attr}, which is nobody else's: ask for what is public")
        if isinstance(node, ast.Name):
            (bound if isinstance(node.ctx, ast.Store) else read).add(node.id)
    names = frozenset(read - bound - set(FUNCTIONS))
    if not names:
        raise ValueError("asks for no argument of the property: name one of the example's")
    return Predicate(text, names, compile(tree, "<known list>", "eval"))
