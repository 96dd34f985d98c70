"""Types of the IR and of users: interned scalar, tensor, array and pointer types; type promotion.

Types are compared with `is`. `Defaults` holds the types that `float` and `int` denote.

    >>> Tensor.of(f32, (3,)) is Tensor.of(f32, (3,))
    True
    >>> promote(i32, f32)
    f32
"""

from __future__ import annotations

import math
import typing
from functools import cache
from typing import Any

from vkchi.hooks import Hook
from vkchi.interrupts.weak import WeakTable
from vkchi.tuples import NamedTuple
from vkchi.types.layout import Layout, row_major
from vkchi.types.lazy_numpy import is_numpy_loaded, np


class Type:
    """Base of all types.

    Instances are interned (weakly), except struct types: equal types are the same object.
    """

    __slots__ = ("__weakref__", "_text")
    _interned: WeakTable[tuple[Any, ...], Type] = WeakTable()
    _text: str
    _make: Any
    kind: str = ""  # of a scalar: i, u, f or b

    def __repr__(self) -> str:
        return self._text

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make a value of this type in Python scope: `ti.f32(3)`, `vec3(1, 2, 3)`."""
        return self._make(self, *args, **kwargs)

    def __or__(self, other: None) -> Any:
        """Return the annotation `ti.f32 | None`."""
        return typing.Optional[self] if other is None else NotImplemented  # noqa: UP045

    __ror__ = __or__

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} does not say how it is pickled")

    def __deepcopy__(self, memo: Any) -> Type:
        return self


class Scalar(Type):
    """A scalar type, a row of the table below.

    - kind: i, u, f or b (bool); bits: its width;
    - numpy_name: the dtype of its values in numpy, f4 for bf16;
    - code: its format in memoryviews and Python's `struct`, "" if memoryviews have none;
    - arithmetic_cap, storage_cap: fields of `target.caps.Caps` that are true for devices that
      compute with such scalars, and store them; "" for all devices.
    """

    __slots__ = (
        "arithmetic_cap", "bits", "code", "dtype", "kind", "name", "numpy_name", "storage_cap",
    )  # fmt: skip
    _make = Hook("scalar")
    name: str
    kind: str
    bits: int
    dtype: np.dtype[Any]
    numpy_name: str
    code: str
    arithmetic_cap: str
    storage_cap: str

    def __getattr__(self, name: str) -> Any:
        """Create the attribute `dtype`, the numpy dtype, on first use. Raises AttributeError for
        other names."""
        if name != "dtype":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.dtype = np.dtype(self.numpy_name)
        return self.dtype

    def __dir__(self) -> list[str]:
        """The names that help lines list: without those for code generation."""
        hidden = {"arithmetic_cap", "carrier", "code", "storage_cap"}
        return [name for name in super().__dir__() if name not in hidden]

    def __reduce__(self) -> Any:
        return (scalar_named, (self.name,))

    def to_string(self) -> str:
        """The type's name, as in Taichi."""
        return self.name

    @property
    def memory_dtype(self) -> np.dtype[Any]:
        """The numpy dtype of such scalars in memory: `dtype`, but u16 for bf16."""
        return np.dtype(np.uint16) if self is bf16 else self.dtype

    @property
    def size_bytes(self) -> int:
        """Size in memory in bytes; a u1 takes one byte, like numpy's bool."""
        return max(1, self.bits // 8)

    @property
    def carrier(self) -> Scalar:
        """The type in which shaders get values from launches, and report them: a scalar of less
        than 32 bits is converted to 32."""
        return self if self.bits >= 32 else SCALARS[f"{self.kind.replace('b', 'u')}32"]


def _make_scalar(name: str, row: tuple[str, str, str, str]) -> Scalar:
    t = Scalar()
    t._text = t.name = name
    t.kind, t.bits = KINDS.get(name, name[0]), int(name.lstrip("biuf"))
    t.numpy_name, t.code, t.arithmetic_cap, t.storage_cap = row
    return t


INTEGERS = frozenset("iu")  # kinds
KINDS = {"u1": "b", "bf16": "f"}  # of scalar types whose names begin with another letter

# Name -> `numpy_name`, `code`, `arithmetic_cap`, `storage_cap`.
_ROWS = {
    "i8": ("i1", "b", "int8", "storage8"),
    "i16": ("i2", "h", "int16", "storage16"),
    "i32": ("i4", "i", "", ""),
    "i64": ("i8", "q", "int64", ""),
    "u8": ("u1", "B", "int8", "storage8"),
    "u16": ("u2", "H", "int16", "storage16"),
    "u32": ("u4", "I", "", ""),
    "u64": ("u8", "Q", "int64", ""),
    "f16": ("f2", "", "float16", "storage16"),
    "f32": ("f4", "f", "", ""),
    "f64": ("f8", "d", "float64", ""),
    "u1": ("?", "?", "", ""),
    "bf16": ("f4", "", "int16", "storage16"),
}
SCALARS = {name: _make_scalar(name, row) for name, row in _ROWS.items()}
i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, f64, u1, bf16 = SCALARS.values()
int8, int16, int32, int64, uint8, uint16, uint32, uint64 = i8, i16, i32, i64, u8, u16, u32, u64
float16, float32, float64, uint1, bfloat16 = f16, f32, f64, u1, bf16


def scalar_named(name: str) -> Scalar:
    """The scalar type called `name`. Raises KeyError."""
    return SCALARS[name]


@cache
def integer_range(t: Scalar) -> tuple[int, int]:
    """The least and greatest value of an integer type or u1."""
    if t.kind == "i":
        return -(1 << t.bits - 1), (1 << t.bits - 1) - 1
    return 0, (1 << t.bits) - 1


def scalar_of_dtype(dtype: Any) -> Scalar | None:
    """The scalar type of a numpy dtype, or None if kernels have no such type."""
    found = np.dtype(dtype).newbyteorder("=")
    is_bf16 = found.name == "bfloat16" or found.names == ("bfloat16",)
    return bf16 if is_bf16 else _by_dtype().get(found)


@cache
def _by_dtype() -> dict[np.dtype[Any], Scalar]:
    return {t.dtype: t for t in SCALARS.values() if t is not bf16}


class Tensor(Type):
    """A vector type (`shape` of length one) or matrix type (length two)."""

    __slots__ = ("elem", "shape", "size")
    _make, _field, _ndarray = Hook("tensor"), Hook("field"), Hook("ndarray")
    elem: Scalar
    shape: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, elem: Scalar, shape: tuple[int, ...]) -> Tensor:
        key = (cls, elem, shape)
        found = cls._interned.get(key)
        if found is None:
            t = cls()
            t.elem, t.shape, t.size = elem, shape, math.prod(shape)
            t._text = f"{elem}<{'x'.join(map(str, shape))}>"
            found = cls._interned.setdefault(key, t)
        return found  # type: ignore[return-value]

    def __reduce__(self) -> Any:
        return (Tensor.of, (self.elem, self.shape))

    def to_string(self) -> str:
        """The type's name, as in Taichi."""
        if len(self.shape) == 1:
            return f"VectorType[{self.n}, {self.elem}]"
        return f"MatrixType[{self.n},{self.m}, {self.elem}]"

    def field(self, *args: Any, **options: Any) -> Any:
        """A field of such vectors or matrices; arguments are those of `ti.field`."""
        return self._field(self, *args, **options)

    def ndarray(self, *args: Any, **options: Any) -> Any:
        """An ndarray of such vectors or matrices; arguments are those of `ti.ndarray`."""
        return self._ndarray(self, *args, **options)

    @property
    def n(self) -> int:
        """Rows of a matrix, length of a vector."""
        return self.shape[0]

    @property
    def m(self) -> int:
        """Columns of a matrix, 1 for a vector."""
        return self.shape[1] if len(self.shape) == 2 else 1

    @property
    def ndim(self) -> int:
        """1 for vectors, 2 for matrices."""
        return len(self.shape)

    @property
    def dtype(self) -> Scalar:
        """The scalar type of the components."""
        return self.elem

    def get_shape(self) -> tuple[int, ...]:
        """The same as `shape`."""
        return self.shape


class Array(Type):
    """Type of indexed memory: a field, an ndarray argument, a temporary, a shared array.

    - `elem`: type of an element's value, or of its slot if elements are bit-packed;
    - `shape`: static, or None for ndarrays, whose shape is known at launch;
    - `layout`: None for row-major with components innermost;
    - `space`: `global`, or `shared` for memory of a workgroup;
    - `stored`: scalar type in memory; that of `elem`, but u8 or u32 for u1, and the word's type if
      elements are bit-packed.

    Facts about the array of a launch are attributes of the parameter (`types.core`).
    """

    __slots__ = ("elem", "layout", "ndim", "shape", "space", "stored")
    elem: Scalar | Tensor
    ndim: int
    shape: tuple[int, ...] | None
    layout: Layout | None
    space: str
    stored: Scalar

    @classmethod
    def of(
        cls,
        elem: Scalar | Tensor,
        ndim: int,
        shape: tuple[int, ...] | None = None,
        layout: Layout | None = None,
        space: str = "global",
        stored: Scalar | None = None,
    ) -> Array:
        stored = stored or stored_scalar(elem)
        shape = () if ndim == 0 else shape  # static: no extents
        key = (cls, elem, ndim, shape, layout, space, stored)
        found = cls._interned.get(key)
        if found is None:
            t = cls()
            t.elem, t.ndim, t.shape, t.layout, t.space = elem, ndim, shape, layout, space
            t.stored = stored
            dims = "?" * ndim if shape is None else ",".join(map(str, shape))
            extra = "" if layout is None else f" @{layout.text()}"
            where = "" if space == "global" else f" {space}"
            kept = "" if stored is stored_scalar(elem) else f" as {stored}"
            t._text = f"array<{elem}[{dims}]{kept}{where}{extra}>"
            found = cls._interned.setdefault(key, t)
        return found  # type: ignore[return-value]

    def __reduce__(self) -> Any:
        return (Array.of, (self.elem, self.ndim, self.shape, self.layout, self.space, self.stored))

    @property
    def scalars_per_element(self) -> int:
        return self.elem.size if isinstance(self.elem, Tensor) else 1


class Ptr(Type):
    """Type of a pointer: results of `local`, `elem`, `member`, `member_at`, `address` and `word`
    ops."""

    __slots__ = ("elem", "space")
    elem: Scalar | Tensor
    space: str

    @classmethod
    def of(cls, elem: Scalar | Tensor, space: str) -> Ptr:
        key = (cls, elem, space)
        found = cls._interned.get(key)
        if found is None:
            t = cls()
            t.elem, t.space, t._text = elem, space, f"ptr<{elem} {space}>"
            found = cls._interned.setdefault(key, t)
        return found  # type: ignore[return-value]


def cell_of(t: Scalar | Tensor) -> Array:
    """The type of an array without axes that holds one value.

    Kernels return values and pass them between dispatches in cells. Bools are stored in 32 bits,
    which every device supports.
    """
    count = t.size if isinstance(t, Tensor) else 1
    stored = u32 if scalar_of(t) is u1 else None
    return Array.of(t, 0, (), row_major((), count), stored=stored)


def scalar_of(t: Type) -> Scalar:
    """The scalar type of a value of type t. Raises TypeError for arrays and pointers."""
    if isinstance(t, Scalar):
        return t
    if isinstance(t, Tensor):
        return t.elem
    raise TypeError(f"{t} is not a number or tensor of numbers")


def shape_of(t: Type) -> tuple[int, ...]:
    """() for a scalar, the shape of a tensor."""
    return t.shape if isinstance(t, Tensor) else ()


def with_shape(elem: Scalar, shape: tuple[int, ...]) -> Scalar | Tensor:
    """The tensor type of this shape; the scalar itself for ()."""
    return Tensor.of(elem, shape) if shape else elem


def with_scalar(t: Type, elem: Scalar) -> Scalar | Tensor:
    return with_shape(elem, shape_of(t))


def stored_scalar(t: Type) -> Scalar:
    """The scalar type that represents t in memory by default: u8 for u1, else that of t."""
    elem = scalar_of(t)
    return u8 if elem is u1 else elem


# --- promotion -------------------------------------------------------------------------------


def promote(a: Scalar, b: Scalar) -> Scalar:
    """The common type of two operands.

    A float beats an integer. Otherwise more bits beat fewer, and at equal width unsigned beats
    signed. Source: Taichi's documentation, "Implicit type casting in binary operations". A bf16
    counts as f32.
    """
    a, b = (f32 if t is bf16 else t for t in (a, b))
    return max((a, b), key=lambda t: (t.kind == "f", t.bits, t.kind == "u"))


class Defaults:
    """The types denoted by `float` and `int`; set by `init` and `reset`."""

    fp: Scalar = f32
    ip: Scalar = i32


def cook(dtype: Any) -> Any:
    """Convert a Python or numpy type, or a `DefaultTensor`, to a `Type`.

    None for a numpy type that kernels do not have; anything else is returned unchanged.
    """
    if dtype is float:
        return Defaults.fp
    if dtype is int:
        return Defaults.ip
    if dtype is bool:
        return u1
    if isinstance(dtype, DefaultTensor):
        return dtype.type
    return scalar_of_dtype(dtype) if is_numpy_loaded() and is_dtype(dtype) else dtype


def is_quantised(t: Any) -> bool:
    """True if t is a bit-packed number type (`packed_numbers.Quantised`)."""
    return hasattr(type(t), "adds_slots")


def is_dtype(dtype: Any) -> bool:
    """True if `dtype` is a numpy scalar type or dtype."""
    is_class = isinstance(dtype, type) and issubclass(dtype, np.generic)
    return is_class or isinstance(dtype, np.dtype)


class DefaultTensor:
    """A vector or matrix type with a default scalar type: `ti.math.vec3`, `ivec2`, `mat4`.

    `kind` is f, i or u: default_fp, default_ip, or the unsigned integer of default_ip's width. A
    DefaultTensor is not a `Type`: `cook` returns the type under the current defaults.
    """

    __slots__ = ("kind", "name", "shape")

    def __init__(self, name: str, kind: str, shape: tuple[int, ...]) -> None:
        self.name, self.kind, self.shape = name, kind, shape

    __or__ = __ror__ = Type.__or__

    def resolve(self, fp: Scalar, ip: Scalar) -> Tensor:
        """The type under the defaults fp and ip."""
        return Tensor.of({"f": fp, "i": ip, "u": SCALARS[f"u{ip.bits}"]}[self.kind], self.shape)

    @property
    def type(self) -> Tensor:
        """The type under the current defaults."""
        return self.resolve(Defaults.fp, Defaults.ip)

    def field(self, *args: Any, **options: Any) -> Any:
        """A field of the current type; arguments are those of `ti.field`."""
        return self.type.field(*args, **options)

    def ndarray(self, *args: Any, **options: Any) -> Any:
        """An ndarray of the current type; arguments are those of `ti.ndarray`."""
        return self.type.ndarray(*args, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.type, name)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return (DefaultTensor, (self.name, self.kind, self.shape))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.type(*args, **kwargs)


# --- attributes of array parameters --------------------------------------------------------------
#
# Attributes of array parameters: facts about an array beyond its type.
#
# They hold for one launch, not for a type. `ext64` and `noguard` must be given where they apply;
# omitting the others only costs optimizations. `ArrayArgument` transports type and attributes from
# the call's signature to the parameter.
#
#     >>> Attributes(like="x", noalias=True)      # %y: array<f32[?]> like x noalias


class Attributes(NamedTuple):
    """Attributes of an array parameter.

    - like: name of the array parameter with the same dynamic shape, "" for none;
    - ext64: so large (`needs_wide`) that it is addressed and iterated over in 64 bits;
    - noalias: disjoint from all other `noalias` arrays in this launch. Arrays with a layout are
      always disjoint from others;
    - noguard: memory behind the last element may belong to another library and must not be written;
    - aligned: alignment of the first scalar in bytes, a power of two; 1 for that of its type;
    - indirect: the launch passes the address of a pointer to the first scalar.
    """

    like: str = ""
    ext64: bool = False
    noalias: bool = False
    noguard: bool = False
    aligned: int = 1
    indirect: bool = False

    def words(self) -> list[str]:
        """The attributes that are not defaults, in text form, as they follow a parameter's type."""
        return [
            *([f"like {self.like}"] if self.like else ()),
            *(["ext64"] if self.ext64 else ()),
            *(["noalias"] if self.noalias else ()),
            *(["noguard"] if self.noguard else ()),
            *([f"aligned {self.aligned}"] if self.aligned > 1 else ()),
            *(["indirect"] if self.indirect else ()),
        ]


PLAIN = Attributes()
MOST_ALIGNED = 16  # bytes, the widest access


def alignment_of(address: int) -> int:
    """The attribute `aligned` of an array at this address, at most MOST_ALIGNED; 1 for 0."""
    return min(address & -address, MOST_ALIGNED) if address else 1


class ArrayArgument:
    """The type and attributes of an array argument, interned so that comparison is by identity."""

    __slots__ = ("__weakref__", "attributes", "type")
    _interned: WeakTable[tuple[Any, ...], ArrayArgument] = WeakTable()
    type: Array
    attributes: Attributes

    @classmethod
    def of(cls, t: Array, attributes: Attributes = PLAIN) -> ArrayArgument:
        key = (t, attributes)
        found = cls._interned.get(key)
        if found is None:
            made = cls()
            made.type, made.attributes = t, attributes
            found = cls._interned.setdefault(key, made)
        return found

    def __repr__(self) -> str:
        return " ".join([str(self.type), *self.attributes.words()])

    def __reduce__(self) -> Any:
        return (ArrayArgument.of, (self.type, self.attributes))

    def __deepcopy__(self, memo: Any) -> ArrayArgument:
        return self

    def given(self, like: str, *, noalias: bool) -> ArrayArgument:
        """The same argument with the given attributes `like` and `noalias`."""
        return ArrayArgument.of(self.type, self.attributes._replace(like=like, noalias=noalias))
