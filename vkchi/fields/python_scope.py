"""Errors for operators, functions and attributes that kernels apply to elements, not Python to
arrays.

Each error names the code to write. For `x + a` with an array x on the left, the operator of the
class of `a` is tried first: for a numpy array, the result is numpy's sum.

    x + 1       # ArgumentError: ... help: write x.to_numpy() + ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from vkchi.compat.foreign_names import MEMBERS, help_for_name
from vkchi.errors import ArgumentError, MissingNameError, NotIterableError

# Special method -> (symbol, reflected method).
BINARY = {
    "add": ("+", "radd"), "sub": ("-", "rsub"), "mul": ("*", "rmul"), "truediv": ("/", "rtruediv"),
    "floordiv": ("//", "rfloordiv"), "mod": ("%", "rmod"), "pow": ("**", "rpow"),
    "matmul": ("@", "rmatmul"), "and": ("&", "rand"), "or": ("|", "ror"), "xor": ("^", "rxor"),
    "lshift": ("<<", "rlshift"), "rshift": (">>", "rrshift"),
    "lt": ("<", "gt"), "le": ("<=", "ge"), "gt": (">", "lt"), "ge": (">=", "le"),
}  # fmt: skip
COMPARISONS = ("lt", "le", "gt", "ge")
UNARY = {"neg": "-", "pos": "+", "invert": "~", "abs": "abs", "float": "float", "int": "int"}
PER_ELEMENT = ("float", "int")


def unsupported_operator(symbol: str, instead: str) -> ArgumentError:
    """The error for an operator on a whole array."""
    return ArgumentError(
        f"fields and ndarrays have no `{symbol}` in Python: kernels compute on their elements\n"
        f"help: write {instead}, or a loop in a kernel: for i in x"
    )


def binary(name: str, symbol: str, reflected: str, *, is_forward: bool) -> Callable[..., Any]:
    """A method for a binary operator that raises ArgumentError. `is_forward`: the array is the left
    operand. Then the method first tries the reflected method of the other operand's class."""
    if symbol.endswith("=") and symbol not in ("<=", ">="):
        example = f"x.from_numpy(x.to_numpy() {symbol[:-1]} ...)"
    else:
        example = f"x.to_numpy() {symbol} ..." if is_forward else f"... {symbol} x.to_numpy()"

    def method(self: Any, other: Any, *modulus: Any) -> Any:
        theirs = getattr(type(other), f"__{reflected}__", None)
        if is_forward and theirs is not None and not isinstance(other, PythonScope):
            found = theirs(other, self)
            if found is not NotImplemented:
                return found
        raise unsupported_operator(symbol, example)

    method.__name__ = method.__qualname__ = name
    return method


def unary(name: str, symbol: str) -> Callable[[Any], Any]:
    """A method, for a unary operator or a function of Python, that raises ArgumentError."""

    def method(self: Any) -> Any:
        if name in PER_ELEMENT:
            element = f"x[{', '.join('ijkl'[: len(self.shape)]) or 'None'}]"
            raise ArgumentError(
                f"`{symbol}` takes one element, not a field or ndarray\n"
                f"help: write {symbol}({element})"
            )
        spelt = f"{symbol}(x.to_numpy())" if symbol.isalpha() else f"{symbol}x.to_numpy()"
        raise unsupported_operator(symbol, spelt)

    method.__name__ = method.__qualname__ = f"__{name}__"
    return method


class MissingMember:
    """Class attribute whose access raises MissingNameError, with the code to write instead.

    `hasattr` returns False. A `__getattr__` would slow down every access of an attribute.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, obj: object, owner: type) -> Any:
        raise missing_member(owner, self.name)


def missing_member(owner: type, name: str, known: Iterable[str] = ()) -> MissingNameError:
    """The error for a missing attribute `name` of an array. `known` are names to suggest."""
    sentence = f"{owner.__name__!r} object has no attribute {name!r}"
    return MissingNameError(sentence, name, lambda: help_for_name(name, known, MEMBERS))


class PythonScope:
    """Base of arrays: operators and functions of Python on a whole array raise ArgumentError.
    `bool` is True."""

    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """Number of axes. For fields of vectors and matrices: that of an element, as in Taichi."""
        return len(self.shape)

    def __iter__(self) -> Any:
        raise NotIterableError(
            "an array is not iterated in Python: use to_numpy(), or loop in a kernel"
        )

    @property
    def size(self) -> int:
        """Number of elements. A vector, matrix or struct is one element."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentError(
                "`len` of a field without axes\nhelp: write x[None], its one element"
            )
        return self.shape[0]

    def __bool__(self) -> bool:
        return True


def add_operators(cls: type) -> None:
    """Set the operators, and attributes that raise for the names in MEMBERS, on a class."""
    made: dict[str, Any] = {}
    for name, (symbol, reflected) in BINARY.items():
        made[f"__{name}__"] = binary(f"__{name}__", symbol, reflected, is_forward=True)
        if name not in COMPARISONS:
            made[f"__{reflected}__"] = binary(f"__{reflected}__", symbol, name, is_forward=False)
            made[f"__i{name}__"] = binary(f"__i{name}__", f"{symbol}=", reflected, is_forward=True)
    made |= {f"__{name}__": unary(name, symbol) for name, symbol in UNARY.items()}
    made |= {name: MissingMember(name) for name in MEMBERS}
    for name, member in made.items():
        setattr(cls, name, member)


add_operators(PythonScope)
