"""Generic mutants of impl's own files, so that nothing depends on having thought of a fault."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gate.faults.fault import HERE, Seed
from gate.faults.source import FaultError, line_starts, text_of

SETTINGS = HERE / "impl" / "mutants" / "settings.toml"

_COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_OPERATORS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.Div: "*", ast.FloorDiv: "%", ast.Mod: "//",
    ast.Pow: "*", ast.BitAnd: "|", ast.BitOr: "&", ast.MatMult: "*",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutation:
    """A piece of source and what a mutant has in its place.

    Attributes:
        where: Qualified name of the function or class around it; ``<module>`` outside of any.
        first: Offset of its first character.
        last: Offset behind its last.
        old: The piece.
        new: What replaces it.
    """

    where: str
    first: int
    last: int
    old: str
    new: str


def mutants() -> list[Seed]:
    """Every mutant of the modules that the settings list, with the clauses that should kill it.

    Raises:
        FaultError: The settings argue about a mutant that does not exist.
    """
    settings = tomllib.loads(SETTINGS.read_text("utf-8"))
    argued = {entry["mutant"]: entry["why"] for entry in settings["equivalent"]}
    seeds = []
    for module, clauses in settings["clauses"].items():
        text = text_of(module)
        seen: Counter[str] = Counter()
        for mutation in mutations(text):
            name = f"{module}:{mutation.where}: {_line(mutation.old)} -> {_line(mutation.new)}"
            seen[name] += 1
            if seen[name] > 1:
                name += f" #{seen[name]}"
            mutated = text[: mutation.first] + mutation.new + text[mutation.last :]
            line = text.count("\n", 0, mutation.first) + 1
            seeds.append(
                Seed(
                    name,
                    tuple(clauses),
                    f"line {line}",
                    {module: mutated},
                    argued.pop(name, ""),
                )
            )
    if argued:
        raise FaultError(
            f"{SETTINGS}: no such mutant: {'; '.join(argued)}: the code has changed, so argue "
            "anew or remove the entry"
        )
    return seeds


def _line(text: str) -> str:
    return " ".join(text.split())


def mutations(text: str) -> Iterator[Mutation]:
    """Every mutation of a module, in the order of its source.

    Comparisons, arithmetic, boolean operators, conditions, numbers, truth values, slices and
    returned values are changed one at a time. What is raised, annotated or asserted is left
    alone: changing the text of an error is no fault.
    """
    finder = _Finder(text)
    finder.visit(ast.parse(text))
    yield from sorted(finder.found, key=lambda mutation: (mutation.first, mutation.last))


class _Finder(ast.NodeVisitor):
    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = line_starts(text)
        self._where: list[str] = []
        self.found: list[Mutation] = []

    def _offset(self, line: int, column: int) -> int:
        start = self._starts[line - 1]
        prefix = self._text[start : self._starts[line]].encode()[:column]
        return start + len(prefix.decode())

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._offset(node.lineno, node.col_offset),
            self._offset(node.end_lineno, node.end_col_offset),
        )

    def _source(self, node: ast.expr) -> str:
        first, last = self._span(node)
        return self._text[first:last]

    def _replace(self, node: ast.expr | ast.stmt, new: str) -> None:
        first, last = self._span(node)
        where = ".".join(self._where) or "<module>"
        self.found.append(Mutation(where, first, last, self._text[first:last], new))

    def _scope(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self._where.append(node.name)
        for child in node.body:
            self.visit(child)
        if isinstance(node, ast.FunctionDef):
            for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
                self.visit(default)
        self._where.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._scope(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope(node)

    def visit_Raise(self, node: ast.Raise) -> None: ...

    def visit_Assert(self, node: ast.Assert) -> None: ...

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...

    def visit_keyword(self, node: ast.keyword) -> None:
        # strict= of zip is an assertion.
        if node.arg != "strict":
            self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if not _is_type_checking(node.test):
            self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        # The negation of a single comparison is that comparison's own mutant, or nearly so.
        if not isinstance(test, ast.Compare) and not (
            isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        ):
            self._replace(test, f"not ({self._source(test)})")

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            new = _COMPARISONS[type(operator)]
            first, last = self._span(left)[1], self._span(right)[0]
            whole_first, whole_last = self._span(node)
            new_text = self._text[whole_first:first] + f" {new} " + self._text[last:whole_last]
            if _parses(new_text):
                self._replace(node, new_text)
            left = right
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        new = _OPERATORS.get(type(node.op))
        if new and not _is_text(node):
            text = f"({self._source(node.left)}) {new} ({self._source(node.right)})"
            self._replace(node, f"({text})")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        new = _OPERATORS.get(type(node.op))
        if new:
            self._replace(node, f"{self._source(node.target)} {new}= {self._source(node.value)}")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        new = " or " if isinstance(node.op, ast.And) else " and "
        self._replace(node, "(" + new.join(f"({self._source(v)})" for v in node.values) + ")")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._replace(node, f"({self._source(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._replace(node, repr(node.value + 1))

    def visit_Slice(self, node: ast.Slice) -> None:
        if node.step is None and (node.lower is None) != (node.upper is None):
            text = self._source(node.lower or node.upper)  # type: ignore[arg-type]
            self._replace(node, f":{text}" if node.upper is None else f"{text}:")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.Name | ast.Attribute | ast.Call):
            self._replace(node.value, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            self._replace(node, "pass")
        self.generic_visit(node)


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )


def _parses(expression: str) -> bool:
    try:
        ast.parse(f"({expression})")
    except SyntaxError:
        return False
    return True
