"""Text form of types, constants, names and attributes, and the inverse.

Readers raise ValueError for a malformed string.

    >>> number_text(0x80000000, f32), number_bits("1.5", f32) == bits_of(1.5, f32)
    ('-0.0', True)
    >>> type_named("array<f32<3>[?]>")
    array<f32<3>[?]>
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from math import prod
from typing import Any

from vkchi.interrupts.local import local
from vkchi.ir.core import bits_of, value_of
from vkchi.types import (
    SCALARS,
    Array,
    Layout,
    Ptr,
    Scalar,
    Tensor,
    Type,
    bf16,
    f16,
    f32,
    f64,
    scalar_named,
)  # fmt: skip
from vkchi.types.layout import KINDS
from vkchi.types.lazy_numpy import np

_NUMBER = r"(?:[iuf]|bf)\d+(?:<\d+(?:x\d+)*>)?"
# Token patterns. They are compiled at first use, since reading types needs none of them.
PATTERNS = {
    "TYPE": rf"array<{_NUMBER}\[[?\d,]*\](?: as \w+)?(?: \w+)?(?: @\w*\([^)]*\))?>"
    rf"|ptr<{_NUMBER} \w+>|{_NUMBER}",
    "LITERAL": r"[-+.\w]+",
    "NAME": r'[\w.]+|"(?:[^"\\]|\\.)*"',
    "_PLAIN_NAME": r"[\w.]+",
    "_WORD": r"[A-Za-z_][\w.]*",
}
_RESERVED = {"None": None, "true": True, "false": False}
TENSOR_LIMIT = 1 << 20  # scalars; far more than any driver compiles
_CANONICAL_NAN = {bf16: 0x7FC0, f16: 0x7E00, f32: 0x7FC00000, f64: 0x7FF8000000000000}


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(PATTERNS[name])


def __getattr__(name: str) -> re.Pattern[str]:
    if name not in PATTERNS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _pattern(name)


# --- constants -------------------------------------------------------------------------------


def number_text(bits: int, t: Scalar) -> str:
    """Return the text that `number_bits` reads back as these bits.

    It is decimal, `inf`, `nan` for the canonical NaN, `true` or `false`. Other NaNs, floats whose
    decimal text does not round-trip, and bits that are too wide for `t` are hexadecimal bit
    patterns.
    """
    if not 0 <= bits < 1 << t.bits:
        return f"{bits:#x}"
    if t.kind == "b":
        return "true" if bits else "false"
    if t.kind != "f":
        return str(value_of(bits, t))
    if bits == _CANONICAL_NAN[t]:
        return "nan"
    text = str(value_of(bits, t))
    return f"{bits:#x}" if "nan" in text or bits_of(t.dtype.type(text), t) != bits else text


def number_bits(text: str, t: Scalar) -> int:
    """Return the bit pattern of a number: the inverse of `number_text`.

    A hexadecimal number is taken as a bit pattern, unchecked. Floats are rounded; beyond the range
    they become infinite. Raises ValueError for a malformed number or an integer that does not fit
    `t`.
    """
    if text.startswith("0x"):
        return int(text, 16)
    if t.kind == "b" or text in _RESERVED:
        if t.kind != "b" or text not in ("true", "false"):
            raise ValueError(f"`{text}` is not a {t}")
        return int(text == "true")
    if t.kind == "f":
        return _float_bits(text, t)
    value = int(text)
    if value != int(value_of(bits_of(value, t), t)):
        raise ValueError(f"{value} does not fit {t}")
    return bits_of(value, t)


def _float_bits(text: str, t: Scalar) -> int:
    if text == "nan":
        return _CANONICAL_NAN[t]
    with np.errstate(all="ignore"):
        return bits_of(t.dtype.type(text), t)


def constant_text(attr: Any, t: Type | None) -> str:
    """Return a `const` attr as text: a number, or a list of numbers for a tensor.

    An attr that does not fit the type is printed by `str`.
    """
    if isinstance(t, Tensor) and isinstance(attr, tuple):
        return f"[{', '.join(number_text(bits, t.elem) for bits in attr)}]"
    return number_text(attr, t) if isinstance(t, Scalar) and isinstance(attr, int) else str(attr)


# --- types -----------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def type_named(text: str) -> Type:
    """Return the type whose repr is `text`. Raises ValueError if there is none. Memoized."""
    kind, bracket, inner = text.partition("<")
    if kind in SCALARS or not bracket:
        return _number(text)
    if kind not in ("array", "ptr") or not inner.endswith(">"):
        raise ValueError(f"`{text}` is not a type")
    inner = inner[:-1]
    if kind == "ptr":
        to, _, where = inner.partition(" ")
        _check_word(where, text)
        return Ptr.of(_number(to), where)
    return _array(inner, text)


def _array(inner: str, text: str) -> Array:
    inner, at, placed = inner.partition(" @")
    kind, _, layout_words = placed.partition("(")
    if at and not layout_words.endswith(")"):
        raise ValueError(f"`{text}` is not a type")
    elem, bracket, rest = inner.partition("[")
    dims, end, rest = rest.partition("]")
    if not bracket or not end or dims.strip("?,0123456789"):
        raise ValueError(f"`{text}` is not a type")
    words = rest.split(" ")[1:] if rest else []
    stored = words[1] if words[:1] == ["as"] and len(words) > 1 else ""
    words = words[2:] if stored else words
    if len(words) > 1 or (rest and not rest.startswith(" ")):
        raise ValueError(f"`{text}` is not a type")
    for word in words:
        _check_word(word, text)
    dynamic = "?" in dims
    if dynamic and dims.strip("?"):
        raise ValueError(f"`[{dims}]`: extents are all known or all `?`")
    shape = None if dynamic else tuple(int(d) for d in dims.split(",") if d)
    ndim = len(dims) if shape is None else len(shape)
    layout = _layout(kind, layout_words[:-1], ndim) if at else None
    kept = scalar_named(stored) if stored in SCALARS else None
    return Array.of(_number(elem), ndim, shape, layout, words[0] if words else "global", kept)


def _check_word(word: str, text: str) -> None:
    if not word.isidentifier():
        raise ValueError(f"`{text}` is not a type")


def _number(text: str) -> Scalar | Tensor:
    name, bracket, dims = text.partition("<")
    if name not in SCALARS or (bracket and not dims.endswith(">")):
        raise ValueError(f"`{name}` is not a type")
    dims = dims[:-1]
    shape = tuple(int(d) for d in dims.split("x") if d)
    if len(shape) > 2 or prod(shape) > TENSOR_LIMIT:
        raise ValueError(f"`{text}` is no vector or matrix of at most {TENSOR_LIMIT} numbers")
    return Tensor.of(SCALARS[name], shape) if shape else SCALARS[name]


def _layout(kind: str, text: str, ndim: int) -> Layout:
    try:
        return KINDS[kind](text, ndim)
    except local(KeyError, ValueError):
        raise ValueError(f"`@{kind}({text})` is not a layout") from None


# --- names and attributes --------------------------------------------------------------------


def name_text(name: str) -> str:
    """Return a name as printed after `%` or `@`.

    It is a JSON string if it is empty or contains anything but letters, digits, underscores and
    dots.
    """
    return name if _pattern("_PLAIN_NAME").fullmatch(name) else json.dumps(name)


def name_of(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


def attr_text(attr: Any) -> str:
    """Return an attribute as printed in brackets: None, a bool, an int, a string, or a tuple of
    these.

    Raises ValueError for any other attribute.
    """
    if isinstance(attr, str):
        plain = _pattern("_WORD").fullmatch(attr) and attr not in _RESERVED
        return attr if plain else json.dumps(attr)
    if isinstance(attr, tuple):
        return f"({', '.join(map(attr_text, attr))})"
    if attr is None or isinstance(attr, bool):
        return {None: "None", True: "true", False: "false"}[attr]
    if isinstance(attr, int):
        return str(attr)
    raise ValueError(f"the attribute {attr!r} has no text form")


def attr_of(text: str) -> Any:
    value, rest = _read_attr(text.strip())
    if rest.strip():
        raise ValueError(f"`{text}` is not an attribute")
    return value


def _read_attr(text: str) -> tuple[Any, str]:
    if text.startswith("("):
        items, rest = [], text[1:].lstrip()
        while not rest.startswith(")"):
            item, rest = _read_attr(rest)
            items.append(item)
            rest = rest.lstrip().removeprefix(",").lstrip()
        return tuple(items), rest[1:]
    found = re.match(r'-?\d+|"(?:[^"\\]|\\.)*"|[A-Za-z_][\w.]*', text)
    if found is None:
        raise ValueError(f"`{text}` is not an attribute")
    word, rest = found[0], text[found.end() :]
    if word in _RESERVED:
        return _RESERVED[word], rest
    if word[0] == '"':
        return json.loads(word), rest
    return (int(word) if word.lstrip("-").isdigit() else word), rest
