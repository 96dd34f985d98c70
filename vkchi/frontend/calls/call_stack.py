"""Recursion elimination: a pure, recursive `ti.real_func` becomes a loop with an explicit stack.

The source has 2 to 4 recursive calls: inlining would make a number of copies that is exponential in
the depth.

The loop runs the body again from its start each time a recursive call returns. Calls that have
already returned are answered from their saved results. A frame has the scalar arguments, and the
position of its first result in the array of all results. A call that needs more than DEEPEST frames
reports a failure and gives 0:

    def fib(n):                              while sp >= 0:
        if n < 2:                                if returned: drop a frame, keep its result
            return n                             n = arguments[sp]
        return fib(n - 1) + fib(n - 2)           if n < 2: give n; continue
                                                 first = kept, or push a frame of n - 1; continue
                                                 second = kept, or push one of n - 2; continue
                                                 give first + second; continue

    if is_stacked(fn, notes): result = lower_stacked(cx, act, notes)
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

from vkchi.frontend.calls.tables import CALLS, CallHandler
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.flow import lower_block
from vkchi.frontend.state.dependencies import outer_value
from vkchi.frontend.state.scope import REFERENCE, Activation, Var
from vkchi.frontend.syntax.source import Source, source_of
from vkchi.frontend.syntax.syntax_facts import (
    always_leaves,
    function_assigns,
    is_loop,
    name_in,
    nodes_of,
)
from vkchi.frontend.values.python_values import look_up
from vkchi.interrupts.weak import WeakGroup
from vkchi.lang import elementwise, math
from vkchi.lang.function import Function
from vkchi.types import Scalar, Type, cook, vector

DEEPEST = 64  # stack frames; a larger stack takes drivers long to compile
MOST_PLACES = 4  # recursive calls in the source
# Answers of `is_stacked`. Not one per source: one `def` may make functions of other annotations.
_STACKED: WeakGroup[FunctionType] = WeakGroup()
_NOT_STACKED: WeakGroup[FunctionType] = WeakGroup()
_STATEMENTS = (
    ast.AnnAssign, ast.Assign, ast.AugAssign, ast.Break, ast.Continue, ast.For, ast.If, ast.Pass,
    ast.Return, ast.While,
)  # fmt: skip
_EXPRESSIONS = (
    ast.Attribute, ast.BinOp, ast.BoolOp, ast.Call, ast.Compare, ast.Constant, ast.IfExp, ast.Name,
    ast.Subscript, ast.Tuple, ast.UnaryOp,
)  # fmt: skip
_PURE = {
    *(abs, bool, float, int, max, min, range, round),
    *[
        x
        for module in (elementwise, math)
        for x in vars(module).values()
        if isinstance(x, Function)
    ],
}


def too_deep() -> None:
    """Placeholder that the loop calls on stack overflow. `_go_too_deep` lowers the call."""


# --- which functions -----------------------------------------------------------------------------


def is_stacked(fn: FunctionType, notes: Mapping[str, Any]) -> bool:
    """True if calls of a real function become a loop with a stack; the answer for `fn` is cached.

    `notes` are the annotations. The function must return a scalar on all paths, have only
    statements for which `is_plain` holds, and have 2 to MOST_PLACES recursive calls. These calls
    have positional arguments only. An argument is a scalar by its annotation, or the same parameter
    passed on unchanged. The function has no defaults and no keyword-only parameters.
    """
    if fn not in _STACKED and fn not in _NOT_STACKED:
        group = _STACKED if _is_stacked(fn, source_of(fn), notes) else _NOT_STACKED
        group.add(fn)
    return fn in _STACKED


def _is_stacked(fn: FunctionType, source: Source, notes: Mapping[str, Any]) -> bool:
    node = source.node
    calls = list(own_calls(node, fn))
    names = [a.arg for a in node.args.args]
    if not 2 <= len(calls) <= MOST_PLACES or not isinstance(cook(notes.get("return")), Scalar):
        return False
    if node.args.kwonlyargs or node.args.defaults or not always_leaves(node.body):
        return False
    for call in calls:
        if call.keywords or len(call.args) != len(names):
            return False
        for name, arg in zip(names, call.args):
            is_kept = name_in(arg) == name and not function_assigns(source, name)
            if not is_kept and not isinstance(cook(notes.get(name)), Scalar):
                return False
    return all(is_plain(n, fn) for n in body_of(node))


def body_of(node: ast.FunctionDef) -> Sequence[ast.stmt]:
    is_documented = ast.get_docstring(node, clean=False) is not None
    return node.body[1:] if is_documented else node.body


def own_calls(n: ast.AST, fn: FunctionType) -> Iterator[ast.Call]:
    """Yield the calls of fn in the syntax of n, innermost first."""
    for child in ast.iter_child_nodes(n):
        yield from own_calls(child, fn)
    if isinstance(n, ast.Call) and is_own(n, fn):
        yield n


def meaning(n: ast.expr, fn: FunctionType) -> Any:
    """Return the object that a dotted name denotes in a function; None if unknown.

    Names of the function's own variables are unknown.
    """
    own = fn.__code__.co_varnames
    return look_up(n, lambda name: None if name in own else outer_value(fn, name))


def is_plain(n: ast.stmt, fn: FunctionType) -> bool:
    """True if a statement only assigns variables, branches, loops or leaves, by pure expressions.

    False for a loop that contains a `return` or a recursive call of `fn`. False for a recursive
    call in an operand that may be skipped, unless that is a returned `a if c else b`.
    """
    if not isinstance(n, _STATEMENTS):
        return False
    inner = [x for x in ast.iter_child_nodes(n) if isinstance(x, ast.stmt)]
    if is_loop(n) and (any(nodes_of(n, ast.Return)) or [*own_calls(n, fn)]):
        return False
    targets = n.targets if isinstance(n, ast.Assign) else [getattr(n, "target", None)]
    if not all(t is None or is_names(t) for t in targets):
        return False
    parts = [x for x in ast.iter_child_nodes(n) if isinstance(x, ast.expr)]
    if isinstance(n, ast.Return) and n.value is not None:
        parts = list(choices(n.value))
    return all(is_pure(x, fn) for x in parts) and all(is_plain(x, fn) for x in inner)


def is_names(n: ast.expr) -> bool:
    return all(map(is_names, n.elts)) if isinstance(n, ast.Tuple) else name_in(n) != ""


def choices(n: ast.expr) -> Iterator[ast.expr]:
    """Yield the conditions and values of nested `a if c else b`; n itself if it is another
    expression."""
    if isinstance(n, ast.IfExp):
        for part in (n.test, n.body, n.orelse):
            yield from choices(part)
    else:
        yield n


def is_pure(n: ast.expr, fn: FunctionType) -> bool:
    """True if it is proved that n has no side effects and that its recursive calls are
    unconditional."""
    for x in ast.walk(n):
        if isinstance(x, ast.expr) and not isinstance(x, _EXPRESSIONS):
            return False
        if may_skip(x) and [*own_calls(x, fn)]:
            return False
        if isinstance(x, ast.Call) and not is_pure_call(x, fn):
            return False
    return True


def may_skip(n: ast.AST) -> bool:
    """True if n may skip an operand (`and`, `a if c else b`, `a < b < c`), or is a keyword
    argument."""
    is_chain = isinstance(n, ast.Compare) and len(n.ops) > 1
    return is_chain or isinstance(n, ast.BoolOp | ast.IfExp | ast.keyword)


def is_pure_call(n: ast.Call, fn: FunctionType) -> bool:
    """True if a call is of the function itself, a vkchi type, or a function in `_PURE`."""
    callee = meaning(n.func, fn)
    if is_own(n, fn) or isinstance(callee, Type):
        return True
    try:
        return callee in _PURE
    except TypeError:  # cannot be hashed
        return False


# --- as a loop -----------------------------------------------------------------------------------

# `Z_` at the start of a name is replaced by a space, so that no user name can equal it.
_BEGIN = """
Z_sp = 0
Z_top = 0
Z_returned = 0
Z_ret = Z_result(0)
Z_base = Z_places(0)
Z_results = Z_kept(0)
while Z_sp >= 0:
    if Z_returned != 0:
        Z_returned = 0
        Z_top = Z_base[Z_sp]
        Z_sp -= 1
        if Z_sp >= 0:
            Z_results[Z_top] = Z_ret
            Z_top += 1
    if Z_sp < 0:
        break
    Z_next = Z_base[Z_sp]
"""
_CALL = """
if Z_next < Z_top:
    {name} = Z_results[Z_next]
    Z_next += 1
else:
    if Z_sp + 1 >= {deepest}:
        Z_too_deep()
        Z_ret = Z_result(0)
        Z_sp = -1
    else:
        Z_sp += 1
        Z_base[Z_sp] = Z_top
    continue
"""
_RETURN = "Z_returned = 1\ncontinue"


def lower_stacked(cx: Lowering, act: Activation, notes: Mapping[str, Any]) -> Any:
    """Lower a call for which `is_stacked` holds; return its result.

    `act` has the arguments as variables. Its source is replaced by the loop.
    """
    node = act.source.node
    names = [a.arg for a in node.args.args if isinstance(cook(notes.get(a.arg)), Scalar)]
    result = cook(notes["return"])
    places = len(list(own_calls(node, act.fn)))
    known: dict[str, Any] = {
        "result": result, "places": vector(DEEPEST, cook(int)), "too_deep": too_deep,
        "kept": vector(DEEPEST * (places - 1), result),
    } | {f"type {name}": vector(DEEPEST, cook(notes[name])) for name in names}  # fmt: skip
    for name, x in known.items():
        act.declare(Var(f" {name}", x, REFERENCE, len(cx.frames), None))
    loop = StackRewriter(act.fn, names).body(body_of(node))
    act.source = act.source.with_body(loop)
    lower_block(cx, act.source.node.body)
    found = act.find(" ret")
    assert found is not None
    return found.value


class StackRewriter:
    """Rewriter of a recursive function's body to a loop.

    `names` are the parameters stored in frames.
    """

    def __init__(self, fn: FunctionType, names: Sequence[str]) -> None:
        self.fn, self.names, self.calls = fn, names, 0

    def body(self, stmts: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return the statements that replace the function's body: the stack's variables, then the
        loop."""
        at = stmts[0]
        begin = template(_BEGIN, at)
        loop = begin[-1]
        assert isinstance(loop, ast.While)
        for k, name in enumerate(self.names):
            make = f"Z_arg{k} = Z_make{k}(0)\nZ_arg{k}[0] = {name}"
            begin[-1:-1] = template(make, at, {f"Z_make{k}": f" type {name}"})
            loop.body += template(f"{name} = Z_arg{k}[Z_sp]", at)
        loop.body += self.statements(stmts)
        return begin

    def statements(self, stmts: Sequence[ast.stmt]) -> list[ast.stmt]:
        return [new for n in stmts for new in self.statement(n)]

    def statement(self, n: ast.stmt) -> list[ast.stmt]:
        """Return the statements that replace n: its hoisted recursive calls, then n.

        A `return` becomes an assignment of the result and a `continue`.
        """
        n = copy.copy(n)
        if isinstance(n, ast.Return) and isinstance(n.value, ast.IfExp):
            both = [ast.copy_location(ast.Return(x), n) for x in (n.value.body, n.value.orelse)]
            n = ast.copy_location(ast.If(n.value.test, [both[0]], [both[1]]), n)
        made: list[ast.stmt] = []
        if isinstance(n, ast.If):
            n.test = self.hoisted(n.test, made)
            n.body, n.orelse = self.statements(n.body), self.statements(n.orelse)
        elif isinstance(n, ast.Return):
            assert n.value is not None
            value = self.hoisted(n.value, made)
            give, *leave = template(f"Z_ret = 0\n{_RETURN}", n)
            assert isinstance(give, ast.Assign)
            give.value = value
            return [*made, give, *leave]
        elif not is_loop(n) and getattr(n, "value", None) is not None:
            n.value = self.hoisted(n.value, made)  # type: ignore[attr-defined]
        return [*made, n]

    def hoisted(self, n: ast.expr, made: list[ast.stmt]) -> ast.expr:
        """Return an expression with variables in place of its recursive calls.

        The statements that make the calls are appended to `made`.
        """
        n = copy.copy(n)

        def hoist(x: Any) -> Any:
            return self.hoisted(x, made) if isinstance(x, ast.expr) else x

        for field, x in ast.iter_fields(n):
            setattr(n, field, [hoist(i) for i in x] if isinstance(x, list) else hoist(x))
        if not isinstance(n, ast.Call) or not is_own(n, self.fn):
            return n
        name, self.calls = f"Z_call{self.calls}", self.calls + 1
        answer, branch = template(
            f"{name} = Z_result(0)\n" + _CALL.format(name=name, deepest=DEEPEST), n
        )
        assert isinstance(branch, ast.If) and isinstance(branch.orelse[0], ast.If)
        push = branch.orelse[0].orelse
        for k, param in enumerate(self.names):
            (put,) = template(f"Z_arg{k}[Z_sp] = 0", n)
            assert isinstance(put, ast.Assign)
            put.value = n.args[[a.arg for a in source_of(self.fn).node.args.args].index(param)]
            push.append(put)
        made += [answer, branch]
        return ast.copy_location(ast.Name(f" {name[2:]}", ast.Load()), n)


def is_own(n: ast.Call, fn: FunctionType) -> bool:
    return getattr(meaning(n.func, fn), "__vkchi_func__", None) is fn


def template(text: str, at: ast.AST, names: Mapping[str, str] | None = None) -> list[ast.stmt]:
    """Parse statements from a string; all get the source position of `at`.

    `names` maps names to replacements. Then a prefix `Z_` of names becomes a space.
    """
    tree = ast.parse(text)
    for n in ast.walk(tree):
        if isinstance(n, ast.Name):
            n.id = (names or {}).get(n.id, n.id)
            n.id = f" {n.id[2:]}" if n.id.startswith("Z_") else n.id
        if "lineno" in n._attributes:
            ast.copy_location(n, at)
    return tree.body


def _go_too_deep(cx: Lowering) -> None:
    fn = cx.act.fn
    cx.reports.emit(
        cx, "depth", [f"{fn.__name__}() calls itself more than {DEEPEST} times inside each other"]
    )


CALLS[too_deep] = CallHandler(_go_too_deep)
