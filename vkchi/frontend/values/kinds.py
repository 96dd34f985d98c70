"""Kinds of compile-time values: the operations that each does not support, and words for messages.

The kind of a Python object depends on its class alone, since the attributes of a user's object may
have any name. A kind supports every use that is not a key of its `helps`.

    check_supported(cx, x, "truth")      # KernelTypeError: a whole array is neither true nor false
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from vkchi.errors import CompilationError, KernelSyntaxError, KernelTypeError
from vkchi.frontend.values.references import ArrayRef, Context, RangeOf
from vkchi.frontend.values.trees import StructValue
from vkchi.ir.core import Value
from vkchi.lang.ndrange import grouped, ndrange
from vkchi.lang.struct import Struct
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, Type, is_quantised, scalar_of, shape_of
from vkchi.types.lazy_numpy import np

# Uses of a value: the sentence for a kind that does not support it, and the default help.
USES = {
    "number": ("{} is not a number", "use a number, a vector or a matrix"),
    "truth": ("{} is neither true nor false", "compare it: x != 0"),
    "compare": ("{} cannot be compared", "compare numbers, vectors or matrices"),
    "search": ("`in` cannot search {}", "search a list, tuple, dict or range of constants"),
    "length": ("{} has no `len`", "take `len` of a list, a tuple, a vector or an array"),
    "items": (
        "{} cannot be iterated over at compile time",
        "iterate over a list, a tuple, a vector or range(3)",
    ),
    "unpack": ("{} cannot be unpacked", "unpack a tuple, a list or a vector"),
    "loop": ("cannot loop over {} at run time", "loop over range(n), ti.ndrange(n, m) or an array"),
    "index": ("{} cannot be indexed", "index an array, a vector, a matrix, a list or a dict"),
    "call": ("{} cannot be called", "call a function, a type or a class"),
    "print": ("{} cannot be printed in a kernel", "print numbers, vectors, matrices or strings"),
}
_SYNTAX = ("unpack",)  # uses that raise KernelSyntaxError


class Kind(NamedTuple):
    """A kind of values.

    `noun` is its word in messages, "" for that of `name_of`. `helps` maps unsupported uses to help
    texts, "" for the default in USES.
    """

    noun: str = ""
    helps: Mapping[str, str] = {}


def _all_but(*meant: str, help: str = "", **helps: str) -> dict[str, str]:
    """Return `help` by use for all uses except `meant`, updated with `helps`."""
    return {use: help for use in USES if use not in meant} | helps


PLAIN = Kind()
SCALAR = Kind(
    "",
    _all_but(
        "number", "truth", "compare", "print",
        loop="did you mean range(...)?", items="did you mean range(...)?",
        search="compare it with `==`",
    ),
)  # fmt: skip
TENSOR = Kind("", {"call": "", "search": "write (v == x).any()"})
ARRAY = Kind(
    "a whole array",
    _all_but(
        "loop", "index", "length", help="index it: x[i]",
        truth="index it: x[None]; for an array that may be None: x is not None",
        compare="compare elements: x[i] == y[i]; for the same object: x is y",
        print="index it: x[i], or print it in Python",
        items="loop over its indices at run time: for i in x",
    ),
)  # fmt: skip
# Functions that iterate over their argument -> help for whole arrays.
OVER_ARRAYS = {
    "enumerate": "loop over its indices: for i in x, with v = x[i]",
    "zip": "loop over the indices: for i in x, with a, b = x[i], y[i]",
    "reversed": "loop over its indices: for i in x, with v = x[n - 1 - i]",
    "sum": "add in a loop: for i in x: s += x[i]; or in Python, x.to_numpy().sum()",
    "max": "for i in x: ti.atomic_max(m, x[i]); or in Python, x.to_numpy().max()",
    "min": "for i in x: ti.atomic_min(m, x[i]); or in Python, x.to_numpy().min()",
    "any": "for i in x: ti.atomic_or(b, x[i] != 0); or in Python, x.to_numpy().any()",
    "all": "for i in x: ti.atomic_and(b, x[i] != 0); or in Python, x.to_numpy().all()",
    "sorted": "sort it in Python: ti.algorithms.parallel_sort(x)",
}
STRUCTS = Kind(
    "a whole array of structs",
    {**ARRAY.helps, "number": "index it: x[i].a", "truth": "index it: x[i].a"},
)
_PASS = "pass it to the kernel as an argument: x: ti.types.ndarray()"
OUTSIDE_ARRAY = Kind("", _all_but(help=_PASS))
OUTSIDE_TEXTURE = Kind(
    "", _all_but(help="pass it as an argument: t: ti.types.texture(num_dimensions=2)")
)
TEXTURE = Kind(
    "", _all_but("loop", help="read a texel: t.fetch(i, 0), or t.load(i) of a ti.types.rw_texture")
)
BUILDER = Kind("", _all_but("index", help="add to an entry: A[i, j] += x"))
BLOCK = Kind(
    "a block of a field tree", _all_but("loop", help="use a field in it: x[i], or loop: for i in x")
)
STRUCT = Kind("a struct", _all_but("length", "index", "print", "items", "unpack"))
RANGE = Kind(
    "a range of kernel values",
    _all_but(
        "loop", help="loop over it at run time: for i in range(n)",
        length="compute it from the bounds: ti.max(end - begin, 0)",
        truth="compare the bounds: begin < end",
        search="compare with the bounds: begin <= x and x < end",
        index="compute the item: begin + k * step",
        items="loop over it at run time: for i in range(n)",
    ),
)  # fmt: skip
SPACE = Kind("a loop space", _all_but("loop", "items", "unpack", help="loop over it: for i in x"))
TEXT = Kind(
    "a string with kernel values",
    _all_but(
        "print",
        "number",
        help="only print it",
        compare="compare the values, not their text: n == 3",
    ),
)

KINDS: dict[type, Kind] = {
    ArrayRef: ARRAY, RangeOf: RANGE, ndrange: SPACE, grouped: SPACE, Struct: STRUCT,
    StructValue: STRUCT,
}  # fmt: skip


@lru_cache(1024)  # classes of users, too
def _kind_of_class(cls: Any) -> Kind:
    for base in cls.__mro__:
        if base in KINDS:
            return KINDS[base]
    if hasattr(cls, "__vkchi_array__"):
        return ARRAY
    if hasattr(cls, "__vkchi_name__"):
        return OUTSIDE_ARRAY if hasattr(cls, "__getitem__") else OUTSIDE_TEXTURE
    if hasattr(cls, "__vkchi_struct__"):
        return STRUCTS
    return BLOCK if hasattr(cls, "sparse_path") else PLAIN


def kind_of(x: Any) -> Kind:
    if isinstance(x, Value):
        return TENSOR if isinstance(x.type, Tensor) else SCALAR
    cls: Any = type(x)
    return _kind_of_class(cls)


def check_supported(cx: Context, x: Any, use: str, arg: int | None = None) -> None:
    """Check that x's kind supports a use, a key of USES.

    Raises KernelTypeError, or KernelSyntaxError for "unpack".
    """
    if use in kind_of(x).helps:
        raise unsupported_use(cx, x, use, arg=arg)


def unsupported_use(
    cx: Context, x: Any, use: str, sentence: str = "", arg: int | None = None
) -> CompilationError:
    kind, (words, help) = kind_of(x), USES[use]
    if isinstance(x, StructValue | Struct):
        help = f"use its members ({', '.join(_members(x))})"
        help += ", or write a method" if use in ("number", "truth", "compare") else ""
    helps = kind.helps
    if use == "items" and kind is ARRAY and cx.called in OVER_ARRAYS:
        helps = {use: OVER_ARRAYS[cx.called]}
    return cx.fail(
        sentence or words.format(kind.noun or name_of(x)),
        kind=KernelSyntaxError if use in _SYNTAX else KernelTypeError,
        help=helps.get(use) or help,
        arg=arg,
    )


def _members(x: Any) -> list[str]:
    return list(x.keys()) if isinstance(x, StructValue) else Struct._names(x)


def defines(x: Any, name: str) -> bool:
    """True if the class of x, or a base class, has an attribute `name` that is not None."""
    return any(vars(base).get(name) is not None for base in type(x).__mro__)


def is_iterable(x: Any) -> bool:
    return defines(x, "__iter__") or defines(x, "__getitem__")


def function_kind(x: Any) -> str | None:
    """Return the mark of a vkchi function: "kernel", "func", ...; None for other objects."""
    return x.__vkchi_kind__ if hasattr(type(x), "__vkchi_kind__") else None


# --- words ---------------------------------------------------------------------------------------


def describe(t: Type) -> str:
    """Return a type in words: `scalar f32`, `vector of 3 f32`, `2 by 2 matrix of f32`."""
    shape = shape_of(t)
    if len(shape) == 2:
        return f"{shape[0]} by {shape[1]} matrix of {scalar_of(t)}"
    return f"vector of {shape[0]} {scalar_of(t)}" if shape else f"scalar {t}"


def name_of(x: Any) -> str:
    """Return the words for a value in messages: `a string`, `the type f32`.

    A function is named in backquotes.
    """
    if isinstance(x, Type):
        return f"the type {x}"
    if is_quantised(x):
        return f"{x!r}, a type that fields alone have"
    words = {
        str: "a string",
        dict: "a dict",
        set: "a set",
        type(None): "None",
        complex: "a complex",
        np.ndarray: "a numpy array",
    }
    if isinstance(x, StructValue):
        word = f"an object of {x.type.__name__}" if isinstance(x.type, type) else "a struct"
        return f"{word} of {', '.join(x.keys())}" if len(x) else word
    cls = type(x)
    if hasattr(cls, "__vkchi_name__"):
        return str(x.__vkchi_name__)
    if hasattr(cls, "__vkchi_struct__"):
        return "an array of structs (index it)"
    if hasattr(cls, "__vkchi_type__"):
        return "a struct"
    if cls in words:
        return words[cls]
    if isinstance(x, ArrayRef) or hasattr(cls, "__vkchi_array__"):
        return "an array (index it)"
    if isinstance(x, Value):
        return f"a {describe(x.type)}" if isinstance(x.type, Scalar | Tensor) else f"an {x.type}"
    if kind_of(x).noun:
        return kind_of(x).noun
    name = getattr(x, "__name__", None) if callable(x) else None
    if isinstance(name, str):
        return f"`{name}`"
    word = cls.__name__
    return f"an {word}" if word[0] in "aeiouAEIOU" else f"a {word}"
