"""Kinds of compile-time values: how the frontend handles a value, and words for messages.

The kind of a Python object depends on its class alone, since the attributes of a user's object may
have any name. A kind supports every use that is not a key of its `helps`. Modules that define a
class of values add its kind to KINDS.

    kind_of(x).is_static(x)                 # True if x is a compile-time constant
    check_supported(cx, x, "truth")      # KernelTypeError: a whole array is neither true nor false
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vkchi.errors import CompilationError, KernelSyntaxError, KernelTypeError
from vkchi.ir.core import Op, Param, Result, Value
from vkchi.lang.ndrange import grouped, ndrange
from vkchi.lang.struct import Struct
from vkchi.types import Scalar, Tensor, Type, scalar_of, shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.frontend.values.references import ArrayRef, Context

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


class Kind:
    """A kind of values. Its methods take a value of the kind.

    `noun` is its word in messages, "" for that of `name`. `helps` maps unsupported uses to help
    texts, "" for the default in USES.
    """

    has_type = False  # a kernel value or a Target: x.type is its IR type
    is_target = False  # an assignable reference that has not been read yet
    is_container = False  # a tree with branches
    is_array = False  # a whole array, or an array of structs
    is_field = False  # a Python object that stands for an array
    is_struct_array = False  # an array of structs: a captured field, or an argument

    def __init__(self, noun: str = "", helps: Mapping[str, str] = MappingProxyType({})) -> None:
        self.noun, self.helps = noun, helps

    def helps_of(self, x: Any) -> Mapping[str, str]:
        return self.helps

    def help_for(self, cx: Context, x: Any, use: str) -> str:
        """Return the help text for an unsupported use."""
        return self.helps_of(x).get(use) or USES[use][1]

    def name(self, x: Any) -> str:
        """Return the words for x in messages; a function is named in backquotes."""
        cls = type(x)
        if cls in _WORDS:
            return _WORDS[cls]
        if cls is np.ndarray:
            return "a numpy array"
        name = getattr(x, "__name__", None) if callable(x) else None
        if isinstance(name, str):
            return f"`{name}`"
        word = cls.__name__
        return f"an {word}" if word[0] in "aeiouAEIOU" else f"a {word}"

    def is_static(self, x: Any) -> bool:
        """True if x is a compile-time constant: a Python object that contains no kernel value and
        no Deferred."""
        return True

    def array(self, cx: Context, x: Any) -> ArrayRef | None:
        """Return x as an array in a kernel; None if it is not one array."""
        return None

    def of_subclass(self, cls: type) -> Kind:
        """Return the kind of a subclass of a class of this kind."""
        return self

    def children(self, x: Any) -> list[Any]:
        """Return the branches of a container."""
        raise NotImplementedError

    def keys(self, x: Any) -> Any:
        """Return the keys of a container, None for a sequence."""
        return None

    def with_children(self, x: Any, items: Sequence[Any]) -> Any:
        """Return a container of the same kind as x with these branches."""
        raise NotImplementedError


_WORDS: dict[type, str] = {
    str: "a string", dict: "a dict", set: "a set", type(None): "None", complex: "a complex",
}  # fmt: skip


class NounKind(Kind):
    """A kind whose noun is the name of its values."""

    def name(self, x: Any) -> str:
        return self.noun


class MarkedKind(Kind):
    """A kind whose classes have the name of their objects in `__vkchi_name__`."""

    def name(self, x: Any) -> str:
        return str(x.__vkchi_name__)


class DeferredKind(NounKind):
    """A kind of values that contain kernel values which functions of `trees` do not find."""

    def is_static(self, x: Any) -> bool:
        return False


class TargetKind(DeferredKind):
    has_type = is_target = True

    def name(self, x: Any) -> str:
        return Kind.name(self, x)


class ValueKind(Kind):
    """Kernel values: `helps` are those of scalars, TENSOR_HELPS of vectors and matrices."""

    has_type = True

    def helps_of(self, x: Any) -> Mapping[str, str]:
        return TENSOR_HELPS if isinstance(x.type, Tensor) else self.helps

    def name(self, x: Any) -> str:
        return f"a {describe(x.type)}" if isinstance(x.type, Scalar | Tensor) else f"an {x.type}"

    def is_static(self, x: Any) -> bool:
        return False


class TypeKind(Kind):
    def name(self, x: Any) -> str:
        return f"the type {x}" if isinstance(x, Type) else f"{x!r}, a type that fields alone have"


class ArrayKind(Kind):
    is_array = True

    def name(self, x: Any) -> str:
        return "an array (index it)"

    def help_for(self, cx: Context, x: Any, use: str) -> str:
        over = OVER_ARRAYS.get(cx.called) if use == "items" else None
        return over or super().help_for(cx, x, use)

    def array(self, cx: Context, x: Any) -> ArrayRef | None:
        return x  # type: ignore[no-any-return]


class FieldKind(ArrayKind):
    is_field = True

    def array(self, cx: Context, x: Any) -> ArrayRef | None:
        return cx.array_of(x)


class StructArrayKind(Kind):
    is_array = is_struct_array = True

    def name(self, x: Any) -> str:
        return "an array of structs (index it)"


class StructKind(NounKind):
    """Structs of Python."""

    def members(self, x: Any) -> list[str]:
        return Struct._names(x)

    def help_for(self, cx: Context, x: Any, use: str) -> str:
        help = f"use its members ({', '.join(self.members(x))})"
        return help + (", or write a method" if use in ("number", "truth", "compare") else "")


class SpaceKind(NounKind):
    def is_static(self, x: Any) -> bool:
        return is_static(x.inner if isinstance(x, grouped) else x.bounds)


def _all_but(*meant: str, help: str = "", **helps: str) -> dict[str, str]:
    """Return `help` by use for all uses except `meant`, updated with `helps`."""
    return {use: help for use in USES if use not in meant} | helps


PLAIN = Kind()
TARGET = TargetKind()
TYPE = TypeKind()
TENSOR_HELPS = {"call": "", "search": "write (v == x).any()"}
VALUE = ValueKind(
    "",
    _all_but(
        "number", "truth", "compare", "print",
        loop="did you mean range(...)?", items="did you mean range(...)?",
        search="compare it with `==`",
    ),
)  # fmt: skip
ARRAY = ArrayKind(
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
FIELD = FieldKind(ARRAY.noun, ARRAY.helps)
STRUCTS = StructArrayKind(
    "a whole array of structs",
    {**ARRAY.helps, "number": "index it: x[i].a", "truth": "index it: x[i].a"},
)
_PASS = "pass it to the kernel as an argument: x: ti.types.ndarray()"
OUTSIDE_ARRAY = MarkedKind("", _all_but(help=_PASS))
OUTSIDE_TEXTURE = MarkedKind(
    "", _all_but(help="pass it as an argument: t: ti.types.texture(num_dimensions=2)")
)
TEXTURE = MarkedKind(
    "", _all_but("loop", help="read a texel: t.fetch(i, 0), or t.load(i) of a ti.types.rw_texture")
)
BUILDER = MarkedKind("", _all_but("index", help="add to an entry: A[i, j] += x"))
BLOCK = NounKind(
    "a block of a field tree", _all_but("loop", help="use a field in it: x[i], or loop: for i in x")
)
STRUCT = StructKind("a struct", _all_but("length", "index", "print", "items", "unpack"))
RANGE = DeferredKind(
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
SPACE = SpaceKind(
    "a loop space", _all_but("loop", "items", "unpack", help="loop over it: for i in x")
)
TEXT = DeferredKind(
    "a string with kernel values",
    _all_but(
        "print",
        "number",
        help="only print it",
        compare="compare the values, not their text: n == 3",
    ),
)

# Class -> kind of its objects, and of those of its subclasses.
KINDS: dict[type, Kind] = {
    Op: VALUE, Param: VALUE, Result: VALUE, Value: VALUE, Type: TYPE, Struct: STRUCT,
    ndrange: SPACE, grouped: SPACE,
} | dict.fromkeys((bool, int, float, str, type(None), object), PLAIN)  # fmt: skip
# Attribute of a class -> kind of its objects.
_MARKS: dict[str, Kind] = {
    "__vkchi_array__": FIELD, "__vkchi_name__": OUTSIDE_ARRAY, "__vkchi_struct__": STRUCTS,
    "sparse_path": BLOCK, "adds_slots": TYPE,
}  # fmt: skip


@lru_cache(1024)  # classes of users, too
def _find_kind(cls: Any) -> Kind:
    bases = cls.__mro__[:-1]
    found = next((KINDS[base] for base in bases if base in KINDS), None)
    if found is not None:
        return found.of_subclass(cls)
    found = next((made for mark, made in _MARKS.items() if hasattr(cls, mark)), PLAIN)
    has_items = hasattr(cls, "__getitem__")
    return OUTSIDE_TEXTURE if found is OUTSIDE_ARRAY and not has_items else found


def kind_of(x: Any) -> Kind:
    cls: Any = type(x)
    return KINDS.get(cls) or _find_kind(cls)


def is_static(x: Any) -> bool:
    """True if x is a compile-time constant: a Python object that contains no kernel value and no
    Deferred."""
    return kind_of(x).is_static(x)


def check_supported(cx: Context, x: Any, use: str, arg: int | None = None) -> None:
    """Check that x's kind supports a use, a key of USES.

    Raises KernelTypeError, or KernelSyntaxError for "unpack".
    """
    if use in kind_of(x).helps_of(x):
        raise unsupported_use(cx, x, use, arg=arg)


def unsupported_use(
    cx: Context, x: Any, use: str, sentence: str = "", arg: int | None = None
) -> CompilationError:
    found = kind_of(x)
    return cx.fail(
        sentence or USES[use][0].format(found.noun or found.name(x)),
        kind=KernelSyntaxError if use in _SYNTAX else KernelTypeError,
        help=found.help_for(cx, x, use),
        arg=arg,
    )


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
    """Return the words for a value in messages: `a string`, `the type f32`."""
    return kind_of(x).name(x)
