"""Elementwise functions as objects (`ti.sin`, `ti.max`, ...), with their Python-scope evaluation.

The result is of the kind of the arguments: a Python number, a numpy array, or a vector or matrix
(anything with `entries` and `wrap`). Domain errors give nan or inf, as in kernels. Functions in
`INTRINSICS` become one IR op in kernels, besides casts. `frontend/ops/elementwise_calls.py` lowers
the others.

    >>> sqrt(4.0)
    2.0
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelTypeError
from vkchi.interrupts.local import local
from vkchi.ir.op_table import semantics
from vkchi.lang.function import Function, language_function, python_function
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, cook, i32, promote, scalar_of_dtype
from vkchi.types.bfloat16 import convert
from vkchi.types.lazy_numpy import NumpyFunction, np

if TYPE_CHECKING:
    from vkchi.protocols import Binary, Cast, Folding, Language, Rounding, Same, Unary
    from vkchi.types.hints import Numbers

    Floats = Unary[float]
    Truths = Unary[bool]
    Bits = Unary[int]
    Pair = Language[[Numbers, Numbers], Any]


def entries_of(x: Any) -> Any:
    """The numpy array of a vector, matrix, list or tuple; other objects unchanged."""
    if isinstance(x, list | tuple):
        return np.asarray(x)
    return getattr(x, "entries", x)


def check_unmasked(values: Any) -> None:
    """Raise KernelTypeError for a masked numpy array."""
    if isinstance(values, np.ma.MaskedArray):
        raise KernelTypeError("vectors and matrices have no masks: pass x.filled(value), or x.data")


def evaluate_elementwise(f: Callable[..., Any], *args: Any) -> Any:
    """Apply f to the numpy arrays of args, without floating-point warnings.

    The result is wrapped like the first vector or matrix among args. Without one, a numpy scalar
    becomes a Python number unless an arg is an array, list or tuple. Raises KernelTypeError if f
    raises TypeError or ValueError, and for integers that fit neither an operand's type nor i32.
    """
    operands = [entries_of(x) for x in args]
    try:
        with np.errstate(all="ignore"):
            try:
                result = f(*operands)
            except local(OverflowError):
                result = f(*promote_integers(operands))
    except local(TypeError, ValueError) as e:
        texts = [x for x in args if isinstance(x, str)]
        why = f"numbers are needed here, not {texts[0]!r}" if texts else str(e)
        raise KernelTypeError(why) from None
    for x in args:
        if hasattr(x, "wrap"):
            return x.wrap(result)
    is_array = any(isinstance(x, np.ndarray | list | tuple) for x in args)
    return result.item() if isinstance(result, np.generic) and not is_array else result


def promote_integers(operands: list[Any]) -> list[Any]:
    """Convert Python integers that do not fit an array beside them, as kernels do: to the common
    type of that array and i32. Raises ValueError for integers that fit neither that nor i32."""
    found = [scalar_of_dtype(x.dtype) for x in operands if isinstance(x, np.ndarray)]
    t = reduce(promote, [kind for kind in found if kind is not None], i32)
    if t.kind not in "iu":
        return operands
    return [fit_integer(x, t) if type(x) is int else x for x in operands]


def fit_integer(number: int, t: Scalar) -> Any:
    ranges = [np.iinfo(t.dtype), np.iinfo(i32.dtype)]
    if not any(r.min <= number <= r.max for r in ranges):
        raise ValueError(f"{number} does not fit {t}")
    return np.array(number).astype(t.dtype)[()]


def cast_numbers(obj: Any, dtype: Any) -> Any:
    """Convert the numbers of obj to dtype: floats truncate toward zero, integers wrap.

    Raises KernelTypeError unless dtype is a scalar type.
    """
    t = cook(dtype)
    if not isinstance(t, Scalar):
        raise KernelTypeError(f"{dtype!r} is not a number type such as ti.f32")
    return evaluate_elementwise(lambda v: convert(np.asarray(v), t)[()], obj)


def _elementwise(name: str, f: Callable[..., Any], doc: str) -> Any:
    return language_function(name, lambda *args: evaluate_elementwise(f, *args), doc)


# --- functions that are a single IR op -----------------------------------------------------------


class Intrinsic(NamedTuple):
    """Lowering of a function to the op called `op`.

    `takes` is one of:
    - "floats": float arguments; integers are cast;
    - "bits": integer arguments only;
    - "class": a predicate on floats, false for integers;
    - "whole": a float argument; the result is cast to `dtype` if given.

    `math` and `numpy` are the function's names in those modules, or "". `public` lists the
    namespaces that export it.
    """

    op: str
    takes: str
    math: str
    numpy: str
    public: str = "ti ti.math"


INTRINSICS: dict[Function, Intrinsic] = {}


def _intrinsic(
    name: str,
    takes: str,
    doc: str,
    *,
    math: str = "",
    numpy: str = "",
    python: Callable[..., Any] | None = None,
    public: str = "ti ti.math",
) -> Any:
    """Add a function named like its op to `INTRINSICS`, and return it.

    In Python scope it evaluates `python` on numpy arrays, by default the numpy meaning of the op.
    """
    function = _elementwise(name, python or _meaning_of(name), doc)
    INTRINSICS[function] = Intrinsic(name, takes, math, numpy, public)
    return function


def _meaning_of(op: str) -> Callable[..., Any]:
    def compute(*args: Any) -> Any:
        from vkchi.ir.ops import TABLE  # slow to import

        f = TABLE[op].numpy
        assert f is not None
        return f(*map(_as_floats, args))[()]

    return compute


def _as_floats(x: Any) -> Any:
    values: Any = np.asarray(x)
    return values if values.dtype.kind == "f" else values.astype(np.float64)


# fmt: off
sin: Floats = _intrinsic("sin", "floats", "Sine of x, in radians.", math="sin", numpy="sin")
cos: Floats = _intrinsic("cos", "floats", "Cosine of x, in radians.", math="cos", numpy="cos")
tan: Floats = _intrinsic("tan", "floats", "Tangent of x, in radians.", math="tan", numpy="tan")
asin: Floats = _intrinsic("asin", "floats", "Arc sine, in radians; nan outside [-1, 1].",
                  math="asin", numpy="arcsin")
acos: Floats = _intrinsic("acos", "floats", "Arc cosine, in radians; nan outside [-1, 1].",
                  math="acos", numpy="arccos")
atan: Floats = _intrinsic("atan", "floats", "Arc tangent, in radians.",
                  math="atan", numpy="arctan", public="ti.math")
sinh: Floats = _intrinsic("sinh", "floats", "Hyperbolic sine.",
                  math="sinh", numpy="sinh", public="ti.math")
cosh: Floats = _intrinsic("cosh", "floats", "Hyperbolic cosine.",
                  math="cosh", numpy="cosh", public="ti.math")
tanh: Floats = _intrinsic("tanh", "floats", "Hyperbolic tangent.", math="tanh", numpy="tanh")
sqrt: Floats = _intrinsic("sqrt", "floats", "Square root; nan for negative x.",
                  math="sqrt", numpy="sqrt")
rsqrt: Floats = _intrinsic("rsqrt", "floats", "1 / sqrt(x).", public="ti")
exp: Floats = _intrinsic("exp", "floats", "e to the power x.", math="exp", numpy="exp")
exp2: Floats = _intrinsic("exp2", "floats", "2 to the power x.",
                  math="exp2", numpy="exp2", public="ti.math")
log: Floats = _intrinsic("log", "floats", "Natural logarithm.",
                  numpy="log")  # math.log takes a base
log2: Floats = _intrinsic("log2", "floats", "Logarithm to base 2.",
                  math="log2", numpy="log2", public="ti.math")
trunc: Floats = _intrinsic("trunc", "floats", "Integer part.",
                  numpy="trunc", public="ti.math")  # math.trunc is an int
isnan: Truths = _intrinsic("isnan", "class", "True for each component that is NaN.",
                   math="isnan", numpy="isnan", public="ti.math")
isinf: Truths = _intrinsic("isinf", "class", "True for each component that is infinite.",
                   math="isinf", numpy="isinf", public="ti.math")
# fmt: on
atan2: Binary = _elementwise(
    "atan2", NumpyFunction("arctan2"), "Angle of the point (x2, x1), in radians."
)
abs: Same = _elementwise("abs", NumpyFunction("abs"), "Absolute value.")


def _sign(x: Any) -> Any:
    return np.sign(np.nan_to_num(np.asarray(x, np.float64), nan=0.0))[()]


sign: Floats = _intrinsic(
    "sign",
    "floats",
    "-1.0, 0.0 or 1.0; a float for integers too.",
    numpy="sign",
    python=_sign,
    public="ti.math",
)


def _mod(x: Any, y: Any) -> Any:
    whole = np.result_type(x, y, np.float32)
    return semantics.mod(*np.broadcast_arrays(*(np.asarray(v, whole) for v in (x, y))))[()]


mod: Binary = _elementwise(
    "mod", _mod, "x - y * floor(x / y), in floats: the remainder with y's sign."
)


@python_function
def frexp(x: Any) -> tuple[Any, Any]:
    """m, e with x = m * 2**e and 0.5 <= |m| < 1; x and 0 if x is 0, infinite or nan.

    Kernels may return x and 0 for subnormal x too.
    """
    return evaluate_elementwise(lambda v: np.frexp(v)[0], x), evaluate_elementwise(
        lambda v: np.frexp(v)[1], x
    )


def _count(f: Callable[[int, int], int]) -> Callable[[Any], Any]:
    """Return an elementwise function that calls f(bits, width) for each integer.

    The width is 32 unless the argument is a numpy array or scalar.
    """

    def counted(x: Any) -> Any:
        a = np.asarray(x)
        width = a.dtype.itemsize * 8 if isinstance(x, np.ndarray | np.generic) else 32
        values = [f(int(v) & ((1 << width) - 1), width) for v in a.reshape(-1)]
        return np.array(values, a.dtype).reshape(a.shape)[()]

    return counted


popcnt: Bits = _intrinsic(
    "popcnt",
    "bits",
    "Number of set bits.",
    python=_count(lambda v, width: bin(v).count("1")),
    public="ti.math",
)
clz: Bits = _intrinsic(
    "clz",
    "bits",
    "Number of zero bits above the highest.",
    python=_count(lambda v, width: width - v.bit_length()),
    public="ti.math",
)
ffs: Bits = _elementwise(
    "ffs",
    _count(lambda v, width: (v & -v).bit_length()),
    "Position of the lowest set bit, counted from 1; 0 if there is none.",
)


def _rounding(name: str, f: Callable[[Any], Any], doc: str, *, numpy: str = "") -> Any:
    def rounded(x: Any, dtype: Any = None) -> Any:
        r = evaluate_elementwise(lambda v: f(np.asarray(v, np.result_type(v, np.float32)))[()], x)
        return r if dtype is None else cast_numbers(r, dtype)

    function = Function(name, rounded, f"{doc} Cast to `dtype` if given, else a float.")
    INTRINSICS[function] = Intrinsic(name, "whole", "", numpy)  # `math` returns integers
    return function


floor: Rounding = _rounding(
    "floor", NumpyFunction("floor"), "The largest integer not above x.", numpy="floor"
)
ceil: Rounding = _rounding(
    "ceil", NumpyFunction("ceil"), "The smallest integer not below x.", numpy="ceil"
)
round: Rounding = _rounding(
    "round",
    NumpyFunction("rint"),
    "The nearest integer; halves to even, in kernels away from zero.",
)


def _of_many(name: str, f: Callable[[Any, Any], Any], doc: str) -> Any:
    def folded(*args: Any) -> Any:
        if not args:
            raise KernelTypeError(f"`{name}` needs at least one value")
        return reduce(lambda x, y: evaluate_elementwise(f, x, y), args)

    return language_function(name, folded, doc)


max: Folding = _of_many(
    "max", NumpyFunction("fmax"), "The largest of the arguments, component by component."
)
min: Folding = _of_many(
    "min", NumpyFunction("fmin"), "The smallest of the arguments, component by component."
)


@python_function
def pow(base: Any, exponent: Any) -> Any:
    """`base ** exponent`."""
    return base**exponent


def _raw_div(x: Any, y: Any) -> Any:
    quotient = np.asarray(np.true_divide(x, y))
    t = np.result_type(x, y)
    return (np.trunc(quotient).astype(t) if t.kind in "biu" else quotient)[()]


raw_div: Pair = _elementwise("raw_div", _raw_div, "x1 / x2 as C does it: integers truncate.")
raw_mod: Pair = _elementwise(
    "raw_mod", NumpyFunction("fmod"), "x1 % x2 as C does it: the sign of x1."
)


def _bit_shr(x: Any, y: Any) -> Any:
    a: Any = np.asarray(x) if isinstance(x, np.ndarray | np.generic) else np.asarray(x, np.int32)
    word = f"u{a.dtype.itemsize}"
    return np.right_shift(a.view(word), np.asarray(y).astype(word)).view(a.dtype)[()]


bit_shr: Pair = _elementwise(
    "bit_shr", _bit_shr, "x1 >> x2 with zeros coming in, for signed x1 too."
)


cast: Cast = language_function(
    "cast",
    cast_numbers,
    "obj with its numbers converted to `dtype`: toward zero, integers wrapping.",
)


def _bit_cast(obj: Any, dtype: Any) -> Any:
    t = cook(dtype)

    def reinterpret(v: Any) -> Any:
        a = np.asarray(v)
        if not isinstance(v, np.ndarray | np.generic):
            a = a.astype(np.float32 if a.dtype.kind == "f" else np.int32)
        return np.ascontiguousarray(a).view(t.dtype).reshape(a.shape)[()]

    return evaluate_elementwise(reinterpret, obj)


bit_cast: Cast = language_function(
    "bit_cast",
    _bit_cast,
    "The number whose bits in `dtype` are those of obj; Python numbers are f32 and i32.",
)


@python_function
def select(cond: Any, x1: Any, x2: Any) -> Any:
    """x1 if cond is true, else x2, per component. Both are evaluated."""
    is_plain = not any(hasattr(x, "wrap") for x in (cond, x1, x2))
    if is_plain and isinstance(cond, bool | int | np.bool_):
        return x1 if cond else x2

    def choose(c: Any, a: Any, b: Any) -> Any:
        for one, other in ((a, b), (b, a)):
            if type(one) is int and isinstance(other, np.ndarray) and other.dtype.kind in "iu":
                other.dtype.type(one)  # raises OverflowError, where np.where wraps
        chosen: Any = np.where(c, a, b)
        return chosen[()]

    return evaluate_elementwise(choose, cond, x1, x2)


ifte: Language[[Any, Any, Any], Any] = language_function("ifte", select.python, select.__doc__)
logical_and: Pair = _elementwise(
    "logical_and", NumpyFunction("logical_and"), "Truth of both, per component."
)
logical_or: Pair = _elementwise(
    "logical_or", NumpyFunction("logical_or"), "Truth of either, per component."
)
logical_not: Truths = _elementwise(
    "logical_not", NumpyFunction("logical_not"), "Untruth, per component."
)
zero: Same = _elementwise("zero", lambda x: np.zeros_like(x)[()], "Zeros of x's type and shape.")
one: Same = _elementwise("one", lambda x: np.ones_like(x)[()], "Ones of x's type and shape.")
neg: Same = _elementwise("neg", operator.neg, "-x.")

# Public names by namespace. `pytest --bless tests/unit/test_public_names.py` generates three lists
# from them: in `names`, `vkchi/__init__` and `lang.math`.
_WORDS = {
    "ti": """
        abs atan2 bit_cast bit_shr cast frexp ifte logical_and logical_not logical_or max min one
        pow raw_div raw_mod select zero
    """,
    "ti.math": "atan2 ffs max min mod pow",
}
PUBLIC = {
    namespace: [
        *words.split(),
        *[f.__name__ for f, row in INTRINSICS.items() if namespace in row.public.split()],
    ]
    for namespace, words in _WORDS.items()
}
