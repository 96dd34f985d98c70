"""Records of the compiler as JSON and bytes, and back: nothing is run or unpickled.

Owns: the form. A value is a number, text, bytes, None, a type of the IR, a tuple, dict or set of
values, or one of `RECORDS`, by name; whatever else a text holds is refused. Must not know: files.

    >>> decode(encode(artifact)) == artifact
    True
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from vkchi.ir.literal import type_named
from vkchi.reports.sites import Shown, Site
from vkchi.span import Span
from vkchi.target.artifact import Artifact, Dispatch, Interface, IrText
from vkchi.target.shader import Check, Grid, GridAxis, Shader, Slot
from vkchi.types import Array, Ptr, Scalar, Tensor

CLASSES = (
    Artifact, Check, Dispatch, Grid, GridAxis, Interface, IrText, Shader, Shown, Site, Slot, Span,
)  # fmt: skip
RECORDS: dict[str, Callable[..., Any]] = {cls.__name__: cls for cls in CLASSES}


def add_records(*classes: Callable[..., Any]) -> None:
    """Let values be such records too."""
    RECORDS.update((cls.__name__, cls) for cls in classes)


PLAIN = (bool, int, float, str, type(None))
HEAD = struct.Struct("<I")


class Malformed(ValueError):
    """A text that no `encode` has written."""


def encode(value: Any) -> bytes:
    """The value as bytes. Raises TypeError for what has no form."""
    blobs: list[bytes] = []
    tree = json.dumps(to_tree(value, blobs), separators=(",", ":")).encode()
    sizes = json.dumps([len(blob) for blob in blobs]).encode()
    return b"".join([HEAD.pack(len(tree)), HEAD.pack(len(sizes)), tree, sizes, *blobs])


def decode(data: bytes) -> Any:
    """The value that was encoded. Raises Malformed."""
    try:
        (size,), (count,) = HEAD.unpack_from(data), HEAD.unpack_from(data, HEAD.size)
        at = 2 * HEAD.size
        tree, sizes = json.loads(data[at : at + size]), json.loads(data[at + size :][:count])
        at += size + count
        blobs = []
        for length in sizes:
            blobs.append(data[at : at + length])
            at += length
        if at != len(data) or any(length < 0 for length in sizes):
            raise Malformed(f"{len(data)} bytes, and not {at}")
        return from_tree(tree, blobs)
    except (ValueError, TypeError, KeyError, IndexError, struct.error, RecursionError) as e:
        raise Malformed(f"{type(e).__name__}: {e}") from None


def to_tree(value: Any, blobs: list[bytes]) -> Any:
    """The value as what JSON can hold; its bytes are appended to `blobs`. Raises TypeError."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, bytes):
        blobs.append(value)
        return {"bytes": len(blobs) - 1}
    if isinstance(value, Scalar | Tensor | Array | Ptr):
        return {"type": repr(value)}
    if RECORDS.get(type(value).__name__) is type(value):
        fields = value if isinstance(value, tuple) else vars(value).values()
        return {"record": type(value).__name__, "of": [to_tree(v, blobs) for v in fields]}
    if isinstance(value, tuple | list):
        return [to_tree(v, blobs) for v in value]
    if isinstance(value, frozenset | set):
        return {"set": [to_tree(v, blobs) for v in sorted(value)]}
    if isinstance(value, dict):
        return {"dict": [[to_tree(k, blobs), to_tree(v, blobs)] for k, v in value.items()]}
    raise TypeError(f"{type(value).__name__} has no form in the cache")


def from_tree(tree: Any, blobs: list[bytes]) -> Any:
    """The value of a tree. Raises ValueError, TypeError, KeyError, IndexError for others."""
    if isinstance(tree, PLAIN):
        return tree
    if isinstance(tree, list):
        return tuple([from_tree(v, blobs) for v in tree])
    (kind, rest), *others = tree.items()
    if kind == "bytes":
        return blobs[rest]
    if kind == "type":
        return type_named(rest)
    if kind == "set":
        return frozenset(from_tree(v, blobs) for v in rest)
    if kind == "dict":
        return {from_tree(k, blobs): from_tree(v, blobs) for k, v in rest}
    if kind != "record" or len(others) != 1:
        raise Malformed(f"nothing is called {kind!r}")
    made = RECORDS[rest](*[from_tree(v, blobs) for v in tree["of"]])
    if isinstance(made, Check):
        from vkchi.cache.plain import is_plain_test  # few kernels have checks

        if not is_plain_test(made.test):
            raise Malformed(f"`{made.test}` is no check")
    return made
