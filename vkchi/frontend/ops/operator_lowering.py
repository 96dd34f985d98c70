"""Operators on compile-time values: type promotion, broadcasting, constant folding.

`operate` and `operate_on` lower an operator on any operands: a kind of values may define it. The
other functions are for numbers, vectors and matrices.

Two Python operands give a Python result, by Python's rules. Otherwise both become IR values, of a
common type except for shifts and integer powers, and a scalar is broadcast to the other's shape.
`value`, `cast` and `is_static` are re-exported from `operands`.

    operate(cx, "+", v, 1.5)        # v: i32 -> cast to f32, added to a constant of f32
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from vkchi.compile_state import ArrayGuard
from vkchi.errors import CompilationError, KernelTypeError
from vkchi.frontend.ops.debug_checks import emit_checked, negate_checked
from vkchi.frontend.ops.power import constant_power, power
from vkchi.frontend.state.captured_values import holds_object
from vkchi.frontend.state.reachable_values import record_reachable
from vkchi.frontend.state.user_code_errors import access_error, foreign_traceback
from vkchi.frontend.values.kinds import (
    check_supported,
    describe,
    function_kind,
    is_static,
    kind_of,
    name_of,
    unsupported_use,
)
from vkchi.frontend.values.operands import (
    Operand,
    WeakNumbers,
    as_type,
    cast,
    common_scalar,
    components,
    constant,
    dtype_of,
    operand,
    operand_shape,
    own_type,
    tensor_of,
    value,
    weak,
    weak_scalar,
)
from vkchi.frontend.values.references import Context
from vkchi.interrupts.local import local
from vkchi.ir.core import Value, numeric_type_of
from vkchi.ir.ops import EQUALITIES
from vkchi.tuples import NamedTuple
from vkchi.types import (
    Scalar,
    Tensor,
    Type,
    bf16,
    i32,
    scalar_named,
    scalar_of,
    shape_of,
    u1,
    with_scalar,
    with_shape,
)
from vkchi.types.core import INTEGERS
from vkchi.types.lazy_numpy import np

__all__ = [
    "binary", "cast", "compare", "components", "constant", "describe", "dtype_of", "is_static",
    "name_of", "operand", "select", "tensor_of", "as_condition", "unary", "value",
]  # fmt: skip


class OperatorRule(NamedTuple):
    """An elementwise op: its IR kind on integers and on floats ("" if it has none).

    `takes` is the class of operands:

    - `number`: bools count as integers
    - `float`: integers become default_fp
    - `bits`: integers and bools
    - `shift`: the left operand's type is the result's
    """

    on_ints: str
    on_floats: str
    takes: str = "number"


RULES: dict[str, OperatorRule] = {
    "+": OperatorRule("add", "add"), "-": OperatorRule("sub", "sub"), "*": OperatorRule("mul",
    "mul"),
    "/": OperatorRule("", "div", "float"), "//": OperatorRule("floordiv", "floordiv"),
    "%": OperatorRule("mod", "mod"),
    "&": OperatorRule("and", "", "bits"), "|": OperatorRule("or", "", "bits"),
    "^": OperatorRule("xor", "", "bits"),
    "<<": OperatorRule("shl", "", "shift"), ">>": OperatorRule("shr", "", "shift"),
}  # fmt: skip

PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift, "**": operator.pow,
    "@": operator.matmul,
}  # fmt: skip

# Their names are those of the IR ops.
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne,
}  # fmt: skip

UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg, "+": operator.pos, "~": operator.invert, "not": operator.not_,
}  # fmt: skip

_REFLECTED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_NAMES = {op: fn.__name__.rstrip("_") for op, fn in (PYTHON | COMPARISONS).items()}
# Operator -> the methods of a class that define it: for the left operand, for the right one.
OVERLOADS = {
    op: (f"__{name}__", f"__{_NAMES[_REFLECTED[op]] if op in COMPARISONS else 'r' + name}__")
    for op, name in _NAMES.items()
}
UNARY_METHODS = {op: f"__{fn.__name__}__" for op, fn in UNARY.items() if op != "not"}


_NUMBERS = (Value, int, float)


def operate(
    cx: Any, op: str, x: Any, y: Any, nodes: Sequence[ast.expr | None] = (None, None)
) -> Any:
    """Lower `x op y`, for a key of OVERLOADS: as the kind of x defines it, or that of y, otherwise
    on numbers.

    Errors about an operand of arithmetic are at its expression in `nodes`, if given. Raises
    KernelTypeError.
    """
    lower, use = (compare, "compare") if op in COMPARISONS else (binary, "number")
    if isinstance(x, _NUMBERS) and isinstance(y, _NUMBERS):
        return lower(cx, op, x, y)
    if use == "compare":
        cx.looked_into(x, y)
    found = kind_of(x).binary(cx, op, x, y, is_reflected=False)
    if found is NotImplemented:
        found = kind_of(y).binary(cx, op, y, x, is_reflected=True)
    if found is not NotImplemented:
        return found
    if use == "number":
        check_number(cx, x, nodes[0])
        check_number(cx, y, nodes[1])
    elif x is not None and y is not None:
        check_supported(cx, x, use)
        check_supported(cx, y, use)
    return lower(cx, op, x, y)


def operate_on(cx: Any, op: str, x: Any, n: ast.expr | None = None) -> Any:
    """Lower `op x`, for a key of UNARY_METHODS, as `operate`."""
    if not isinstance(x, _NUMBERS):
        found = kind_of(x).unary(cx, op, x)
        if found is not NotImplemented:
            return found
        check_number(cx, x, n)
    return unary(cx, op, x)


def check_number(cx: Any, x: Any, n: ast.expr | None = None) -> None:
    """Check that an operand's kind supports numbers, and that it is neither a function nor None.

    Errors are at its expression n, if given. Raises KernelTypeError.
    """

    def check(cx: Any) -> None:
        check_supported(cx, x, "number")
        if function_kind(x) is not None:
            name = getattr(x, "__name__", "f")
            raise cx.fail("a function is not a number", help=f"call it: {name}(...)")
        if x is None:
            is_call = isinstance(n, ast.Call)
            help = "the function has no `return`" if is_call else "compare it first: x is not None"
            raise cx.fail("this is None, not a number", help=help)

    check(cx) if n is None else cx.at(n, check)


def binary(cx: Context, op: str, x: Any, y: Any) -> Any:
    """Lower `x op y` on numbers, vectors and matrices, for a key of PYTHON.

    Two Python objects give a Python object, unless lists are taken as vectors. Raises
    KernelTypeError where types or shapes do not fit.
    """
    left, right = isinstance(x, Value), isinstance(y, Value)
    if left or right:
        # Fast path: both operands have one type, or a Python number takes the value's type.
        t = x.type if left else y.type
        kind = _direct_kind(op, t)
        if op == "**" and type(y) is int and abs(y) < 5 and keeps_type(cx, t, y):
            return constant_power(cx, x, y)
        if kind:
            if left and right:
                if x.type is y.type:
                    return emit_op(cx, kind, x, y)
            elif keeps_type(cx, t, y if left else x):
                if left:
                    return emit_op(cx, kind, x, constant(cx, y, t))
                return emit_op(cx, kind, constant(cx, x, t), y)
    elif is_static(x) and is_static(y):
        folded = fold(cx, op, x, y)
        if op not in RULES or not is_watched(cx, folded, x, y):
            return folded
    return apply(cx, op, operand(cx, x), operand(cx, y))


def refuse_repetition(cx: Context, count: Any) -> None:
    """Check that the factor of a list is no kernel integer. Raises KernelTypeError.

    In Python that repeats the list; as a product of vectors it would be ambiguous.
    """
    if isinstance(count, Value) and count.type.kind in INTEGERS:
        raise cx.fail(
            "the count of a repeated list must be a compile-time constant",
            kind=KernelTypeError,
            help="for a product write ti.Vector([...]) * n",
            constant=count,
        )


@lru_cache(1024)
def _direct_kind(op: str, t: Type) -> str:
    """Return the IR kind of `op` on two operands of type t if it applies to them directly.

    Otherwise return "": `apply` converts the operands or raises.
    """
    rule = RULES.get(op)
    if rule is None or not isinstance(t, Scalar | Tensor) or scalar_of(t) is bf16:
        return ""
    kind = scalar_of(t).kind
    if kind == "f":
        return rule.on_floats
    return rule.on_ints if kind in "iu" and rule.takes in ("number", "bits") else ""


def keeps_type(cx: Context, t: Type, number: Any) -> bool:
    """True if it is proved that a Python number beside a value of type t takes t's scalar type.

    A fast path: False in other cases, such as an int beside i64.
    """
    elem: Any = t.elem if isinstance(t, Tensor) else t
    if elem is bf16:
        return False
    if type(number) is float:
        return bool(elem.kind == "f" and elem.bits >= cx.options.default_fp.bits)
    if type(number) is not int:
        return False
    if elem.kind == "f":
        return True
    return elem is cx.options.default_ip is i32 and -(1 << 31) <= number < 1 << 31


def apply(cx: Context, op: str, a: Operand, b: Operand) -> Value:
    """Lower `a op b` for a key of PYTHON. Raises KernelTypeError."""
    if op == "@":
        return matmul(cx, a, b)
    if op == "**":
        return power(cx, a, b)
    return combine(cx, op, RULES[op], a, b)


def by_python(cx: Context, op: str, python: Callable[..., Any], *operands: Any) -> Any:
    """Return an operator's result on Python objects. Raises KernelTypeError if a method of a user's
    class accesses elements of an array."""
    cx.dependencies.used_as_a_whole(operands)
    if not any(map(holds_object, operands)):
        return python(*operands)
    record_reachable(cx.dependencies, python, operands)
    with ArrayGuard() as guard:
        given = python(*operands)
    if guard.is_tripped:
        raise access_error(cx, op)
    return given


def fold(cx: Context, op: str, x: Any, y: Any) -> Any:
    """Return the result of an operator on Python objects. `/` by zero follows IEEE 754.

    Lists that Python's operator does not take become vectors. Raises KernelTypeError.
    """
    try:
        return by_python(cx, op, PYTHON[op], x, y)
    except ZeroDivisionError as e:
        if foreign_traceback(e):
            raise
        if op == "/":
            return _divide_by_zero(float(x), float(y))
        raise cx.fail("division by zero", kind=KernelTypeError) from None
    except CompilationError as e:
        raise cx.fail(e.sentence, kind=KernelTypeError, label=e.label, help=e.help) from None
    except local(TypeError, ValueError, OverflowError) as e:
        if foreign_traceback(e):
            raise
        if kind_of(x).is_sequence or kind_of(y).is_sequence:
            return apply(cx, op, operand(cx, x), operand(cx, y))
        wrong = next((v for v in (x, y) if weak(v) is None), x)
        raise unsupported_use(
            cx, wrong, "number", f"`{op}` cannot be computed at compile time: {e}"
        ) from None


def is_watched(cx: Context, result: Any, *operands: Any) -> bool:
    """True if an operation on constants must be an op, so that `debug="nan"` can report it.

    Its operands are finite and its result is not. Inside of `ti.static` it stays a constant.
    """
    if not cx.options.nan or cx.in_static:
        return False
    given = [weak(x) for x in operands]
    made = weak(result)
    return (
        made is not None
        and all(x is not None and _is_finite(x) for x in given)
        and not _is_finite(made)
    )


def _is_finite(x: WeakNumbers) -> bool:
    return x.kind != "f" or bool(np.isfinite(x.numbers).all())


def _divide_by_zero(x: float, y: float) -> float:
    if x == 0 or math.isnan(x):
        return math.nan
    return math.copysign(math.inf, math.copysign(1.0, x) * math.copysign(1.0, y))


def combine(cx: Context, op: str, rule: OperatorRule, a: Operand, b: Operand) -> Value:
    """Lower a rule's elementwise op on two operands. Raises KernelTypeError."""
    elem = _result_scalar(cx, op, rule, a, b)
    t = with_shape(elem, joint_shape(cx, op, a, b))
    kind = rule.on_floats if elem.kind == "f" else rule.on_ints
    x, y = as_type(cx, a, t), as_amount(cx, b, t) if rule.takes == "shift" else as_type(cx, b, t)
    return emit_op(cx, kind, x, y)


def as_amount(cx: Context, a: Operand, t: Scalar | Tensor) -> Value:
    """Convert the amount of a shift of values of type t. Amounts of the width or more stay so.

    Raises KernelTypeError for a negative constant.
    """
    elem = scalar_of(t)
    if isinstance(a, WeakNumbers):
        amounts = np.array(a.numbers, object)
        if (amounts < 0).any():
            raise cx.fail("the amount of a shift is negative", kind=KernelTypeError)
        return constant(cx, np.minimum(amounts, elem.bits), t)
    own = scalar_of(a.type)
    if own.bits <= elem.bits:
        return as_type(cx, a, t)
    word = with_scalar(a.type, scalar_named(f"u{own.bits}"))
    unsigned = a if a.type is word else cx.b.emit("bitcast", a, type=word)
    most = (1 << (elem.bits - 1)) - 1  # fits every type of this width
    return as_type(cx, cx.b.emit("min", unsigned, cx.b.const(most, word)), t)


def emit_op(cx: Context, kind: str, x: Value, y: Value) -> Value:
    """Emit op `kind` on two values of one type; in debug mode with its checks."""
    return emit_checked(cx, kind, x, y) if cx.options.debug else cx.b.emit(kind, x, y)


def _result_scalar(cx: Context, op: str, rule: OperatorRule, a: Operand, b: Operand) -> Scalar:
    if rule.takes == "shift":
        elem = scalar_of(own_type(cx, a))
        other = scalar_of(own_type(cx, b))
    else:
        elem = other = common_scalar(cx, [a, b])
    if rule.takes in ("bits", "shift") and "f" in (elem.kind, other.kind):
        raise cx.fail(
            f"`{op}` takes integers",
            kind=KernelTypeError,
            label=pair_text(cx, a, b),
            help="convert first: ti.cast(x, ti.i32)",
        )
    if rule.takes == "float" and elem.kind != "f":
        return cx.options.default_fp
    if elem is u1 and rule.takes != "bits":
        return cx.options.default_ip
    return elem


def pair_text(cx: Context, a: Operand, b: Operand) -> str:
    return f"{describe(own_type(cx, a))} and {describe(own_type(cx, b))}"


def joint_shape(cx: Context, op: str, a: Operand, b: Operand) -> tuple[int, ...]:
    """Return the broadcast shape of an elementwise op: a scalar takes the other's shape.

    Raises KernelTypeError if two shapes differ.
    """
    left, right = operand_shape(a), operand_shape(b)
    if left == right or not right:
        return left
    if not left:
        return right
    product = op == "*" and left[-1] == right[0]
    raise cx.fail(
        f"operands of `{op}` have different shapes",
        kind=KernelTypeError,
        label=pair_text(cx, a, b),
        help="`@` is the matrix product" if product else "give both the same shape",
    )


# --- matrix product ------------------------------------------------------------------------------


def matmul(cx: Context, a: Operand, b: Operand) -> Value:
    """Lower `a @ b` of matrices and vectors; of two vectors, the dot product.

    Raises KernelTypeError if the shapes do not fit.
    """
    left, right = operand_shape(a), operand_shape(b)
    if not left or not right or left[-1] != right[0]:
        raise cx.fail(
            "operands of `@` cannot be multiplied as matrices",
            kind=KernelTypeError,
            label=pair_text(cx, a, b),
            help="`*` multiplies component by component" if not left or not right else "",
        )
    elem = common_scalar(cx, [a, b])
    elem = cx.options.default_ip if elem is u1 else elem
    x, y = as_type(cx, a, with_shape(elem, left)), as_type(cx, b, with_shape(elem, right))
    if len(left) == 2:
        return cx.b.emit("matmul", x, y)
    if len(right) == 1:
        return cx.b.emit("sum", cx.b.emit("mul", x, y))
    return cx.b.emit("matmul", cx.b.emit("transpose", y), x)


# --- unary operators, comparison, truth, select --------------------------------------------------


def unary(cx: Context, op: str, x: Any) -> Any:
    """Lower `op x` for `-`, `+`, `~` and `not`. Raises KernelTypeError."""
    if is_static(x):
        return _fold_unary(cx, op, x)
    v = value(cx, x)
    elem = scalar_of(v.type)
    if op == "not":
        return complement(cx, as_truth(cx, v))
    if op == "~":
        if elem.kind == "f":
            raise cx.fail("`~` takes integers", kind=KernelTypeError, label=describe(v.type))
        return complement(cx, v)
    if elem is u1:
        v = cast(cx, v, cx.options.default_ip)
    if op == "-" and cx.options.debug:
        return negate_checked(cx, v)
    return v if op == "+" else cx.b.emit("neg", v)


def _fold_unary(cx: Context, op: str, x: Any) -> Any:
    if op == "~" and isinstance(x, bool):
        return not x
    try:
        return by_python(cx, op, UNARY[op], x)
    except TypeError:
        if kind_of(x).is_sequence:
            return unary(cx, op, value(cx, x))
        raise unsupported_use(cx, x, "number", f"`{op}` does not apply to {name_of(x)}") from None


def complement(cx: Context, v: Value) -> Value:
    """Emit bitwise not, which is logical not of bools. A double negation is folded."""
    if getattr(v, "kind", "") == "not":
        return v.args[0]  # type: ignore[attr-defined,no-any-return]
    return cx.b.emit("not", v)


def compare(cx: Context, op: str, x: Any, y: Any) -> Any:
    """Lower `x op y` for a comparison: Python's result for constants, else u1 of the joint shape.

    Raises KernelTypeError.
    """
    python = COMPARISONS[op]
    kind = python.__name__
    if isinstance(x, Value) and keeps_type(cx, x.type, y):
        return cx.b.emit(kind, x, constant(cx, y, x.type))  # type: ignore[arg-type]
    if is_static(x) and is_static(y):
        return _fold_comparison(cx, op, python, x, y)
    a, b = operand(cx, x), operand(cx, y)
    elem = common_scalar(cx, [a, b])
    if elem is u1 and kind not in EQUALITIES:
        elem = cx.options.default_ip
    t = with_shape(elem, joint_shape(cx, op, a, b))
    return cx.b.emit(kind, as_type(cx, a, t), as_type(cx, b, t))


def _fold_comparison(
    cx: Context, op: str, python: Callable[[Any, Any], Any], x: Any, y: Any
) -> Any:
    try:
        return by_python(cx, op, python, x, y)
    except CompilationError as e:
        raise cx.fail(e.sentence, kind=KernelTypeError, label=e.label) from None
    except TypeError:
        words = f"`{op}` cannot compare {name_of(x)} and {name_of(y)}"
        wrong = next((v for v in (x, y) if weak(v) is None), x)
        raise unsupported_use(cx, wrong, "compare", words) from None


def as_truth(cx: Context, v: Value) -> Value:
    """Return `v != 0` by component: u1 of v's shape."""
    if scalar_of(v.type) is u1:
        return v
    return cx.b.emit("ne", v, constant(cx, 0, numeric_type_of(v)))


def as_condition(cx: Context, x: Any) -> Value:
    """Return x as a condition: a scalar u1. Raises KernelTypeError for vectors and matrices."""
    found = weak(x)
    if found is not None and not found.shape:
        return constant(cx, bool(found.numbers), u1)
    v = value(cx, x)
    if shape_of(v.type):
        raise cx.fail(
            f"a {describe(v.type)} is neither true nor false",
            kind=KernelTypeError,
            help="say .any() or .all()",
        )
    return as_truth(cx, v)


def negated(cx: Context, x: bool | Value) -> bool | Value:
    """Return `not x` of a condition."""
    return cx.b.emit("not", x) if isinstance(x, Value) else not x


def logical(cx: Context, x: Any, y: Any, *, is_and: bool) -> Value:
    """Lower `x and y`, or `x or y`, by component: u1 in the joint shape. Raises KernelTypeError."""
    both: Value = binary(cx, "&" if is_and else "|", *(as_truth(cx, value(cx, v)) for v in (x, y)))
    return both


def select(cx: Context, c: Any, a: Any, b: Any) -> Value:
    """Emit `a if c else b` in the common type of a and b; by component for vectors and matrices.

    Raises KernelTypeError.
    """
    x, y = operand(cx, a), operand(cx, b)
    elem = common_scalar(cx, [x, y])
    shape = joint_shape(cx, "select", x, y)
    cond = as_truth(cx, value(cx, c))
    if shape_of(cond.type):
        shape = joint_shape(cx, "select", cond, x if operand_shape(x) else y)
    t = with_shape(elem, shape)
    return cx.b.emit(
        "select", as_type(cx, cond, with_shape(u1, shape)), as_type(cx, x, t), as_type(cx, y, t)
    )


def promoted(cx: Context, *xs: Any) -> list[Value]:
    """Return the arguments as values of one scalar type, each in its own shape."""
    operands = [operand(cx, x) for x in xs]
    elem = common_scalar(cx, operands)
    return [as_type(cx, a, with_shape(elem, operand_shape(a))) for a in operands]


def floating(cx: Context, x: Any) -> Value:
    """Return x as floats: in its own type if that is a float, else in default_fp."""
    a = operand(cx, x)
    if isinstance(a, WeakNumbers):
        elem = weak_scalar(cx, a)
        elem = elem if elem.kind == "f" else cx.options.default_fp
        return as_type(cx, a, with_shape(elem, a.shape))
    return a if scalar_of(a.type).kind == "f" else cast(cx, a, cx.options.default_fp)


# Special method of a class -> the function that lowers it, its operator, and whether the operands
# are exchanged.
SPECIAL_METHODS: dict[str, tuple[Callable[..., Any], str, bool]] = {
    **{left: (operate, op, False) for op, (left, _) in OVERLOADS.items()},
    **{OVERLOADS[op][1]: (operate, op, True) for op in PYTHON},
    **{name: (operate_on, op, False) for op, name in UNARY_METHODS.items()},
}
