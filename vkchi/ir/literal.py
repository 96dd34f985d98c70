"""Types, constants, names and attributes as text, and back, exactly.

Owns: the form of everything inside one line of IR text. Must not know: ops, lines, files.
Every reader raises ValueError with a sentence if the text is not such a thing.

    >>> number_text(0x80000000, f32), number_bits("1.5", f32) == bits_of(1.5, f32)
    ('-0.0', True)
    >>> type_named("array<f32<3>[?]>")
    array<f32<3>[?]>
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from math import prod
from typing import Any

from vkchi.ir.core import bits_of, value_of
from vkchi.types import SCALARS, Array, Layout, Ptr, Scalar, Tensor, Type, scalar_named
from vkchi.types.layout import KINDS
from vkchi.types.lazy_numpy import np

_NUMBER = r"[iuf]\d+(?:<\d+(?:x\d+)*>)?"
TYPE = re.compile(
    rf"array<(?P<elem>{_NUMBER})\[(?P<dims>[?\d,]*)\](?: as (?P<stored>\w+))?"
    r"(?: (?P<space>\w+))?"
    r"(?: @(?P<kind>\w*)\((?P<layout>[^)]*)\))?>"
    rf"|ptr<(?P<to>{_NUMBER}) (?P<where>\w+)>|(?P<number>{_NUMBER})"
)
LITERAL = re.compile(r"[-+.\w]+")
_PLAIN_NAME = re.compile(r"[\w.]+")
NAME = re.compile(r'[\w.]+|"(?:[^"\\]|\\.)*"')
_WORD = re.compile(r"[A-Za-z_][\w.]*")
_RESERVED = {"None": None, "true": True, "false": False}
TENSOR_LIMIT = 1 << 20  # far above what a driver compiles
_CANONICAL_NAN = {16: 0x7E00, 32: 0x7FC00000, 64: 0x7FF8000000000000}


# --- constants -------------------------------------------------------------------------------


def number_text(bits: int, t: Scalar) -> str:
    """The shortest text that reads back as these bits: decimal, or a hexadecimal bit pattern for a
    NaN with a payload and for bits that are too wide for t."""
    if not 0 <= bits < 1 << t.bits:
        return f"{bits:#x}"
    if t.kind == "b":
        return "true" if bits else "false"
    if t.kind != "f":
        return str(value_of(bits, t))
    if bits == _CANONICAL_NAN[t.bits]:
        return "nan"
    text = str(value_of(bits, t))
    return f"{bits:#x}" if "nan" in text or bits_of(t.dtype.type(text), t) != bits else text


def number_bits(text: str, t: Scalar) -> int:
    """The bit pattern of a number as `number_text` writes it; hexadecimal is taken as it stands."""
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
        return _CANONICAL_NAN[t.bits]
    with np.errstate(all="ignore"):
        return bits_of(t.dtype.type(text), t)


def constant_text(attr: Any, t: Type | None) -> str:
    """A `const` attr as text: a number, or a list of them for a tensor."""
    if isinstance(t, Tensor) and isinstance(attr, tuple):
        return f"[{', '.join(number_text(bits, t.elem) for bits in attr)}]"
    return number_text(attr, t) if isinstance(t, Scalar) and isinstance(attr, int) else str(attr)


# --- types -----------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def type_named(text: str) -> Type:
    """The type whose repr is `text`."""
    found = TYPE.fullmatch(text)
    if found is None:
        raise ValueError(f"`{text}` is not a type")
    if found["number"]:
        return _number(found["number"])
    if found["to"]:
        return Ptr.of(_number(found["to"]), found["where"])
    dims, dynamic = found["dims"], "?" in found["dims"]
    if dynamic and dims.strip("?"):
        raise ValueError(f"`[{dims}]`: extents are all known or all `?`")
    shape = None if dynamic else tuple(int(d) for d in dims.split(",") if d)
    ndim = len(dims) if shape is None else len(shape)
    layout = None if found["layout"] is None else _layout(found["kind"], found["layout"], ndim)
    stored = scalar_named(found["stored"]) if found["stored"] in SCALARS else None
    space = found["space"] or "global"
    return Array.of(_number(found["elem"]), ndim, shape, layout, space, stored)


def _number(text: str) -> Scalar | Tensor:
    name, _, dims = text.rstrip(">").partition("<")
    if name not in SCALARS:
        raise ValueError(f"`{name}` is not a type")
    shape = tuple(int(d) for d in dims.split("x") if d)
    if len(shape) > 2 or prod(shape) > TENSOR_LIMIT:
        raise ValueError(f"`{text}` is no vector or matrix of at most {TENSOR_LIMIT} numbers")
    return Tensor.of(SCALARS[name], shape) if shape else SCALARS[name]


def _layout(kind: str, text: str, ndim: int) -> Layout:
    try:
        return KINDS[kind](text, ndim)
    except (KeyError, ValueError):
        raise ValueError(f"`@{kind}({text})` is not a layout") from None


# --- names and attributes --------------------------------------------------------------------


def name_text(name: str) -> str:
    """A name as it stands after `%` or `@`; quoted if it is more than letters, digits and dots."""
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)


def name_of(text: str) -> str:
    """The inverse of `name_text`."""
    return str(json.loads(text)) if text.startswith('"') else text


def attr_text(attr: Any) -> str:
    """An attribute as it stands in brackets: a number, word, string, or a tuple of such."""
    if isinstance(attr, str):
        plain = _WORD.fullmatch(attr) and attr not in _RESERVED
        return attr if plain else json.dumps(attr)
    if isinstance(attr, tuple):
        return f"({', '.join(map(attr_text, attr))})"
    if attr is None or isinstance(attr, bool):
        return {None: "None", True: "true", False: "false"}[attr]
    if isinstance(attr, int):
        return str(attr)
    raise ValueError(f"the attribute {attr!r} has no text form")


def attr_of(text: str) -> Any:
    """The inverse of `attr_text`."""
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
