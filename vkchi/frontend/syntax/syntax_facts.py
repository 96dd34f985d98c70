"""Syntactic analysis: statements that may leave their block, and names that a loop may assign.

Most results are memoized in `Source.memo`.

    may_leave(source, if_node), names_assigned(source, for_node)
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard, TypeVar

from vkchi.frontend.syntax.source import Source
from vkchi.tuples import NamedTuple

LIST_CHANGES = ("append", "extend")  # methods that change a list in a kernel
SOMEWHERE = -1  # the position of an argument after a starred one
RECEIVER = "."  # the position of a method's receiver, or of a called object


_N = TypeVar("_N", bound=ast.AST)
Assignment = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr


class PassedName(NamedTuple):
    """A name in an argument of a call, which may assign it.

    The fields are the callee's expression, the argument's position or keyword, and the name at the
    bottom of the argument.
    """

    callee: ast.expr
    position: int | str
    name: str


class AssignedNames(NamedTuple):
    """Names that statements assign, and names in arguments of calls, which may assign them."""

    names: tuple[str, ...]
    passed: tuple[PassedName, ...]


def _remember(source: Source, key: Any, find: Callable[[], Any]) -> Any:
    try:
        return source.memo[key]
    except KeyError:
        found = source.memo[key] = find()
        return found


# --- nodes ---------------------------------------------------------------------------------------


def nodes_of(tree: ast.AST, cls: type[_N]) -> Iterator[_N]:
    """Yield the nodes of a class in a syntax tree."""
    return (n for n in ast.walk(tree) if isinstance(n, cls))


def name_in(n: ast.AST | None) -> str:
    """Return the name that an expression is; "" for other expressions."""
    return n.id if isinstance(n, ast.Name) else ""


def items_in(n: ast.expr) -> list[ast.expr]:
    """Return the items of a tuple or list display; n itself for other expressions."""
    return n.elts if isinstance(n, ast.Tuple | ast.List) else [n]


def assignments_of(tree: ast.AST) -> Iterator[Assignment]:
    return (n for n in ast.walk(tree) if isinstance(n, Assignment))


def is_loop(n: ast.AST) -> TypeGuard[ast.For | ast.While]:
    return isinstance(n, ast.For | ast.While)


def targets_of(n: Assignment) -> list[ast.expr]:
    return n.targets if isinstance(n, ast.Assign) else [n.target]


# --- leaving a block -----------------------------------------------------------------------------


def may_leave(source: Source, n: ast.stmt) -> bool:
    """True if n may skip the statements after it in its block."""
    return bool(_remember(source, (n, "leave"), lambda: _may_leave(source, n)))


def _may_leave(source: Source, n: ast.stmt) -> bool:
    if isinstance(n, ast.Return | ast.Break | ast.Continue):
        return True
    if isinstance(n, ast.If):
        # A list, not a generator: chains of `elif` nest, and generators nest on C's stack.
        return True in [may_leave(source, s) for s in (*n.body, *n.orelse)]
    return is_loop(n) and returns(source, n)


def always_leaves(stmts: Sequence[ast.stmt]) -> bool:
    """True if syntax proves that no path reaches the end of these statements."""
    for n in stmts:
        if isinstance(n, ast.Return | ast.Break | ast.Continue):
            return True
        if isinstance(n, ast.If) and always_leaves(n.body) and always_leaves(n.orelse):
            return True
    return False


def returns(source: Source, n: ast.For | ast.While) -> bool:
    """True if the loop contains a `return`, also in inner loops."""
    return any(isinstance(event, ast.Return) for event in events_in(source, n))


def first_break(source: Source, n: ast.For | ast.While) -> ast.stmt | None:
    """Return the first `break` that leaves loop n, or None."""
    found: ast.stmt | None = _remember(source, (n, "break"), lambda: next(_breaks(n.body), None))
    return found


def _breaks(stmts: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for n in stmts:
        if isinstance(n, ast.Break):
            yield n
        elif isinstance(n, ast.If):
            yield from _breaks(n.body)
            yield from _breaks(n.orelse)


# --- assigned names ------------------------------------------------------------------------------


def names_assigned(source: Source, n: ast.For | ast.While) -> AssignedNames:
    """Return the names that loop n may assign, except indices of loops."""
    found: AssignedNames = _remember(
        source, (n, "assigned"), lambda: _collect(events_in(source, n))
    )
    return found


def names_of_indices(source: Source, n: ast.For | ast.While) -> frozenset[str]:
    """Return the names of the indices of `for` loop n and of the `for` loops inside."""
    find = lambda: frozenset(  # noqa: E731
        name
        for event in events_in(source, n)
        if isinstance(event, ast.For)
        for name in bottom_names(event.target)
    )
    found: frozenset[str] = _remember(source, (n, "indices"), find)
    return found


def function_assigns(source: Source, name: str) -> bool:
    """True if the function's body assigns `name` or a part of it, other than as a loop's index."""
    find = lambda: frozenset(_collect(_events(source).all).names)  # noqa: E731
    return name in _remember(source, "locals", find)


def function_rebinds(source: Source, name: str) -> bool:
    """True if the function's body binds `name` itself, also as a loop's index."""
    find = lambda: frozenset(  # noqa: E731
        x.id for x in nodes_of(source.node, ast.Name) if isinstance(x.ctx, ast.Store)
    )
    return name in _remember(source, "rebound", find)


def count_assignments(source: Source, name: str) -> int:
    """Return how often the function's syntax assigns `name` or a part of it.

    Parameters and indices count as assigned once, those of lambdas inside do not count. Calls that
    take arguments by reference are not included.
    """

    def find() -> Counter[str]:
        a = source.node.args
        given = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x]
        return Counter([*given, *(name for x in ast.walk(source.node) for name in _assigned_at(x))])

    found: Counter[str] = _remember(source, "assignments", find)
    return found[name]


def _assigned_at(n: ast.AST) -> Iterator[str]:
    if isinstance(n, ast.Name | ast.Attribute | ast.Subscript) and isinstance(n.ctx, ast.Store):
        yield from bottom_names(n)
    elif isinstance(n, ast.Attribute) and n.attr in LIST_CHANGES:
        yield from bottom_names(n.value)


class Events(NamedTuple):
    """Assignments, `for` loops, calls and returns of a function, in order.

    `within` has the range of events in each loop, itself included.
    """

    all: list[ast.AST]
    within: dict[ast.AST, tuple[int, int]]


_EVENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.Call, ast.Return)
_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop)


def _events(source: Source) -> Events:
    events: Events = _remember(source, "events", lambda: _find_events(source.node))
    return events


def events_in(source: Source, n: ast.For | ast.While) -> list[ast.AST]:
    """Return assignments, `for` loops, calls and returns in a loop; n itself if it is a `for`."""
    found = _events(source)
    begin, end = found.within[n]
    return found.all[begin:end]


def _find_events(root: ast.FunctionDef) -> Events:
    events = Events([], {})

    def visit(n: ast.AST) -> None:
        begin = len(events.all)
        if isinstance(n, _EVENTS):
            events.all.append(n)
        for name in n._fields:
            child = getattr(n, name)
            for item in child if isinstance(child, list) else (child,):
                if isinstance(item, ast.AST) and not isinstance(item, _LEAVES):
                    visit(item)
        if is_loop(n):
            events.within[n] = begin, len(events.all)

    for n in root.body:
        visit(n)
    return events


def _collect(events: list[ast.AST]) -> AssignedNames:
    names: dict[str, None] = {}
    passed: dict[PassedName, None] = {}
    for s in events:
        if isinstance(s, Assignment):
            names.update(dict.fromkeys(name for t in targets_of(s) for name in bottom_names(t)))
        elif isinstance(s, ast.Call):
            passed.update(dict.fromkeys(_names_passed(s)))
            if isinstance(s.func, ast.Attribute) and s.func.attr in LIST_CHANGES:
                names.update(dict.fromkeys(bottom_names(s.func.value)))
    return AssignedNames(tuple(names), tuple(passed))


def _names_passed(n: ast.Call) -> Iterator[PassedName]:
    yield from (PassedName(n.func, RECEIVER, name) for name in bottom_names(n.func))
    is_counted = True
    for position, arg in enumerate(n.args):
        is_counted = is_counted and not isinstance(arg, ast.Starred)
        for name in bottom_names(arg):
            yield PassedName(n.func, position if is_counted else SOMEWHERE, name)
    for keyword in n.keywords:
        for name in bottom_names(keyword.value):
            yield PassedName(n.func, keyword.arg or "", name)


def bottom_names(n: ast.expr) -> Iterator[str]:
    """Yield the names under subscripts and attributes: `v` of `v[0].x`; all of a tuple's."""
    return (name.id for name in bottom_nodes(n))


def bottom_nodes(n: ast.expr) -> Iterator[ast.Name]:
    """Yield the Name nodes of `bottom_names`."""
    if isinstance(n, ast.Name):
        yield n
    elif isinstance(n, ast.Subscript | ast.Attribute | ast.Starred):
        yield from bottom_nodes(n.value)
    elif isinstance(n, ast.Tuple | ast.List):
        for item in n.elts:
            yield from bottom_nodes(item)
