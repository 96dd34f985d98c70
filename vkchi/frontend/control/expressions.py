"""Expression handlers: AST class -> handler(cx, node), which returns a compile-time value.

Names, attributes and subscripts are in `places`, calls in `callee`.

    EXPRESSIONS[ast.BinOp](cx, node)
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.calls.callee import lower_call
from vkchi.frontend.calls.compile_time_forms import lower_iterable, unrolled_items
from vkchi.frontend.calls.lambdas import lower_lambda
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.assign import assign_to, mark_shared, unpack
from vkchi.frontend.control.flow import (
    condition_of,
    decisive,
    is_cheap,
    join_arms,
    run_scoped,
    short_circuit,
)
from vkchi.frontend.control.places import lower_attribute, lower_name, lower_subscript
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.state.scope import CONSTANT, Var
from vkchi.frontend.values.kinds import (
    check_supported,
    describe,
    is_static,
    kind_of,
)
from vkchi.frontend.values.operands import is_tensor
from vkchi.frontend.values.python_values import is_static_call, items_of
from vkchi.frontend.values.texts import Part, RuntimeString, format_parts, joined
from vkchi.ir.core import Value
from vkchi.lang.matrix import Matrix
from vkchi.types import scalar_of, shape_of

_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_UNARY: dict[type[ast.AST], str] = {
    ast.USub: "-", ast.UAdd: "+", ast.Invert: "~",
}  # fmt: skip
_COMPARE: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_WORDS = {ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"}


def operator_text(op: ast.AST) -> str:
    """Return the operator of an AST node as text: "+"."""
    return _BINARY[type(op)]


def lower_constant(cx: Lowering, n: ast.Constant) -> Any:
    """Return a literal. Raises KernelSyntaxError for `...` and complex numbers."""
    value = n.value
    if value is Ellipsis or isinstance(value, complex):
        cx.locate(n)
        raise cx.fail(f"kernels have no {ast.unparse(n)}", kind=KernelSyntaxError)
    return value


def lower_binop(cx: Lowering, n: ast.BinOp) -> Any:
    left, right = cx.expr(n.left), cx.expr(n.right)
    return operator_lowering.operate(cx, _BINARY[type(n.op)], left, right, (n.left, n.right))


def lower_unary(cx: Lowering, n: ast.UnaryOp) -> Any:
    x = cx.expr(n.operand)
    if isinstance(n.op, ast.Not):
        return lower_not(cx, n.operand, x)
    return operator_lowering.operate_on(cx, _UNARY[type(n.op)], x, n.operand)


def lower_not(cx: Lowering, n: ast.expr, x: Any) -> Any:
    """Lower `not x`; n is the expression of x. Raises KernelTypeError, also for run-time floats."""
    cx.at(n, lambda cx: check_supported(cx, x, "truth"))
    x = operator_lowering.value(cx, x) if isinstance(x, Matrix) else x
    if not isinstance(x, Value):
        return not condition_of(cx, x)
    if scalar_of(x.type).kind == "f":
        raise cx.fail(
            "`not` takes bools and integers",
            label=describe(x.type),
            help="compare it: x == 0.0",
        )
    return operator_lowering.unary(cx, "not", x)


# --- conditions ----------------------------------------------------------------------------------


def lower_boolop(cx: Lowering, n: ast.BoolOp) -> Any:
    """Lower `a and b and c` or `a or b or c` with short-circuit evaluation.

    Kernel vectors are combined by component, without it.
    """
    return _combine(cx, n.values, is_and=isinstance(n.op, ast.And))


def _combine(cx: Lowering, values: list[ast.expr], *, is_and: bool) -> Any:
    first = cx.expr(values[0])
    if len(values) == 1:
        return first
    if not isinstance(first, Value):
        decides = bool(condition_of(cx, first)) is not is_and
        return first if decides else _combine(cx, values[1:], is_and=is_and)
    if shape_of(first.type):
        second = _combine(cx, values[1:], is_and=is_and)
        return cx.at(
            values[0], lambda cx: operator_lowering.logical(cx, first, second, is_and=is_and)
        )
    return short_circuit(cx, first, lambda: _tail(cx, values[1:], is_and), is_and=is_and)


def _tail(cx: Lowering, values: list[ast.expr], is_and: bool) -> Any:
    x = _combine(cx, values, is_and=is_and)
    return cx.at(values[0], lambda cx: decisive(cx, x))


def lower_compare(cx: Lowering, n: ast.Compare) -> Any:
    """Lower a comparison or a chain: `a < b < c` evaluates b once, and c only where a < b.

    Chains of vectors, which are compared by component, evaluate all operands.
    """
    return _chain(cx, cx.expr(n.left), n.ops, n.comparators)


def _chain(cx: Lowering, left: Any, ops: list[ast.cmpop], rights: list[ast.expr]) -> Any:
    right = cx.expr(rights[0])
    first = compare(cx, ops[0], left, right)
    if len(ops) == 1:
        return first
    if not isinstance(first, Value):
        return _chain(cx, right, ops[1:], rights[1:]) if condition_of(cx, first) else first
    if shape_of(first.type):
        return operator_lowering.binary(cx, "&", first, _chain(cx, right, ops[1:], rights[1:]))
    head = operator_lowering.as_condition(cx, first)
    return short_circuit(cx, head, lambda: _chain(cx, right, ops[1:], rights[1:]), is_and=True)


def compare(cx: Lowering, op: ast.cmpop, x: Any, y: Any) -> Any:
    """Lower one comparison. Raises KernelTypeError or KernelSyntaxError."""
    text = _COMPARE.get(type(op))
    if text is not None:
        return operator_lowering.operate(cx, text, x, y)
    is_identity = isinstance(op, ast.Is | ast.IsNot)
    if is_identity and (x is None or y is None):  # depends on the class of an object alone
        return (x is y) is isinstance(op, ast.Is)
    cx.looked_into(x, y)
    return _search(cx, op, x, y)


def _search(cx: Lowering, op: ast.cmpop, x: Any, y: Any) -> bool:
    """Lower `is` or `in`, which are evaluated at compile time.

    Their operands must be no kernel values, and outside of `ti.static` no lists that hold some.
    Raises KernelTypeError or KernelSyntaxError.
    """
    is_search = isinstance(op, ast.In | ast.NotIn)
    is_negated = isinstance(op, ast.IsNot | ast.NotIn)
    if is_search:
        check_supported(cx, y, "search")
    is_deferred = kind_of(x).is_deferred or kind_of(y).is_deferred
    if is_deferred or (is_search and _holds_values(y) and not _is_in_static(cx)):
        raise cx.fail(
            f"`{_WORDS[type(op)]}` needs a compile-time constant",
            kind=KernelSyntaxError,
            help="compare with `==`",
            constant=x if is_search else None,
        )
    found = kind_of(y).contains(cx, y, x) if is_search else x is y
    return found is not is_negated


def _holds_values(x: Any) -> bool:
    """True if a list has kernel values, or a dict keys with some."""
    return kind_of(x).is_container and not all(map(is_static, x))


def _is_in_static(cx: Lowering) -> bool:
    """True if the innermost call around the expression is `ti.static(...)`."""
    return cx.call_node is not None and is_static_call(cx, cx.call_node)


def lower_ifexp(cx: Lowering, n: ast.IfExp) -> Any:
    """Lower `a if c else b`: only the selected operand is evaluated.

    Both are evaluated, with a select, if c is a vector, or if both are cheap numbers or values of
    shapes that fit (`_can_select`).
    """
    test = cx.expr(n.test)
    if is_tensor(test):
        return operator_lowering.select(cx, test, cx.expr(n.body), cx.expr(n.orelse))
    cond = cx.at(n.test, lambda cx: condition_of(cx, test))
    if not isinstance(cond, Value):
        return cx.expr(n.body if cond else n.orelse)
    then = run_scoped(cx, lambda: cx.expr(n.body))
    orelse = run_scoped(cx, lambda: cx.expr(n.orelse))
    if is_cheap(then) and is_cheap(orelse) and _can_select(then.value, orelse.value):
        cx.b.extend([*then.region.ops, *orelse.region.ops])
        return operator_lowering.select(cx, cond, then.value, orelse.value)
    return join_arms(cx, cond, then, orelse)


def _can_select(x: Any, y: Any) -> bool:
    """True if both are numbers or kernel values of one shape; scalars fit any shape."""
    if not all(isinstance(v, Value | bool | int | float) for v in (x, y)):
        return False
    shapes = {shape_of(v.type) for v in (x, y) if isinstance(v, Value)}
    return len(shapes - {()}) < 2


def lower_named(cx: Lowering, n: ast.NamedExpr) -> Any:
    """Lower `(a := b)`: assign a, or declare it in the enclosing block; return its value."""
    value = cx.expr(n.value)
    assign_to(cx, n.target, value)
    mark_shared(cx, n.target, n.value)
    return cx.expr(n.target)


# --- lists and strings ---------------------------------------------------------------------------


def lower_items(cx: Lowering, n: ast.List | ast.Tuple) -> list[Any]:
    """Lower `[a, b]`: a compile-time list, which becomes a vector where one is needed."""
    found: list[Any] = []
    for item in n.elts:
        if isinstance(item, ast.Starred):
            found += items_of(cx, cx.expr(item.value), "unpack")
        else:
            found.append(cx.expr(item))
    return found


def lower_dict(cx: Lowering, n: ast.Dict) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, item in zip(n.keys, n.values):
        if key is None:
            found |= cx.expr(item)
            continue
        k = _static_key(cx, key)
        found[k] = cx.expr(item)
    return found


def _static_key(cx: Lowering, n: ast.expr) -> Any:
    key = cx.expr(n)
    if not is_static(key):
        raise cx.fail(
            "keys of a dict must be compile-time constants", help="use a field", constant=key
        )
    return key


def lower_listcomp(cx: Lowering, n: ast.ListComp) -> list[Any]:
    found: list[Any] = []
    _comprehend(cx, n.generators, lambda: found.append(cx.expr(n.elt)))
    return found


def lower_dictcomp(cx: Lowering, n: ast.DictComp) -> dict[Any, Any]:
    found: dict[Any, Any] = {}

    def add() -> None:
        key = _static_key(cx, n.key)
        found[key] = cx.expr(n.value)

    _comprehend(cx, n.generators, add)
    return found


def _comprehend(cx: Lowering, parts: list[ast.comprehension], add: Callable[[], None]) -> None:
    """Call `add` once for each iteration that the conditions of a comprehension permit, with its
    names bound."""
    if not parts:
        add()
        return
    part = parts[0]
    iterable = lower_iterable(cx, part.iter)
    help = "comprehensions are evaluated at compile time; a `for` over a range runs in the kernel"
    for item in cx.at(part.iter, lambda cx: unrolled_items(cx, iterable, help)):
        with cx.act.block():
            bind_static(cx, part.target, item)
            tests = [_static_test(cx, t) for t in part.ifs]
            if all(tests):
                _comprehend(cx, parts[1:], add)


def _static_test(cx: Lowering, n: ast.expr) -> bool:
    test = cx.at(n, lambda cx: condition_of(cx, cx.expr(n)))
    if isinstance(test, Value):
        raise cx.fail(
            "the condition of a comprehension must be a compile-time constant", constant=test
        )
    return bool(test)


def bind_static(cx: Lowering, n: ast.expr, item: Any) -> None:
    """Bind the target of an unrolled loop to one item, as a compile-time constant."""
    cx.locate(n)
    if isinstance(n, ast.Name):
        cx.act.declare(Var(n.id, item, CONSTANT, len(cx.frames), cx.b.span))
        return
    if not isinstance(n, ast.Tuple | ast.List):
        raise cx.fail("the target of a loop must be a name", kind=KernelSyntaxError)
    for target, part in zip(n.elts, unpack(cx, n, item)):
        bind_static(cx, target, part)


def lower_fstring(cx: Lowering, n: ast.JoinedStr) -> str | RuntimeString:
    """Lower an f-string: a string if all parts are compile-time constants, else a RuntimeString."""
    parts: list[Part] = []
    for part in n.values:
        shown = cx.expr(part)
        parts += [shown] if isinstance(shown, str) else shown.parts
    return joined(parts)


def lower_formatted(cx: Lowering, n: ast.FormattedValue) -> str | RuntimeString:
    spec = cx.expr(n.format_spec) if n.format_spec is not None else ""
    if not isinstance(spec, str):
        raise cx.fail("a format must be a compile-time constant", kind=KernelSyntaxError)
    conversion = chr(n.conversion) if n.conversion >= 0 else ""
    return joined(format_parts(cx, cx.expr(n.value), spec, conversion))


LEAVES: dict[type[ast.AST], Callable[[Lowering, Any], Any]] = {
    ast.Constant: lower_constant,
    ast.Name: lower_name,
}
EXPRESSIONS: dict[type[ast.AST], Callable[[Lowering, Any], Any]] = {
    ast.Attribute: lower_attribute,
    ast.Subscript: lower_subscript,
    ast.Call: lower_call,
    ast.BinOp: lower_binop,
    ast.UnaryOp: lower_unary,
    ast.BoolOp: lower_boolop,
    ast.Compare: lower_compare,
    ast.IfExp: lower_ifexp,
    ast.NamedExpr: lower_named,
    ast.List: lower_items,
    ast.Tuple: lambda cx, n: tuple(lower_items(cx, n)),
    ast.Dict: lower_dict,
    ast.ListComp: lower_listcomp,
    ast.DictComp: lower_dictcomp,
    ast.JoinedStr: lower_fstring,
    ast.FormattedValue: lower_formatted,
    ast.Lambda: lower_lambda,
}
