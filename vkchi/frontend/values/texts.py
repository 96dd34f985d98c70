"""Strings that contain kernel values: f-strings, `str.format`, `%`, and the output of `print`.

A `RuntimeString` is a compile-time value: strings, and values that are inserted after the kernel
has run.

    >>> RuntimeString(("x = ", ReplacementField(v, ".2f"))).parts[1].spec
    '.2f'
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from vkchi.errors import KernelSyntaxError, KernelTypeError
from vkchi.frontend.state.reachable_values import record_reachable
from vkchi.frontend.state.user_code_errors import foreign_traceback
from vkchi.frontend.values.kinds import (
    Kind,
    all_but,
    check_supported,
    describe,
    is_static,
    kind_of,
    name_of,
)
from vkchi.frontend.values.references import Context
from vkchi.frontend.values.trees import records_in
from vkchi.interrupts.local import local
from vkchi.ir.core import Value
from vkchi.reports.sites import decimals_of, format_number, format_sample
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, scalar_of
from vkchi.types.lazy_numpy import np


class ReplacementField(NamedTuple):
    """A kernel value in a text, with a format spec of Python or C, or none."""

    value: Value
    spec: str = ""


Part = str | ReplacementField
# Patterns, compiled at the first use.
_SPEC = r"(?P<head>(?:.?[<>=^])?[-+ ]?z?#?0?\d*[,_]?)(?P<decimals>(?:\.\d+)?)(?P<letter>[a-zA-Z%]?)"
_DECIMAL = "eEfFgG%"  # format letters with a number of decimals
_CONVERSIONS: dict[str, Callable[[Any], str]] = {"r": repr, "s": str, "a": ascii}


class RuntimeString:
    """A string whose values are known after the kernel has run."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)

    def __str__(self) -> str:
        """Return the compile-time form, with each kernel value shown as its type."""
        return "".join(
            p if isinstance(p, str) else f"<{describe(p.value.type)}>" for p in self.parts
        )


class TextKind(Kind, of=[RuntimeString]):
    is_deferred = True
    noun = "a string with kernel values"
    helps = all_but(
        "print",
        "number",
        help="only print it",
        compare="compare the values, not their text: n == 3",
    )

    def string_parts(self, x: Any) -> list[Part]:
        return list(x.parts)

    def shown(self, cx: Any, x: Any) -> list[Part]:
        return list(x.parts)

    def binary(self, cx: Any, op: str, x: Any, y: Any, *, is_reflected: bool) -> Any:
        parts = kind_of(y).string_parts(y)
        if op != "+" or parts is None:
            return NotImplemented
        return RuntimeString([*parts, *x.parts] if is_reflected else [*x.parts, *parts])


class StringKind(Kind, of=[str]):
    def constant_name(self, x: Any) -> str:
        return repr(x)

    def binary(self, cx: Any, op: str, x: Any, y: Any, *, is_reflected: bool) -> Any:
        return NotImplemented if op != "%" or is_reflected else percent_text(cx, x, y)

    def contains(self, cx: Any, x: Any, y: Any) -> Any:
        if not isinstance(y, str):
            raise cx.fail(
                f"a string is searched for a string, not for {name_of(y)}", help="str(x) in y"
            )
        return super().contains(cx, x, y)

    def string_parts(self, x: Any) -> list[Part]:
        return [x]

    def method(self, cx: Any, x: Any, name: str, n: ast.Call) -> Any:
        if name != "format":
            return NotImplemented
        return format_text(cx, x, *cx.tables.arguments(cx, n))


def joined(parts: Sequence[Part]) -> str | RuntimeString:
    """Return the parts as one string if they contain no kernel value, else as a RuntimeString."""
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)  # type: ignore[arg-type]
    return RuntimeString(parts)


# --- values as text ------------------------------------------------------------------------------


def print_parts(cx: Context, x: Any, arg: int | None = None) -> list[Part]:
    """Return the parts of x's text as `print` shows it: lists, tuples and Python's vectors in
    brackets.

    Raises KernelTypeError for kinds without output, such as arrays, at the call's argument `arg` if
    given.
    """
    x = kind_of(x).load(cx, x)
    return check_supported(cx, x, "print", arg).shown(cx, x)


def as_stored(cx: Context, x: float) -> float:
    """Round a Python float to default_fp, as the kernel's literal."""
    with np.errstate(over="ignore"):
        return float(cx.options.default_fp.dtype.type(x))


def format_parts(cx: Context, x: Any, spec: str = "", conversion: str = "") -> list[Part]:
    """Return the parts of x's text, formatted as in an f-string or `format`.

    Raises KernelTypeError where the format does not fit.
    """
    x = kind_of(x).load(cx, x)
    check_supported(cx, x, "print")
    if isinstance(x, Value):
        return [ReplacementField(x, spec_for(cx, x, spec))]
    if not is_static(x) or any(True for _ in records_in(x)):
        if spec:
            raise cx.fail(
                f"the format {spec!r} is for a number, a vector or a matrix", kind=KernelTypeError
            )
        return print_parts(cx, x)
    if type(x) is float and spec and not conversion:
        x, spec = as_stored(cx, x), completed(spec, cx.options.default_fp)
    record_reachable(cx.dependencies, format, (x,))
    try:
        shown_as = format_number if isinstance(x, int | float) and not conversion else format
        return [shown_as(_CONVERSIONS[conversion](x) if conversion else x, spec)]
    except local(TypeError, ValueError) as e:
        if foreign_traceback(e):
            raise
        raise cx.fail(f"{name_of(x)} cannot be formatted: {e}", kind=KernelTypeError) from None


def spec_for(cx: Context, v: Value, spec: str) -> str:
    """Return `spec` with the defaults of v's type (`completed`).

    As in Taichi, a float without a letter uses `f`, with the decimals of `print`. Raises
    KernelTypeError if the format does not fit the type.
    """
    t = v.type
    if not isinstance(t, Scalar | Tensor):
        raise cx.fail("this cannot be shown in a text", kind=KernelTypeError, label=str(t))
    elem = scalar_of(t)
    spec = completed(spec, elem)
    try:
        format_number(format_sample(elem), spec)
    except local(ValueError):
        raise cx.fail(
            f"the format {spec!r} does not fit", kind=KernelTypeError, label=describe(t)
        ) from None
    return spec


def completed(spec: str, elem: Scalar) -> str:
    """Return a format spec with the defaults for a type; "" stays empty.

    For floats, the letter is `f`, and letters with decimals get those of `print`. For unsigned
    integers, a final `u` becomes `d`.
    """
    found = re.fullmatch(_SPEC, spec)
    if found is not None and spec and elem.kind == "f":
        letter = found["letter"] or "f"
        decimals = found["decimals"] or (f".{decimals_of(elem)}" if letter in _DECIMAL else "")
        return f"{found['head']}{decimals}{letter}"
    return re.sub("u$", "d", spec) if elem.kind == "u" else spec


# --- str.format and % ----------------------------------------------------------------------------


def format_text(
    cx: Context,
    text: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    numbers: Iterator[int] | None = None,
) -> str | RuntimeString:
    """Evaluate `text.format(*args, **kwargs)`.

    `numbers` counts the fields without a name, including those in nested formats. Raises
    KernelSyntaxError for fields without a value, and for formats that are not constant.
    """
    import string  # few kernels format strings

    parts: list[Part] = []
    numbers = count() if numbers is None else numbers
    try:
        fields = list(string.Formatter().parse(text))
    except local(ValueError) as e:
        raise cx.fail(f"`format`: {e}", kind=KernelSyntaxError) from None
    for literal, field, spec, conversion in fields:
        parts.append(literal)
        if field is None:
            continue
        key: int | str = int(field) if field.isdecimal() else (field or next(numbers))
        found: Any = kwargs if isinstance(key, str) else args
        try:
            x = found[key]
        except (KeyError, IndexError):
            raise cx.fail(
                f"`format` has no value for {{{field}}}", kind=KernelSyntaxError
            ) from None
        inner = format_text(cx, spec or "", args, kwargs, numbers)
        if not isinstance(inner, str):
            raise cx.fail("a format must be a compile-time constant", kind=KernelSyntaxError)
        parts += format_parts(cx, x, inner, conversion or "")
    return joined(parts)


_PERCENT = r"%(?P<flags>[-+ #0]*)(?P<width>\d*)(?P<dot>\.\d+)?(?P<type>[a-zA-Z%])"
_LETTERS = {"i": "d", "u": "d", "s": "", "r": ""}


def percent_text(cx: Context, text: str, right: Any) -> str | RuntimeString:
    """Evaluate `text % right`. Raises KernelSyntaxError if formats and values differ in number."""
    values = list(right) if isinstance(right, tuple) else [right]
    parts: list[Part] = []
    at, used = 0, 0
    for found in re.finditer(_PERCENT, text):
        parts.append(text[at : found.start()])
        at = found.end()
        if found["type"] == "%":
            parts.append("%")
            continue
        if used < len(values):
            parts += format_parts(cx, values[used], spec_of(found))
        used += 1
    parts.append(text[at:])
    if used != len(values):
        given = "1 value" if len(values) == 1 else f"{len(values)} values"
        raise cx.fail(f"the text has {used} formats, and gets {given}", kind=KernelSyntaxError)
    return joined(parts)


def spec_of(found: re.Match[str]) -> str:
    """Convert a format of `%` to one of `format`."""
    flags, letter = found["flags"], _LETTERS.get(found["type"], found["type"])
    align = "<" if "-" in flags else "" if "0" in flags else ">"
    sign = "+" if "+" in flags else " " if " " in flags else ""
    zero = "0" if "0" in flags and "-" not in flags and found["width"] else ""
    if not found["width"]:
        align = ""
    form = "#" if "#" in flags else ""
    return f"{align}{sign}{form}{zero}{found['width']}{found['dot'] or ''}{letter}"
