"""Symbolic arguments of graphs: names and types, without values.

Example:

    Arg(ArgKind.SCALAR, "dt", ti.f32), Arg(ArgKind.NDARRAY, "x", dtype=ti.math.vec2, ndim=1)
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.lang.matrix import Matrix
from vkchi.lang.value_keys import value_key
from vkchi.ndarray import Ndarray
from vkchi.signature import (
    ArrayParameter,
    Parameter,
    ScalarParameter,
    TensorParameter,
    is_ndarrays_view,
)
from vkchi.signature.wording import describe_argument
from vkchi.texture import Texture, TextureParameter
from vkchi.types import Scalar, Tensor, cook
from vkchi.types.formats import Format, rw_texture, texel_of
from vkchi.types.lazy_numpy import is_real_scalar, np


class ArgKind(enum.Enum):
    """Kind of a graph argument."""

    SCALAR, NDARRAY, MATRIX, TEXTURE, RWTEXTURE = range(5)


# Required properties of each kind, besides its name.
FACTS = {
    ArgKind.SCALAR: ("dtype",),
    ArgKind.NDARRAY: ("dtype", "ndim"),
    ArgKind.MATRIX: ("dtype",),
    ArgKind.TEXTURE: ("ndim",),
    ArgKind.RWTEXTURE: ("ndim", "fmt"),
}
# Parameters of old Taichi versions, and their replacements.
GONE = {
    "field_dim": "ndim=",
    "element_shape": "a vector or matrix type as dtype=",
    "channel_format": "fmt=",
    "num_channels": "fmt=",
    "shape": "ndim=",
}
ORDER = ("tag", "name", "dtype", "ndim", *GONE)  # order of positional arguments
VECTORS = (Matrix, list, tuple, np.ndarray)


class Arg:
    """An argument of a graph.

    tag: an `ArgKind`. name: the key of its value in `Graph.run`. dtype: the type of a scalar,
    vector or matrix, or of an array's elements. ndim: number of axes of an array or texture. fmt:
    the `ti.Format` of a texture that kernels write. Raises ArgumentError for invalid or missing
    properties, and for those that the kind does not have.
    """

    def __init__(self, *args: Any, **facts: Any) -> None:
        given = {**dict(zip(ORDER, args)), **facts}
        if len(args) > len(ORDER):
            raise ArgumentError(f"ti.graph.Arg takes up to {len(ORDER)} arguments, not {len(args)}")
        self.tag, self.name = given.pop("tag", None), given.pop("name", None)
        if not isinstance(self.tag, ArgKind):
            raise ArgumentError(
                f"tag must be a ti.graph.ArgKind, not {describe_argument(self.tag)}"
            )
        if not isinstance(self.name, str):
            raise ArgumentError(f"name must be a string, not {describe_argument(self.name)}")
        self._check_facts(given)
        self.dtype = cook(given.get("dtype"))
        self.ndim: int = given.get("ndim", 0)
        self.fmt: Format | None = given.get("fmt")
        self._check_types()

    def _check_facts(self, given: dict[str, Any]) -> None:
        allowed = FACTS[self.tag]
        for fact in given:
            if fact not in allowed:
                instead = f"; write {GONE[fact]}" if fact in GONE else ""
                raise self._wrong(f"takes {', '.join(allowed)}, not {fact}{instead}")
        missing = [fact for fact in allowed if fact not in given]
        if missing:
            raise self._wrong(f"needs {', '.join(missing)}")

    def _check_types(self) -> None:
        kind, t = self.tag, self.dtype
        wanted = {ArgKind.SCALAR: Scalar, ArgKind.MATRIX: Tensor, ArgKind.NDARRAY: (Scalar, Tensor)}
        if kind in wanted and not isinstance(t, wanted[kind]):  # type: ignore[arg-type]
            what = {ArgKind.SCALAR: "a scalar type", ArgKind.MATRIX: "a vector or matrix type"}
            raise self._wrong(
                f"has {what.get(kind, 'a type')} as dtype, not {describe_argument(t)}"
            )
        if type(self.ndim) is not int:
            raise self._wrong(f"has a number of axes as ndim, not {describe_argument(self.ndim)}")
        if kind is ArgKind.RWTEXTURE:
            if not isinstance(self.fmt, Format) or self.fmt is Format.unknown:
                raise self._wrong(f"has a ti.Format of colours as fmt, not {self.fmt}")
            texel_of(self.fmt)

    def _wrong(self, why: str) -> ArgumentError:
        return ArgumentError(f"graph argument `{self.name}`: ArgKind.{self.tag.name} {why}")

    def __repr__(self) -> str:
        facts = ", ".join(f"{fact}={getattr(self, fact)}" for fact in FACTS[self.tag])
        return f"Arg(ArgKind.{self.tag.name}, {self.name!r}, {facts})"

    @property
    def is_number(self) -> bool:
        """True if the argument is passed by value, so that no code depends on it."""
        return self.tag in (ArgKind.SCALAR, ArgKind.MATRIX)

    def is_like(self, other: Arg) -> bool:
        """True if both have the same kind, type, number of axes and format."""
        mine, others = ((a.tag, a.dtype, a.ndim, a.fmt) for a in (self, other))
        return mine == others

    # --- kernels -------------------------------------------------------------------------------

    def misfit(self, parameter: Parameter) -> str:
        """Return the reason why a kernel parameter cannot take this argument, or ""."""
        if parameter.kind in ("template", "object", "self"):
            return "a value is needed when kernels are compiled: give it to dispatch()"
        cls, differ = MISFITS[self.tag]
        if not isinstance(parameter, cls):
            return f"it takes no ArgKind.{self.tag.name}"
        return differ(self, parameter)

    # --- values --------------------------------------------------------------------------------

    def unflatten(self, value: Any) -> Any:
        """Return a matrix given as a sequence of its values, row by row, as rows; others as is."""
        if self.tag is not ArgKind.MATRIX or len(self.dtype.shape) == 1:
            return value
        if not isinstance(value, VECTORS) or len(value) != self.dtype.size:
            return value
        return np.reshape(value, self.dtype.shape) if all(map(is_real_scalar, value)) else value

    def read(self, value: Any) -> Any:
        """Return the key of a value: equal for the same array, view or texture, and for numbers of
        equal types and bits. Raises ArgumentError if the value does not fit."""
        if self.tag is ArgKind.SCALAR:
            self._require(is_real_scalar(value), f"a number of {self.dtype}", value)
        elif self.tag is ArgKind.MATRIX:
            self._require(isinstance(value, VECTORS), f"a ti.Vector or ti.Matrix: {self}", value)
        elif self.tag is ArgKind.NDARRAY:
            is_one = isinstance(value, Ndarray) or is_ndarrays_view(value)
            is_one = is_one and value.elem is self.dtype and len(value.shape) == self.ndim
            self._require(is_one, f"a ti.ndarray of {self.dtype} with ndim={self.ndim}", value)
        else:
            is_one = isinstance(value, Texture) and value.num_dims == self.ndim
            text = "a ti.Texture" + (f" of ti.{self.fmt}" if self.fmt else "")
            is_one = is_one and self.fmt in (None, value.fmt)
            self._require(is_one, f"{text} with ndim={self.ndim}", value)
        return value_key(value)

    def _require(self, is_one: bool, wanted: str, value: Any) -> None:
        if not is_one:
            raise ArgumentError(
                f"graph argument `{self.name}`: {wanted} is needed, not {describe_argument(value)}"
            )


def number_mismatch(arg: Arg, p: Any) -> str:
    return "" if p.type is arg.dtype else f"{p.type} is needed, not {arg.dtype}"


def matrix_mismatch(arg: Arg, p: Any) -> str:
    """Return a reason if the shape of a vector or matrix parameter differs, else "". Types are
    converted."""
    return "" if p.type.shape == arg.dtype.shape else f"{p.type} is needed, not {arg.dtype}"


def array_mismatch(arg: Arg, p: Any) -> str:
    try:
        p.check(arg.dtype, arg.ndim)
    except ArgumentError as e:
        return str(e).partition(": ")[2]
    return ""


def texture_mismatch(arg: Arg, p: Any) -> str:
    kind = ArgKind.RWTEXTURE if isinstance(p.note, rw_texture) else ArgKind.TEXTURE
    if kind is not arg.tag:
        return f"ArgKind.{kind.name} is needed"
    if p.note.num_dimensions != arg.ndim:
        return f"ndim={p.note.num_dimensions} is needed, not {arg.ndim}"
    if arg.fmt is not None and p.note.fmt is not arg.fmt:
        return f"ti.{p.note.fmt} is needed, not ti.{arg.fmt}"
    return ""


MISFITS: dict[ArgKind, tuple[type[Parameter], Callable[[Arg, Any], str]]] = {
    ArgKind.SCALAR: (ScalarParameter, number_mismatch),
    ArgKind.MATRIX: (TensorParameter, matrix_mismatch),
    ArgKind.NDARRAY: (ArrayParameter, array_mismatch),
    ArgKind.TEXTURE: (TextureParameter, texture_mismatch),
    ArgKind.RWTEXTURE: (TextureParameter, texture_mismatch),
}
