"""`ti.Vector` and `ti.Matrix`: small values in Python scope, with the operators of kernels.

`entries` is a numpy array of one or two axes. `dt` is the declared scalar type. If it is None,
kernels take the value as default_fp or default_ip.

    >>> v = Vector([1.0, 2.0]); v.yx + 1
    [3. 2.]
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from vkchi.errors import (
    ArgumentError,
    KernelIndexError,
    KernelIndexTypeError,
    KernelShapeError,
    KernelSyntaxError,
    KernelTypeError,
)
from vkchi.hooks import Hook, open_names
from vkchi.interrupts.local import local
from vkchi.lang.elementwise import cast_numbers, check_unmasked, evaluate_elementwise
from vkchi.lang.function import python_function
from vkchi.lang.linear_algebra import linear
from vkchi.public_names import visible_names
from vkchi.types import Scalar, bf16, cook, f32, promote, scalar_of_dtype
from vkchi.types.lazy_numpy import NumpyFunction, is_array_of_numpy, is_of_numpy, np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from vkchi.protocols import Arithmetic, MatrixField, MatrixNdarray, Storage, VectorNdarray
    from vkchi.types import hints
    from vkchi.types.hints import Entry, FieldOptions, Number, Numbers, ScalarDType, Shape
else:
    Arithmetic = object


class Factories:
    """Hooks for constructors of fields and arrays, which are in other layers.

    They get the arguments (n, dtype, ...) of `Vector.field` and `Vector.ndarray`, and (n, m, dtype,
    ...) of those of `Matrix`.
    """

    vector_field, matrix_field = Hook("vector field"), Hook("matrix field")
    vector_ndarray, matrix_ndarray = Hook("vector ndarray"), Hook("matrix ndarray")
    vector_tensor, matrix_tensor = Hook("vector tensor"), Hook("matrix tensor")


def _numbers(values: Any) -> Any:
    """Return a nested sequence of numbers (or vectors) as a numpy array of one or two axes.

    Raises KernelShapeError for rows of different lengths, KernelTypeError for other values.
    """
    if isinstance(values, Matrix):
        return np.array(values.entries)
    if isinstance(values, list | tuple):
        values = [v.entries if isinstance(v, Matrix) else v for v in values]
    check_unmasked(values)
    try:
        a = np.array(values)
    except local(ValueError):
        raise KernelShapeError("the rows of a matrix must have the same length") from None
    if a.dtype.kind not in "biuf" or a.ndim not in (1, 2):
        raise KernelTypeError(
            "a vector or matrix is made from a list of numbers or a list of rows, "
            f"not {values!r}"
        )  # fmt: skip
    return a


def scalar_type(dt: Any) -> Scalar | None:
    t = cook(dt)
    if t is not None and not isinstance(t, Scalar):
        raise KernelTypeError(f"dt must be a number type such as ti.f32, not {dt!r}")
    return t


ALPHABETS = ("xyzw", "rgba", "stpq")
MOST_LETTERS = 4  # of a swizzle


def is_swizzle(name: str) -> bool:
    """True if `name` is a swizzle of vectors with 4 components."""
    return components_of(name, MOST_LETTERS) is not None


@lru_cache(maxsize=1024)
def components_of(name: str, size: int) -> tuple[int, ...] | None:
    """Return the component indices that `name` selects from a vector of `size` components.

    Swizzles are one to four letters of xyzw, rgba or stpq. None if `name` is no swizzle or exceeds
    the vector.
    """
    for alphabet in ALPHABETS:
        places = tuple(map(alphabet.find, name))
        if 0 < len(places) <= MOST_LETTERS and min(places) >= 0:
            return places if max(places) < size else None
    return None


COMPUTED = (None, b"")  # `_sum_of` of results that may depend on recorded elements


class Matrix(Arithmetic):
    """A vector (list of numbers) or matrix (list of rows).

    Elementwise operators accept a value of the same shape, a list, a numpy array or a number; `@`
    is the matrix product. Operators raise KernelShapeError for shapes that do not fit.
    """

    __slots__ = ("_entries", "_sum_of", "dt")
    __dir__ = visible_names
    _entries: Any
    dt: Scalar | None
    _sum_of: tuple[Hashable | None, bytes] | None  # see `place_of_sum`; None: of the user's numbers

    def __init__(self, arr: Numbers, dt: ScalarDType | None = None) -> None:
        t = scalar_type(dt)
        entries = _numbers(arr)
        self.dt = f32 if t is bf16 else t
        self._entries = entries if t is None else np.asarray(cast_numbers(entries, t))
        self._sum_of = None

    @property
    def entries(self) -> NDArray[Any]:
        """The components as a numpy array; writing to it changes the value."""
        return self._entries

    def wrap(self, result: object) -> Any:
        return wrap_array(result)

    def pack(self, values: Numbers) -> Any:
        return wrap_array(np.array(values))

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    # --- components --------------------------------------------------------------------------

    def _key(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) == 1 and isinstance(keys[0], Matrix):
            keys = tuple(keys[0].to_list())
        if len(keys) != len(self.shape):
            raise KernelIndexError(f"{len(self.shape)} indices needed, {len(keys)} given")
        for k, extent in zip(keys, self.shape):
            if isinstance(k, slice):
                continue
            if not hasattr(k, "__index__"):
                raise KernelIndexTypeError(f"indices are integers here, not {k!r}")
            if not -extent <= operator.index(k) < extent:
                raise KernelIndexError(f"index {k} is out of range for {linear.shape_text(self)}")
        return keys

    def __getitem__(self, key: Entry) -> Any:
        return wrap_array(self.entries[self._key(key)])

    def __setitem__(self, key: Entry, value: Numbers) -> None:
        numbers, kind = getattr(value, "entries", value), self.entries.dtype
        try:
            self.entries[self._key(key)] = numbers
        except OverflowError:
            raise ArgumentError(f"{value} does not fit components of {kind}") from None

    def __getattr__(self, name: str) -> Any:
        places = None if name.startswith("_") else self._swizzle(name)
        if places is None:
            raise AttributeError(f"a {linear.shape_text(self)} has no `{name}`")
        if len(places) == 1:
            return self[places[0]]
        return wrap_array(self.entries[list(places)])

    def __setattr__(self, name: str, value: Any) -> None:
        places = None if name == "dt" or name[0] == "_" else self._swizzle(name)
        if places is None:
            object.__setattr__(self, name, value)
            return
        entries = np.asarray(getattr(value, "entries", value))
        if entries.shape not in ((), (len(places),)):
            raise ArgumentError(f"`.{name}` is {len(places)} numbers, not {value!r}")
        for place, v in zip(places, np.broadcast_to(entries, (len(places),))):
            self[place] = v

    def _swizzle(self, name: str) -> tuple[int, ...] | None:
        """Return the components that a swizzle name selects, or None for other names and for
        matrices.

        Raises KernelSyntaxError if the vector is too short.
        """
        if len(self.shape) != 1:
            return None
        places = components_of(name, self.n)
        if places is None and is_swizzle(name):
            raise KernelSyntaxError(
                f"`.{name}` needs a longer vector: this has {self.n} components"
            )
        return places

    # --- operators ---------------------------------------------------------------------------

    def _apply(self, f: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        other = b if a is self else a
        if not (isinstance(other, Matrix | list | tuple | int | float) or is_of_numpy(other)):
            return NotImplemented
        check_unmasked(other)
        shape = np.shape(getattr(other, "entries", other))
        if shape and shape != self.shape:
            text = [linear.shape_text(x if hasattr(x, "shape") else Matrix(x)) for x in (a, b)]
            raise KernelShapeError(f"operands have different shapes: {text[0]} and {text[1]}")
        found = self._declared(evaluate_elementwise(f, a, b), getattr(other, "dt", None))
        if isinstance(found, Matrix) and not isinstance(other, np.ndarray):
            place = find_summand(f, a, b)
            if place is not None:
                found._sum_of = place, found._entries.tobytes()
        return found

    def place_of_sum(self) -> Hashable | None:
        """Return the place of the array element of which this is a sum with constants; None if
        unknown, and if no tape watches the array."""
        place, components = self._sum_of or (None, b"")
        return place if place is None or self._entries.tobytes() == components else None

    def _declared(self, found: Any, other: Scalar | None) -> Any:
        """Return `found`, the result of an operator, with `dt` set if it has none.

        `dt` becomes the declared type of an operand if the result has that dtype.
        """
        if isinstance(found, Matrix) and found.dt is None:
            kinds = [
                t for t in (self.dt, other) if t is not None and t.dtype == found._entries.dtype
            ]
            found.dt = kinds[0] if kinds else None
        return found

    def __matmul__(self, other: Any) -> Any:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return matmul(other, self)

    def __neg__(self) -> Any:
        return self._declared(evaluate_elementwise(np.negative, self), None)

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        return self._declared(evaluate_elementwise(np.invert, self), None)

    def __abs__(self) -> Any:
        return self._declared(evaluate_elementwise(np.abs, self), None)

    def __ne__(self, other: object) -> Any:
        found = self._apply(np.not_equal, self, other)
        if isinstance(found, Matrix):
            found.__class__ = VectorDifferences if found.ndim == 1 else Differences
        return found

    # `==` returns a vector of bools, so sets and dicts use identity.
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        """True if the only component is true, or all components of a boolean value.

        Raises KernelTypeError for several numbers.
        """
        entries = self.entries
        if entries.size == 1 or entries.dtype == np.bool_:
            return bool(entries.all())
        raise KernelTypeError(
            f"a {linear.shape_text(self)} is neither true nor false", help="say .any() or .all()"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.entries, dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        if len(inputs) == 2:
            return self._apply(ufunc, *inputs)
        return evaluate_elementwise(ufunc, *inputs)

    # --- shape -------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,) of a vector, (n, m) of a matrix."""
        return tuple(self.entries.shape)

    @property
    def n(self) -> int:
        """Number of rows, or the length of a vector."""
        return self.shape[0]

    @property
    def m(self) -> int:
        """Number of columns; 1 for a vector."""
        return self.shape[1] if len(self.shape) == 2 else 1

    @property
    def ndim(self) -> int:
        """1 for a vector, 2 for a matrix."""
        return len(self.shape)

    def get_shape(self) -> tuple[int, ...]:
        """The same as `shape`."""
        return self.shape

    # --- norms and determinants ---------------------------------------------------------------

    def norm(self, eps: float = 0) -> float:
        """sqrt(sum of squares + eps)."""
        return linear.norm(self, eps)

    def norm_sqr(self) -> float:
        """Sum of the squared components."""
        return linear.norm_sqr(self)

    def norm_inv(self, eps: float = 0) -> float:
        """1 / norm(eps)."""
        return linear.norm_inv(self, eps)

    def trace(self) -> float:
        """Sum of the diagonal of a square matrix. Raises KernelTypeError for other shapes."""
        return linear.trace(self)

    def determinant(self) -> float:
        """Determinant of a square matrix up to 4 by 4. Raises KernelTypeError for other shapes."""
        return linear.determinant(self)

    # --- reductions ----------------------------------------------------------------------------

    # np.sum(v) and the like call these methods with `axis` and `out`.

    def sum(self, axis: int | None = None, out: None = None) -> Any:
        """Sum of all components, or the sums along an `axis`. `out` is ignored."""
        return self.wrap(self.entries.sum(axis))

    def max(self, axis: int | None = None, out: None = None) -> Any:
        """The largest component, or the largest ones along an `axis`. `out` is ignored."""
        return self.wrap(self.entries.max(axis))

    def min(self, axis: int | None = None, out: None = None) -> Any:
        """The smallest component, or the smallest ones along an `axis`. `out` is ignored."""
        return self.wrap(self.entries.min(axis))

    def any(self, axis: int | None = None, out: None = None) -> Any:
        """True if any component is nonzero, or a bool for each line along an `axis`. `out` is
        ignored."""
        return self.wrap(self.entries.any(axis))

    def all(self, axis: int | None = None, out: None = None) -> Any:
        """True if all components are nonzero, or a bool for each line along an `axis`. `out` is
        ignored."""
        return self.wrap(self.entries.all(axis))

    # --- conversions -------------------------------------------------------------------------

    def to_numpy(self) -> NDArray[Any]:
        """A copy as a numpy array."""
        return np.array(self.entries)

    def to_list(self) -> list[Any]:
        """A list of Python numbers, or of rows."""
        return self.entries.tolist()

    # --- products and other values, as in kernels ----------------------------------------------

    def normalized(self, eps: float = 0) -> Vector:
        """self / (norm() + eps)."""
        return linear.normalized(self, eps)

    def dot(self, other: Numbers) -> float:
        """Inner product with another vector (`other`). Raises KernelTypeError for other shapes."""
        return linear.dot(self, _as_matrix(other))

    def cross(self, other: Numbers) -> Any:
        """Cross product with another vector (`other`): a vector for 3 components, a scalar for 2.

        Raises KernelTypeError for other shapes.
        """
        return linear.cross(self, _as_matrix(other))

    def outer_product(self, other: Numbers) -> Matrix:
        """Outer product with another vector (`other`): the matrix of all products of components.

        Raises KernelTypeError for matrices.
        """
        v = _as_matrix(other)
        if self.ndim != 1 or v.ndim != 1:
            raise KernelTypeError("`outer_product` takes two vectors")
        return wrap_array(np.multiply.outer(self.entries, v.entries))

    def transpose(self) -> Matrix:
        """The transposed matrix. Raises KernelTypeError for a vector."""
        if self.ndim != 2:
            raise KernelTypeError(NO_TRANSPOSE, help="write a.outer_product(b)")
        return wrap_array(self.entries.T.copy())

    def inverse(self) -> Matrix:
        """Inverse of a square matrix up to 4 by 4; has inf or nan if the determinant is 0.

        Raises KernelTypeError for other shapes.
        """
        return linear.inverse(self)

    def cast(self, dtype: ScalarDType) -> Matrix:
        """The value with its components converted to `dtype`."""
        return cast_numbers(self, dtype)

    def captured(self, default_fp: Scalar, default_ip: Scalar) -> Matrix:
        """Return the value as kernels capture it.

        A component type that promotes to the default type, default_fp or default_ip, is dropped.
        Components then get 64 bits and no declared type, so kernels use the default. Others stay as
        they are.
        """
        t = scalar_of_dtype(self.entries.dtype)
        default = default_fp if t is not None and t.kind == "f" else default_ip
        if t is None or t.kind == "b" or promote(t, default) is not default:
            return self
        wide = np.float64 if t.kind == "f" else np.int64
        found: Matrix = wrap_array(self.entries.astype(wide))
        return found

    def fill(self, val: Number) -> None:
        """Set every component to val."""
        for key in np.ndindex(*self.shape):
            self[key] = val

    def __repr__(self) -> str:
        return str(self.entries)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __reduce__(self) -> Any:
        return (type_of(self.entries), (self.to_numpy(), self.dt))

    # --- constructors (continued below) -----------------------------------------------------------

    @staticmethod
    def field(
        n: int, m: int, dtype: ScalarDType, shape: Shape | None = None, *args: object,
        **options: Unpack[FieldOptions],
    ) -> MatrixField:  # fmt: skip
        """Create a field of matrices.

        Args:
            n: number of rows.
            m: number of columns.
            dtype: scalar type of the components.
            shape: an integer or integers.
            *args: the arguments of `ti.field` after `shape`.
            **options: those of `ti.field`, and `layout`.

        Returns:
            The field of matrices.

        Raises:
            ArgumentError: for invalid arguments.
            KernelRuntimeError: before `init`.
        """
        return Factories.matrix_field(n, m, dtype, shape, *args, **options)

    @staticmethod
    def ndarray(n: int, m: int, dtype: ScalarDType, shape: Shape, **options: bool) -> MatrixNdarray:
        """An array of shape `shape` of `n` by `m` matrices of scalars of type `dtype`.

        `options` are those of `ti.ndarray`. Raises ArgumentError.
        """
        return Factories.matrix_ndarray(n, m, dtype, shape, **options)

    @staticmethod
    def tensor(
        n: int, m: int, dtype: ScalarDType, shape: Shape, **options: Unpack[hints.TensorOptions]
    ) -> Storage:
        """A field or ndarray of shape `shape` of `n` by `m` matrices of scalars of type `dtype`.

        `options` are those of `ti.tensor`. Raises ArgumentError.
        """
        return Factories.matrix_tensor(n, m, dtype, shape, **options)


# Numpy dtypes of Python numbers: no declared type.
_FREE = ("float64", "int64", "bool")

NO_TRANSPOSE = "`transpose` takes a matrix, and this is a vector"


class Vector(Matrix):
    """A vector, made from a list of numbers. A list of rows makes a value of two axes."""

    __slots__ = ()

    @staticmethod
    def field(  # type: ignore[override]
        n: int, dtype: ScalarDType, shape: Shape | None = None, *args: object,
        **options: Unpack[FieldOptions],
    ) -> MatrixField:  # fmt: skip
        """Create a field of vectors.

        Args:
            n: number of components.
            dtype: scalar type of the components.
            shape: an integer or integers.
            *args: the arguments of `ti.field` after `shape`.
            **options: those of `ti.field`, and `layout`.

        Returns:
            The field of vectors.

        Raises:
            ArgumentError: for invalid arguments.
            KernelRuntimeError: before `init`.
        """
        return Factories.vector_field(n, dtype, shape, *args, **options)

    @staticmethod
    def ndarray(  # type: ignore[override]
        n: int, dtype: ScalarDType, shape: Shape, **options: bool
    ) -> VectorNdarray:
        """An array of shape `shape` of vectors of `n` scalars of type `dtype`.

        `options` are those of `ti.ndarray`. Raises ArgumentError.
        """
        return Factories.vector_ndarray(n, dtype, shape, **options)

    @staticmethod
    def tensor(  # type: ignore[override]
        n: int, dtype: ScalarDType, shape: Shape, **options: Unpack[hints.TensorOptions]
    ) -> Storage:
        """A field or ndarray of shape `shape` of vectors of `n` scalars of type `dtype`.

        `options` are those of `ti.tensor`. Raises ArgumentError.
        """
        return Factories.vector_tensor(n, dtype, shape, **options)


class Differences(Matrix):
    """Boolean result of `v != w`: true if any component is true.

    Other boolean values are true if all components are.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        return bool(self.entries.any())


class VectorDifferences(Differences, Vector):
    """Differences of vectors; also a Vector."""

    __slots__ = ()


def type_of(entries: Any) -> type[Matrix]:
    return Vector if entries.ndim == 1 else Matrix


def wrap_array(result: Any) -> Any:
    """Return a numpy array as a Vector or Matrix that shares its memory, a numpy scalar as a
    number.

    Scalars become Python numbers, except f32 and f16, which stay numpy scalars. Other values are
    returned as they are. `dt` is set unless the dtype is f64, i64 or bool.
    """
    if isinstance(result, np.ndarray) and result.ndim == 0:
        result = result[()]
    if isinstance(result, np.generic):
        return result if isinstance(result, np.float32 | np.float16) else result.item()
    if not isinstance(result, np.ndarray):
        return result
    made = object.__new__(type_of(result))
    made._entries, made._sum_of = result, COMPUTED
    made.dt = (
        None
        if result.dtype.name in _FREE and result.dtype.isnative
        else scalar_of_dtype(result.dtype)
    )
    return made


def find_summand(f: Callable[..., Any], a: Any, b: Any) -> Hashable | None:
    """Return the place of the recorded element in `a + constant`, `constant + b` or `a - constant`;
    None for other operations and operands."""
    name = getattr(f, "__name__", "")
    pairs = {"add": ((a, b), (b, a)), "subtract": ((a, b),)}.get(name, ())
    for one, other in pairs:
        place = one.place_of_sum() if isinstance(one, Matrix) else None
        if place is not None:
            values = other if isinstance(other, list | tuple) else [other]
            is_constant = all(
                type(v) in (bool, int, float) or (type(v) in (Matrix, Vector) and v._sum_of is None)
                for v in values
            )
            return place if is_constant else None
    return None


def _as_matrix(x: Any) -> Any:
    """Return x, converted to a Matrix if it is a list, tuple or numpy array."""
    return Matrix(x) if isinstance(x, list | tuple) or is_array_of_numpy(x) else x


def matmul(a: Any, b: Any) -> Any:
    """Return `a @ b` for vectors and matrices; the inner product of two vectors.

    Raises KernelShapeError for shapes that do not fit.
    """
    a, b = (x if isinstance(x, Matrix) else _as_matrix(x) for x in (a, b))
    ok = isinstance(a, Matrix) and isinstance(b, Matrix) and a.shape[-1] == b.shape[0]
    if not ok:
        text = f"{linear.shape_text(a)} and {linear.shape_text(b)}"
        raise KernelShapeError(f"cannot multiply these as matrices: {text}")
    return wrap_array(np.asarray(np.matmul(a.entries, b.entries)))


def _operator(f: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Matrix, Any], Any]:
    if reflected:
        return lambda self, other: self._apply(f, other, self)
    return lambda self, other: self._apply(f, self, other)


_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide",
    "floordiv": "floor_divide", "mod": "mod", "pow": "power", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
_COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "eq": "equal",
}  # fmt: skip
for _name, _f in _OPERATORS.items():
    setattr(Matrix, f"__{_name}__", _operator(NumpyFunction(_f), False))
    setattr(Matrix, f"__r{_name}__", _operator(NumpyFunction(_f), True))
for _name, _f in _COMPARISONS.items():
    setattr(Matrix, f"__{_name}__", _operator(NumpyFunction(_f), False))


# --- elements of arrays --------------------------------------------------------------------------

_WIDE = {"f": "f8", "i": "i8", "u": "u8", "b": "?"}


class ElementStore(Protocol):
    """Interface of an array in memory. An index that includes the component accesses a scalar, an
    index without it a numpy array."""

    elem: Any

    def read(self, index: tuple[int, ...]) -> Any: ...

    def write(self, index: tuple[int, ...], value: Any) -> None: ...

    def place_of(self, index: tuple[int, ...]) -> Hashable | None: ...


class _Element(Matrix):
    """A vector or matrix at `index` of `store`, an array: its components refer to device memory.

    Reads of the whole element widen numbers to 64 bits.

        x[i][1] -= 0.5      # make_element(x, (i,))[1] = make_element(x, (i,))[1] - 0.5
    """

    __slots__ = ("_index", "_store")
    _index: tuple[int, ...]
    _store: ElementStore

    def __init__(self, store: ElementStore, index: tuple[int, ...]) -> None:
        self._store, self._index, self.dt, self._sum_of = store, index, None, None

    @property
    def entries(self) -> Any:
        """A copy of the components, read from memory; numbers have 64 bits."""
        values = np.asarray(self._store.read(self._index))
        return values.astype(_WIDE[values.dtype.kind])

    @property
    def shape(self) -> tuple[int, ...]:
        return self._store.elem.shape

    def __getitem__(self, key: Any) -> Any:
        keys = self._key(key)
        if any(isinstance(k, slice) for k in keys):
            return super().__getitem__(key)
        return self._store.read(self._index + self._place(keys))

    def __setitem__(self, key: Any, value: Any) -> None:
        keys = self._key(key)
        if not any(isinstance(k, slice) for k in keys):
            self._store.write(self._index + self._place(keys), value)
            return
        entries = self.entries
        entries[keys] = getattr(value, "entries", value)
        self._store.write(self._index, entries)

    def _place(self, keys: Any) -> tuple[int, ...]:
        return tuple(int(k) % extent for k, extent in zip(keys, self.shape))

    def place_of_sum(self) -> Hashable | None:
        return self._store.place_of(self._index)

    def fill(self, val: Any) -> None:
        """Set every component in memory to val."""
        self._store.write(self._index, np.full(self.shape, val))


class VectorElement(_Element, Vector):
    __slots__ = ()


class MatrixElement(_Element):
    __slots__ = ()


def make_element(store: ElementStore, index: tuple[int, ...]) -> Matrix:
    """Return the vector or matrix of `store` at `index`; its components read and write memory."""
    return (VectorElement if len(store.elem.shape) == 1 else MatrixElement)(store, index)


# --- constructors --------------------------------------------------------------------------------


def _filled(value: int, dt: Any, n: int, m: int | None) -> Any:
    t = scalar_type(dt)
    shape = (n,) if m is None else (n, m)
    return Matrix(np.full(shape, value).tolist(), t)


@python_function
def zero(dt: ScalarDType, n: int, m: int | None = None) -> Any:
    """A vector of `n` zeros, or an `n` by `m` matrix of them, of scalar type `dt`."""
    return _filled(0, dt, n, m)


@python_function
def one(dt: ScalarDType, n: int, m: int | None = None) -> Any:
    """A vector of `n` ones, or an `n` by `m` matrix of them, of scalar type `dt`."""
    return _filled(1, dt, n, m)


@python_function
def identity(dt: ScalarDType, n: int) -> Matrix:
    """The `n` by `n` identity matrix of scalar type `dt`."""
    return Matrix(np.identity(n, int), dt)


@python_function
def diag(dim: int, val: Any) -> Any:
    """The `dim` by `dim` matrix with `val` on its diagonal and zeros elsewhere."""
    return wrap_array(np.identity(dim, int) * val)


@python_function
def unit(n: int, i: int, dt: Any = None) -> Any:
    """The `i`-th unit vector of length `n`, of type `dt` (default: integers).

    Raises ArgumentError if `i` is an int other than 0 to n - 1.
    """
    if isinstance(i, int) and not 0 <= i < n:
        raise ArgumentError(f"Vector.unit({n}, {i}): the index of the 1 must be 0 to {n - 1}")
    return Vector([int(k == i) for k in range(n)], dt)


@python_function
def rows(rows: Iterable[Numbers]) -> Any:
    """The matrix with the given rows (vectors or lists)."""
    return Matrix(list(rows))


@python_function
def cols(cols: Iterable[Numbers]) -> Any:
    """The matrix with the given columns (vectors or lists)."""
    return Matrix(list(cols)).transpose()


@python_function
def pack(values: Any) -> Any:
    """A vector from a list of numbers, or a matrix from a list of rows, of their common type."""
    return Matrix(values)


for _maker in (zero, one, identity, diag, unit, rows, cols):
    setattr(Matrix, _maker.__name__, _maker)
open_names(globals())
