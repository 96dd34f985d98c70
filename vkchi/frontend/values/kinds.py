"""Kinds of compile-time values: how the frontend handles a value, and words for messages.

The kind of a Python object depends on its class alone, since the attributes of a user's object may
have any name. A kind supports every use that is not a key of its `helps`. Modules that define a
class of values define its kind, with the class in `of=[...]`.

A method that returns `NotImplemented` leaves the operation to the kind of the other operand, or to
Python. None is the answer of kinds to which a question does not apply. Terms:

- kernel value: an `ir.core.Value`, known when the kernel runs. All others are compile-time
  constants;
- Target: an assignable reference that has not been read yet (`references`). The `slot` of a value
  is the Target of its variable, if it is in one;
- tree: a list, tuple, dict or struct, whose leaves may be kernel values (`trees`). A value that
  contains kernel values but is no tree is deferred;
- path: the name and the attributes or items by which a kernel reaches a Python object.

    kind_of(x).is_static(x)                 # True if x is a compile-time constant
    check_supported(cx, x, "truth")      # KernelTypeError: a whole array is neither true nor false
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from vkchi.errors import CompilationError, KernelSyntaxError, KernelTypeError
from vkchi.frontend.state.captured_values import is_object
from vkchi.frontend.state.user_code_errors import access_error
from vkchi.interrupts.weak import WeakTable
from vkchi.types import Type, scalar_of, shape_of

if TYPE_CHECKING:
    import ast

    from vkchi.frontend.state.pending import ConversionTarget
    from vkchi.frontend.state.scope import Var
    from vkchi.frontend.values.operands import Operand, WeakNumbers
    from vkchi.frontend.values.references import Context, Merge
    from vkchi.frontend.values.texts import Part
    from vkchi.ir.core import Value

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
    texts, "" for the default in USES. A subclass registers itself for the classes in `of`, and for
    classes that have an attribute in `of`.
    """

    noun = ""
    helps: Mapping[str, str] = {}
    fit_help = "give the new value a name of its own"  # for a variable that cannot be assigned
    has_type = False  # a kernel value or a Target: x.type is its IR type
    is_target = False  # an assignable reference that has not been read yet
    is_deferred = False  # a kernel value, or contains some that functions of `trees` do not find
    is_container = False  # a tree with branches
    is_sequence = False  # a list or tuple, which is a vector where one is needed
    is_array = False  # a whole array, or an array of structs
    is_field = False  # a Python object that stands for an array
    is_struct = False  # a struct or object of the kernel, or an array of structs
    is_kernels_own = False  # Python cannot use it at compile time: a call with one is inlined
    is_ndarray = False  # an ndarray of Python: a parameter, if a path leads to it

    def __init_subclass__(cls, of: Sequence[type | str] = ()) -> None:
        for key in of:
            if isinstance(key, str):
                _MARKS[key] = cls()
            else:
                KINDS[key] = cls()
        _FOUND.clear()

    def of_subclass(self, cls: type) -> Kind:
        """Return the kind of a class that was found by a base class or an attribute."""
        return self

    # --- words -----------------------------------------------------------------------------------

    def helps_of(self, x: Any) -> Mapping[str, str]:
        return self.helps

    def help_for(self, cx: Context, x: Any, use: str) -> str:
        """Return the help text for an unsupported use."""
        return self.helps_of(x).get(use) or USES[use][1]

    def name(self, x: Any) -> str:
        """Return the words for x in messages; a function is named in backquotes."""
        if self.noun:
            return self.noun
        cls = type(x)
        if cls in _WORDS:
            return _WORDS[cls]
        name = getattr(x, "__name__", None) if callable(x) else None
        if isinstance(name, str):
            return f"`{name}`"
        word = cls.__name__
        return f"an {word}" if word[0] in "aeiouAEIOU" else f"a {word}"

    def sized_name(self, x: Any) -> str:
        """Return the words for x, for a list or dict with the number of its items."""
        return self.name(x)

    def constant_name(self, x: Any) -> str:
        """Return the words for x as a compile-time constant: a number or string is shown."""
        return self.sized_name(x)

    # --- operations ------------------------------------------------------------------------------

    def is_static(self, x: Any) -> bool:
        """True if x is a compile-time constant: a Python object that contains no kernel value."""
        return not self.is_deferred

    def array(self, cx: Any, x: Any) -> Any:
        """Return an array as an ArrayRef, an array of structs as a StructOfArrays; None for other
        kinds."""
        return None

    def first_array(self, cx: Any, x: Any) -> Any:
        """Return x as an ArrayRef, or the array of its first member: all have the same shape."""
        return self.array(cx, x)

    def of_view(self, cx: Any, x: Any) -> Any:
        """Return a view of Python as a slice of its base; None for other kinds."""
        return None

    def element_type(self, cx: Any, x: Any) -> Any:
        """Return the type of an array's elements, a StructType for an array of structs."""
        raise NotImplementedError

    def member(self, cx: Any, x: Any, name: str) -> Any:
        """Return the array of a member of an array of structs; None if there is none."""
        return None

    def attr(self, cx: Any, x: Any, name: str, slot: Any) -> Any:
        """Return `x.name`; NotImplemented: as Python.

        If x is in a variable, `slot` is its VariableTarget, and the result may be a Target.
        """
        return NotImplemented

    def item(self, cx: Any, x: Any, indices: list[Any], slot: Any) -> Any:
        """Return `x[indices]`, a Target if x is in memory; as `attr`."""
        return NotImplemented

    def component(self, cx: Any, x: Any, index: int | Value) -> Any:
        """Return a component of a vector or matrix, by its row-major index."""
        raise NotImplementedError

    def indices(self, cx: Any, x: Any) -> list[Any]:
        """Return the indices that x is between brackets: the components of a vector or list."""
        return [x]

    def method(self, cx: Any, x: Any, name: str, n: ast.Call) -> Any:
        """Lower `x.name(...)`, the call n; NotImplemented: a call of the attribute."""
        return NotImplemented

    def hint(self, x: Any, name: str) -> str:
        """Return a help text for the absent attribute `x.name`; "": one that names the others."""
        return ""

    def peek(self, x: Any, name: str) -> Any:
        """Return `x.name` if it is known without lowering, else None; NotImplemented: as Python."""
        return NotImplemented

    def called(self, x: Any, slot: Any = None) -> Any:
        """Return the object that a call of x calls: its method `__call__` if a user wrote it, else
        x. `slot` is as in `attr`.
        """
        method = getattr(type(x), "__call__", None)  # noqa: B004, not a test
        is_python = type(method) is FunctionType and is_object(x)
        return x.__call__ if is_python or function_kind(method) is not None else x

    def call(self, cx: Any, x: Any, n: ast.Call, bound: Any) -> Any:
        """Lower `x(...)`, the call n; NotImplemented: as Python.

        `bound` has the arguments that partials around x bind, a BoundArguments.
        """
        return NotImplemented

    def is_inlined(self, x: Any, *, in_play: bool) -> bool:
        """True if a call of a Python callable must be lowered. `in_play`: an argument is a value or
        array of the kernel."""
        return False

    def inline(self, cx: Any, x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Lower a call of a Python callable. Raises KernelTypeError if it is not the user's."""
        raise access_error(cx, getattr(x, "__name__", type(x).__name__))

    def references(self, x: Any) -> Collection[int | str]:
        """Return positions and names of the arguments that a call of x takes by reference."""
        return ()

    def load(self, cx: Any, x: Any) -> Any:
        """Return the value of a Target, or x."""
        return x

    def held(self, x: Any) -> Any:
        """Return what the variable or item that a Target denotes holds; any other x itself."""
        return x

    def own(self, cx: Any, x: Any) -> Any:
        """Return x as the value of a new variable: numbers become kernel values."""
        return x

    def fit(self, cx: Any, old: Any, x: Any, name: str, into: ConversionTarget) -> Any:
        """Convert x to the types of `old`, the present value of the variable or item `name`.

        Targets in `old` are stored to and stay in the result. Raises KernelTypeError.
        """
        if not is_same(old, x):
            raise cx.fail(
                f"`{name}` holds {self.sized_name(old)} and cannot be assigned "
                f"{kind_of(x).sized_name(x)}",
                help=self.fit_help,
            )
        return old

    def update(self, cx: Any, x: Any, op: str, value: Any, into: ConversionTarget) -> None:
        """Lower `x op= value` for a Target; `into` describes it. Raises KernelTypeError."""
        raise NotImplementedError

    def join(self, merge: Merge, a: Any, b: Any, name: str) -> Any:
        """Merge a and b, the values of the variable `name` on two paths, of which a is of this
        kind. Raises KernelTypeError."""
        raise merge.differ(a, b, name)

    def target(self, x: Any) -> Any:
        """Return what an assignment to x, written between brackets, stores to; a slice becomes a
        Target."""
        return x

    def is_assignable(self, x: Any) -> bool:
        """True for a Target, and for a container of Targets alone: an assignment changes these."""
        return self.is_target

    def weak(self, x: Any) -> WeakNumbers | None:
        """Return numbers of Python, without an IR type; None for other kinds."""
        return None

    def operand(self, cx: Any, x: Any) -> Operand:
        """Return x as an IR value or WeakNumbers. Raises KernelTypeError."""
        found = self.weak(x)
        if found is None:
            words = f"a number, vector or matrix is needed here, not {self.name(x)}"
            raise unsupported_use(cx, x, "number", words)
        return found

    def roots(self, x: Any) -> list[Var]:
        """Return the variables that a store to a Target changes."""
        return []

    def items(self, cx: Any, x: Any, use: str) -> list[Any] | None:
        """Return the items of x for iteration at compile time; None if Python iterates over it.

        Raises KernelTypeError, or KernelSyntaxError for the use "unpack", if x is not iterable.
        """
        if not is_iterable(x):
            raise unsupported_use(cx, x, use)
        return None

    def overload(self, cx: Any, x: Any, name: str, *args: Any) -> Any:
        """Inline the special method `name` of x's class; NotImplemented if kernels do not."""
        return NotImplemented

    def binary(self, cx: Any, op: str, x: Any, y: Any, *, is_reflected: bool) -> Any:
        """Return `x op y`, or `y op x` if `is_reflected`; x is of this kind. `op` is an arithmetic
        operator or comparison. NotImplemented: as the kind of y, then as numbers and Python do.
        """
        return NotImplemented

    def unary(self, cx: Any, op: str, x: Any) -> Any:
        """Return `op x`; NotImplemented: as numbers and Python do."""
        return NotImplemented

    def contains(self, cx: Any, x: Any, y: Any) -> Any:
        """Return `y in x`, evaluated at compile time. Raises KernelTypeError."""
        if not is_iterable(x) and not defines(x, "__contains__"):
            raise unsupported_use(cx, x, "search")
        return cx.run_python(operator.contains, (x, y))

    def space(self, cx: Any, x: Any) -> tuple[Any, ...] | None:
        """Return the iteration space of a loop over x, a LoopSpace; None: there is none."""
        return None

    def truth(self, cx: Any, x: Any) -> bool | Value:
        """Return x as a condition. Raises KernelTypeError."""
        return bool(cx.run_python(bool, (x,)))

    def length(self, cx: Any, x: Any) -> Any:
        """Return `len(x)`. Raises KernelTypeError."""
        if not defines(x, "__len__"):
            raise unsupported_use(cx, x, "length")
        return cx.run_python(len, (x,))

    def string_parts(self, x: Any) -> list[Part] | None:
        """Return the parts of a string; None for other kinds."""
        return None

    def shown(self, cx: Any, x: Any) -> list[Part]:
        """Return x's text as `print` shows it."""
        cx.looked_into(x)
        return [str(x)]

    def class_of(self, x: Any) -> type:
        """Return the class of x for `isinstance`."""
        return type(x)

    # --- containers ------------------------------------------------------------------------------

    def children(self, x: Any) -> list[Any]:
        return []

    def keys(self, x: Any) -> Any:
        """Return the keys of a container, None for a sequence."""
        return None

    def with_item(self, cx: Any, x: Any, key: Any, item: Any) -> Any:
        """Return a container as x with one item replaced. Raises KernelTypeError for a tuple."""
        raise NotImplementedError

    def leaves(self, x: Any) -> list[Value]:
        """Return the kernel values in a tree, in order."""
        return []

    def refill(self, x: Any, values: Iterator[Value]) -> Any:
        """Return the tree with its kernel values replaced by the next ones of `values`."""
        return x

    def with_children(self, x: Any, items: Sequence[Any]) -> Any:
        """Return a container of the same kind as x with these children."""
        raise NotImplementedError


_WORDS: dict[type, str] = {
    str: "a string", dict: "a dict", set: "a set", type(None): "None", complex: "a complex",
}  # fmt: skip
KINDS: dict[type, Kind] = {}  # class -> kind of its objects, and of those of its subclasses
# Attribute of a class -> kind of its objects; the first one counts. The order is that of the keys
# that are entered with PLAIN below; kinds replace their values.
_MARKS: dict[str, Kind] = {}


class FoundKind(weakref.ref[type]):
    """A class that is no key of KINDS, and its kind. Classes of users die with their kernels."""

    __slots__ = ("kind",)
    kind: Kind


# By `id` of the class.
_FOUND: WeakTable[int, type] = WeakTable()


def _find_kind(cls: Any) -> Kind:
    ref = _FOUND.ref(id(cls))
    if isinstance(ref, FoundKind) and ref() is cls:
        return ref.kind
    bases = cls.__mro__[:-1]
    found = next((KINDS[base] for base in bases if base in KINDS), None)
    if found is None:
        found = next((made for mark, made in _MARKS.items() if hasattr(cls, mark)), KINDS[object])
    ref = FoundKind(cls)
    ref.kind = found.of_subclass(cls)
    _FOUND.put(id(cls), ref)
    return ref.kind


PLAIN = Kind()
KINDS |= dict.fromkeys((type(None), object), PLAIN)
_MARKS |= dict.fromkeys(
    (
        "__vkchi_array__",
        "__vkchi_argument__",
        "__vkchi_name__",
        "__vkchi_struct__",
        "sparse_path",
        "adds_slots",
    ),
    PLAIN,
)


# Methods of arrays that copy on the host: in a kernel, they would run once, at compile time.
HOST_METHODS = ("to_numpy", "from_numpy", "to_torch", "from_torch", "__getitem__", "__setitem__")


def all_but(*meant: str, help: str = "", **helps: str) -> dict[str, str]:
    """Return `help` by use for all uses except `meant`, updated with `helps`."""
    return {use: help for use in USES if use not in meant} | helps


class MarkedKind(Kind):
    """A kind whose classes have the name of their objects in `__vkchi_name__`."""

    def name(self, x: Any) -> str:
        return str(x.__vkchi_name__)

    def method(self, cx: Any, x: Any, name: str, n: ast.Call) -> Any:
        if name in ("fill", "copy_from", *HOST_METHODS):
            raise cx.fail(
                f"`{name}` cannot be called on {name_of(x)}",
                help="pass it to the kernel, or call it outside",
            )
        return NotImplemented


class StorageTypeKind(Kind, of=["adds_slots"]):
    def name(self, x: Any) -> str:
        return f"{x!r}, a type that fields alone have"


class OutsideKind(MarkedKind):
    """Objects of Python that kernels take as arguments."""

    def hint(self, x: Any, name: str) -> str:
        return self.helps["index"]


class OutsideTextureKind(OutsideKind):
    helps = all_but(help="pass it as an argument: t: ti.types.texture(num_dimensions=2)")


OUTSIDE_TEXTURE = OutsideTextureKind()


class OutsideArrayKind(OutsideKind, of=["__vkchi_name__"]):
    helps = all_but(help="pass it to the kernel as an argument: x: ti.types.ndarray()")

    def of_subclass(self, cls: type) -> Kind:
        return self if hasattr(cls, "__getitem__") else OUTSIDE_TEXTURE


class NdarrayKind(OutsideKind, of=["__vkchi_argument__"]):
    """Ndarrays without a path; others are read as parameters (`Lowering.as_read`)."""

    is_ndarray = True
    helps = all_but(
        help="read it from a name or an attribute, or pass it to the kernel as an argument: "
        "x: ti.types.ndarray()"
    )


def kind_of(x: Any) -> Kind:
    cls: Any = type(x)
    return KINDS.get(cls) or _find_kind(cls)


def is_static(x: Any) -> bool:
    """True if x is a compile-time constant: a Python object that contains no kernel value."""
    return kind_of(x).is_static(x)


def check_supported(cx: Context, x: Any, use: str, arg: int | None = None) -> Kind:
    """Check that x's kind supports a use, a key of USES, and return the kind.

    Raises KernelTypeError, or KernelSyntaxError for "unpack".
    """
    found = kind_of(x)
    if use in found.helps_of(x):
        raise unsupported_use(cx, x, use, arg=arg)
    return found


def unsupported_use(
    cx: Context, x: Any, use: str, sentence: str = "", arg: int | None = None
) -> CompilationError:
    found = kind_of(x)
    return cx.fail(
        sentence or USES[use][0].format(found.noun or found.name(x)),
        kind=KernelSyntaxError if use in _SYNTAX else KernelTypeError,
        help=found.help_for(cx, x, use),
        arg=arg,
        constant=x if found.is_deferred else None,
    )


def defines(x: Any, name: str) -> bool:
    """True if the class of x, or a base class, has an attribute `name` that is not None."""
    return any(vars(base).get(name) is not None for base in type(x).__mro__)


def is_iterable(x: Any) -> bool:
    return defines(x, "__iter__") or defines(x, "__getitem__")


def is_same(a: Any, b: Any) -> bool:
    """True if two compile-time leaves are one object, or equal numbers or strings of one type.

    0.0 and -0.0 differ; nan equals nan.
    """
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, int | float | str | bytes):
        return False
    return a == b and repr(a) == repr(b) if a == a else b != b


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
