"""Makes mutants of a module: its source with one small change each. It runs nothing."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_SWAPS: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
}  # fmt: skip
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change. `line` is where it is, `name` what it is called: it stays the same while its function does."""

    name: str
    line: int
    source: str


@dataclass(frozen=True, slots=True)
class _Edit:
    node: ast.expr | ast.stmt
    new: str


def mutants_of(source: str) -> list[Mutant]:
    """All mutants of a module with this source that differ in a function, in the order of its lines.

    Messages, annotations, documentation and log lines are left as they are: what they say is for people.
    """
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole, seen = source.encode(), Counter[str]()
    found: list[Mutant] = []
    for place, edit in _functions(ast.parse(source), source):
        node = edit.node
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        old = whole[first:last].decode()
        if old == edit.new:
            continue
        name = f"{place}: {_short(old)} -> {_short(edit.new)}"
        seen[name] += 1
        name += f" ({seen[name]})" if seen[name] > 1 else ""
        found.append(Mutant(name, node.lineno, (whole[:first] + edit.new.encode() + whole[last:]).decode()))
    return found


def _short(text: str) -> str:
    return " ".join(text.split())


def _functions(tree: ast.Module, source: str) -> Iterator[tuple[str, _Edit]]:
    """The edits of every function that is not inside another one, with its name."""

    def walk(node: ast.AST, path: str) -> Iterator[tuple[str, _Edit]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _FUNCTIONS):
                for statement in child.body:
                    for edit in _edits(statement, source):
                        yield f"{path}{child.name}", edit
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{path}{child.name}.")

    return walk(tree, "")


def _edits(node: ast.AST, source: str) -> Iterator[_Edit]:
    """The edits of a statement or expression, and of all inside it."""
    if _for_people(node):
        return
    yield from _of_statement(node)
    yield from _of_expression(node, source)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _edits(child, source)


def _for_people(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Expr) and ast.unparse(node).startswith(("_log.", "self._log.")):
        return True
    if isinstance(node, ast.keyword) and node.arg in ("hint", "what"):
        return True
    return isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert)


def _of_statement(node: ast.AST) -> Iterator[_Edit]:
    if (
        (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await))
        or isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete)
        or (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript))
    ):
        yield _Edit(node, "pass")
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield _Edit(node.value, "None")
    elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Compare | ast.UnaryOp):
        yield _Edit(node.test, f"(not ({ast.unparse(node.test)}))")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _of_expression(node: ast.AST, source: str) -> Iterator[_Edit]:
    def text(part: ast.AST) -> str:
        return f"({ast.get_source_segment(source, part) or ast.unparse(part)})"

    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield _Edit(node, f"{text(node.left)} {_SWAPS[type(node.ops[0])]} {text(node.comparators[0])}")
    elif isinstance(node, ast.Compare):
        for at in range(len(node.ops)):
            operators = [_SWAPS[type(op)] if n == at else _SIGNS[type(op)] for n, op in enumerate(node.ops)]
            rest = zip(operators, node.comparators, strict=True)
            yield _Edit(node, f"{text(node.left)} {' '.join(f'{sign} {text(part)}' for sign, part in rest)}")
    elif isinstance(node, ast.BinOp) and type(node.op) in _SWAPS and not _is_text(node):
        yield _Edit(node, f"({text(node.left)} {_SWAPS[type(node.op)]} {text(node.right)})")
    elif isinstance(node, ast.BoolOp):
        word = " and " if isinstance(node.op, ast.Or) else " or "
        same = " or " if isinstance(node.op, ast.Or) else " and "
        yield _Edit(node, f"({word.join(text(part) for part in node.values)})")
        for at in range(len(node.values)):
            kept = [text(part) for n, part in enumerate(node.values) if n != at]
            yield _Edit(node, f"({same.join(kept)})")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _Edit(node, text(node.operand))
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield _Edit(node, str(not node.value))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield _Edit(node, repr(node.value + 1))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield _Edit(node.func, _CALLS[node.func.id])


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(part, ast.Constant | ast.JoinedStr) and "'" in ast.unparse(part) for part in ast.walk(node))


_SIGNS: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
