"""Rewriting of `match`, the `else` of loops, and `with`; syntax without support.

    for i in range(n):          is_complete = True
        if f(i):                for i in range(n):
            break                   if f(i):
    else:                               is_complete = False
        g()                             break
                                if is_complete:
                                    g()

    match x:                    if x == 0:
        case 0: f()                 f()
        case 1 | 2: g()         elif x == 1 or x == 2:
                                    g()

Names of the variables made here contain a space, so that users cannot write them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import CompilationError, KernelSyntaxError
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.frontend.context import Lowering


class UnsupportedPattern(Exception):
    """A pattern that has no test: its node, and its kind in words."""

    def __init__(self, node: ast.pattern, words: str) -> None:
        super().__init__(words)
        self.node, self.words = node, words


def desugar(stmts: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements without `match`, `with`, and loops that have an `else`.

    A `match` with an unsupported pattern stays, and a `with` that has an argument or a name.
    """
    return [new for n in stmts for new in _desugar_one(n)]


def _desugar_one(n: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(n, ast.Match):
        try:
            made = _ifs_of(n)
        except UnsupportedPattern:
            yield n
        else:
            yield from desugar(made)
        return
    if isinstance(n, ast.With) and all(_is_plain_call(item) for item in n.items):
        for item in n.items:
            yield ast.copy_location(EnteredContext(item.context_expr), n)
        yield from desugar(n.body)
        return
    if isinstance(n, ast.If):
        for one in elif_chain(n):
            one.body, last = desugar(one.body), one
        last.orelse = desugar(last.orelse)
    elif isinstance(n, ast.For | ast.While):
        n.body, n.orelse = desugar(n.body), desugar(n.orelse)
        if n.orelse:
            yield from _without_else(n)
            return
    yield n


class EnteredContext(ast.Expr):
    """The call of a `with` statement whose body follows. Lowering checks that the function is one
    whose contexts have no effect."""


def _is_plain_call(item: ast.withitem) -> bool:
    call = item.context_expr
    has_arguments = isinstance(call, ast.Call) and (call.args or call.keywords)
    return isinstance(call, ast.Call) and not has_arguments and item.optional_vars is None


def elif_chain(n: ast.If) -> list[ast.If]:
    """Return an `if` and its `elif`s: hundreds of them nest too deeply for recursion."""
    chain = [n]
    while len(n.orelse) == 1 and isinstance(n.orelse[0], ast.If):
        n = n.orelse[0]
        chain.append(n)
    return chain


# --- loops ---------------------------------------------------------------------------------------


def _without_else(n: ast.For | ast.While) -> Iterator[ast.stmt]:
    orelse, n.orelse = n.orelse, []
    name = f"else {n.lineno}:{n.col_offset}"
    first = orelse[0]
    n.body, has_break = _noting_breaks(n.body, name)
    if not has_break:  # the loop ends normally, or the function returns
        yield n
        yield from orelse
        return
    yield _assign(name, ast.Constant(True), n)
    yield n
    test = ast.copy_location(ast.Name(name, ast.Load()), first)
    yield ast.copy_location(ast.If(test, orelse, []), first)


def _noting_breaks(stmts: Sequence[ast.stmt], name: str) -> tuple[list[ast.stmt], bool]:
    """Return the body of a loop with `name = False` before each `break` that leaves this loop, and
    True if there is one."""
    made: list[ast.stmt] = []
    has_break = False
    for n in stmts:
        if isinstance(n, ast.Break):
            made.append(_assign(name, ast.Constant(False), n))
            has_break = True
        elif isinstance(n, ast.If):
            for one in elif_chain(n):
                one.body, in_body = _noting_breaks(one.body, name)
                has_break, last = has_break or in_body, one
            last.orelse, in_orelse = _noting_breaks(last.orelse, name)
            has_break = has_break or in_orelse
        made.append(n)
    return made, has_break


# --- match ---------------------------------------------------------------------------------------


class _Case(NamedTuple):
    """The test of a pattern, None if it always matches, and the names that it binds."""

    test: ast.expr | None
    bound: dict[str, ast.expr]


def unsupported_pattern(n: ast.Match) -> UnsupportedPattern:
    """Return the first unsupported pattern of a `match` that `desugar` left."""
    try:
        _ifs_of(n)
    except UnsupportedPattern as found:
        return found
    raise AssertionError("each pattern of this `match` is supported")


def _ifs_of(n: ast.Match) -> list[ast.stmt]:
    """Return a chain of `if` statements, after assignments of the subject to variables.

    Raises UnsupportedPattern.
    """
    before: list[ast.stmt] = []
    subject = _held(n.subject, before)
    chain: list[ast.stmt] = []
    for case in reversed(n.cases):
        chain = _branch(case, subject, chain)
    return before + chain


def _held(x: ast.expr, before: list[ast.stmt]) -> ast.expr:
    """Return an expression for x that can be evaluated repeatedly; add statements to `before`."""
    if isinstance(x, ast.Tuple | ast.List):
        items = [_held(item, before) for item in x.elts]
        return ast.copy_location(ast.Tuple(items, ast.Load()), x)
    if _is_path(x):
        return x
    name = f"match {x.lineno}:{x.col_offset}"
    before.append(_assign(name, x, x))
    return ast.copy_location(ast.Name(name, ast.Load()), x)


def _is_path(x: ast.expr) -> bool:
    """True for a name, a constant, and attributes of a name: compile-time constants stay such."""
    while isinstance(x, ast.Attribute):
        x = x.value
    return isinstance(x, ast.Name | ast.Constant)


def _branch(case: ast.match_case, subject: ast.expr, others: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a case, with those of the cases after it in its `else`.

    Raises UnsupportedPattern if the case assigns a name that the subject reads.
    """
    test, bound = _case_of(case.pattern, subject)
    if bound.keys() & {x.id for x in ast.walk(subject) if isinstance(x, ast.Name)}:
        raise UnsupportedPattern(case.pattern, "names that the subject reads")
    binds = [_assign(name, copy.deepcopy(x), case.pattern) for name, x in bound.items()]
    body, guard = case.body, case.guard
    if guard is not None and not binds:
        test, guard = _all_of([test, guard], case.pattern), None
    if guard is not None:  # it reads the names: a pattern that matches assigns them in any case
        body = [ast.copy_location(ast.If(guard, body, others), guard)]
        others = copy.deepcopy(others) if test is not None else []
    if test is None:
        return binds + body
    return [ast.copy_location(ast.If(test, binds + body, others), case.body[0])]


def _all_of(tests: Sequence[ast.expr | None], n: ast.AST) -> ast.expr | None:
    found = [test for test in tests if test is not None]
    return _joined(ast.And(), found, n) if found else None


def _case_of(p: ast.pattern, x: ast.expr) -> _Case:
    """Return the test of pattern p on expression x. Raises UnsupportedPattern."""
    case = _CASES.get(type(p))
    if case is None:
        words = {ast.MatchClass: "classes", ast.MatchMapping: "mappings"}.get(type(p), "rests")
        raise UnsupportedPattern(p, words)
    return case(p, x)


def _value(p: ast.MatchValue, x: ast.expr) -> _Case:
    return _Case(_compare(x, ast.Eq(), p.value, p), {})


def _singleton(p: ast.MatchSingleton, x: ast.expr) -> _Case:
    value = ast.copy_location(ast.Constant(p.value), p)
    if p.value is None:
        return _Case(_compare(x, ast.Is(), value, p), {})
    is_bool = _is_instance(x, "bool", p)
    return _Case(_joined(ast.And(), [is_bool, _compare(x, ast.Eq(), value, p)], p), {})


def _named(p: ast.MatchAs, x: ast.expr) -> _Case:
    found = _Case(None, {}) if p.pattern is None else _case_of(p.pattern, x)
    return found if p.name is None else _Case(found.test, found.bound | {p.name: x})


def _any_of(p: ast.MatchOr, x: ast.expr) -> _Case:
    cases = [_case_of(q, x) for q in p.patterns]
    bound = [case.bound for case in cases]
    if any(names for names in bound):
        raise UnsupportedPattern(p, "alternatives with names")
    tests = [case.test for case in cases if case.test is not None]
    if len(tests) < len(cases):
        return _Case(None, {})
    return _Case(_joined(ast.Or(), tests, p), {})


def _sequence(p: ast.MatchSequence, x: ast.expr) -> _Case:
    """Return the test of a pattern `(a, b)`: the length, then each item."""
    count = len(p.patterns)
    if isinstance(x, ast.Tuple):
        if len(x.elts) != count:
            return _Case(ast.copy_location(ast.Constant(False), p), {})
        items, tests = x.elts, []
    else:
        length = ast.Call(ast.Name("len", ast.Load()), [copy.deepcopy(x)], [])
        is_string = _is_instance(x, "str", p)
        tests = [
            ast.copy_location(ast.UnaryOp(ast.Not(), is_string), p),
            _compare(_at(length, p), ast.Eq(), _at(ast.Constant(count), p), p),
        ]
        items = [
            _at(ast.Subscript(copy.deepcopy(x), ast.Constant(k), ast.Load()), p)
            for k in range(count)
        ]
    bound: dict[str, ast.expr] = {}
    for inner, item in zip(p.patterns, items):
        found = _case_of(inner, item)
        tests += [] if found.test is None else [found.test]
        bound |= found.bound
    return _Case(_all_of(tests, p), bound)


_CASES: dict[type[ast.pattern], Callable[[Any, ast.expr], _Case]] = {
    ast.MatchValue: _value,
    ast.MatchSingleton: _singleton,
    ast.MatchAs: _named,
    ast.MatchOr: _any_of,
    ast.MatchSequence: _sequence,
}


# --- nodes ---------------------------------------------------------------------------------------


def _at(x: ast.expr, n: ast.AST) -> ast.expr:
    """Give an expression, and the parts of it that have no location, that of n."""
    for part in ast.walk(x):
        if isinstance(part, ast.expr) and not hasattr(part, "lineno"):
            ast.copy_location(part, n)
    return x


def _assign(name: str, x: ast.expr, n: ast.AST) -> ast.stmt:
    target = ast.copy_location(ast.Name(name, ast.Store()), n)
    return ast.copy_location(ast.Assign([target], _at(x, n)), n)


def _compare(x: ast.expr, op: ast.cmpop, y: ast.expr, n: ast.AST) -> ast.expr:
    return ast.copy_location(ast.Compare(copy.deepcopy(x), [op], [y]), n)


def _is_instance(x: ast.expr, cls: str, n: ast.AST) -> ast.expr:
    args = [copy.deepcopy(x), ast.Name(cls, ast.Load())]
    return _at(ast.Call(ast.Name("isinstance", ast.Load()), args, []), n)


def _joined(op: ast.boolop, tests: list[ast.expr], n: ast.AST) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.copy_location(ast.BoolOp(op, tests), n)


# --- unsupported syntax ---------------------------------------------------------------------------


_NO_EXCEPTIONS = "return a flag, or store one in a field"
_MOVE = "move it out of the kernel"

# AST class -> (unsupported syntax, alternative)
REFUSED: dict[str, tuple[str, str]] = {
    "FunctionDef": ("functions inside functions", "define it outside, with @ti.func"),
    "AsyncFunctionDef": ("coroutines", _MOVE),
    "ClassDef": ("classes inside functions", _MOVE),
    "Delete": ("`del`", "variables end with their block"),
    "AsyncFor": ("`async for`", "use `for`"),
    "With": ("`with`", _MOVE),
    "AsyncWith": ("`async with`", _MOVE),
    "Raise": ("exceptions", _NO_EXCEPTIONS),
    "Try": ("exceptions", _NO_EXCEPTIONS),
    "TryStar": ("exceptions", _NO_EXCEPTIONS),
    "Import": ("`import`", "import at the top of the file"),
    "ImportFrom": ("`import`", "import at the top of the file"),
    "Global": ("`global`", "keep what kernels change in a field: ti.field(ti.f32, shape=())"),
    "Nonlocal": ("`nonlocal`", "keep what kernels change in a field: ti.field(ti.f32, shape=())"),
    "Set": ("sets", "use a tuple"),
    "SetComp": ("set comprehensions", "use a list: [...]"),
    "GeneratorExp": ("generator expressions", "use a list: [...]"),
    "Await": ("`await`", _MOVE),
    "Yield": ("`yield`", "store the values in a field"),
    "YieldFrom": ("`yield`", "store the values in a field"),
    "Starred": ("`*` here", "name every value"),
    "TypeAlias": ("`type`", _MOVE),
    "TemplateStr": ("template strings", "use an f-string in ti.static_print"),
}


def unsupported_node(cx: Lowering, n: ast.AST) -> CompilationError:
    if isinstance(n, ast.Match):
        found = unsupported_pattern(n)
        n, what, help = found.node, f"patterns of {found.words}", "use `if` and `elif`"
    else:
        what, help = REFUSED.get(type(n).__name__, (f"Python's `{type(n).__name__}`", ""))
    if hasattr(n, "lineno"):
        cx.locate(n)
    return cx.fail(f"kernels have no {what}", kind=KernelSyntaxError, help=help)
