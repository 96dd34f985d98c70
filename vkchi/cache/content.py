"""The cache around `build`: what was made of the same IR, for the same device, is not made again.

Owns: the key, which is over content alone: the text of the IR, options and capabilities, and the
compiler's version; what an entry says of itself. Must not know: kernels, files.

Spans are no part of the key, for code does not depend on them: checks that an artifact holds keep
the number of an op of the Func instead, and find the span of that op in the Func at hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from vkchi.cache.codec import Malformed, decode, encode
from vkchi.cache.store import digest
from vkchi.cache.version import is_changed
from vkchi.interrupts.local import local
from vkchi.ir.core import Func, Op, walk
from vkchi.ir.text import ir_text, print_func
from vkchi.span import Span
from vkchi.target.artifact import Artifact
from vkchi.target.caps import Caps
from vkchi.target.options import IN_CODE, Options, Shelf
from vkchi.target.shader import Check

Make = Callable[[Func, Options, Caps], Artifact]


def kept(fn: Func, options: Options, caps: Caps, shelf: Shelf, make: Make) -> Artifact:
    """What `make` makes of a Func, or the cache has of the same. Raises what `make` raises."""
    text = print_func(fn)
    parts = key_parts(text, options, caps, shelf.version)
    key = digest(f"{name}={value}".encode() for name, value in parts.items())
    found = shelf.get(key)
    if found is not None:
        artifact = read(found[1], fn, key, shelf)
        if artifact is not None:
            return artifact
    begin = time.perf_counter()
    made = make(fn, options, caps)
    seconds = time.perf_counter() - begin
    try:
        body = encode(anchored(made._replace(ir=ir_text(fn)), fn), "Artifact")
    except local(TypeError, ValueError):  # a part without a form: it is made anew each time
        return made
    if is_changed():
        return made
    shelf.put(key, header_of(fn, made, parts, seconds, shelf), body)
    return made


def key_parts(text: str, options: Options, caps: Caps, version: str) -> dict[str, str]:
    """What code depends on, by name: long texts as their digests."""
    return {
        "kind": "shaders",
        "compiler": version,
        "ir": digest([text.encode()]),
        **{f"option {name}": repr(getattr(options, name)) for name in IN_CODE},
        **{f"device {name}": repr(value) for name, value in caps._asdict().items()},
    }


def read(body: bytes, fn: Func, key: str, shelf: Shelf) -> Artifact | None:
    """The artifact of an entry; None, and the entry is gone, where that is none."""
    try:
        return released(decode(body, "Artifact"), fn)
    except (Malformed, IndexError) as e:
        shelf.warn(f"the entry {key[:12]} cannot be read ({e}): it is removed and made anew")
        shelf.remove(key)
        return None


def header_of(
    fn: Func, made: Artifact, parts: dict[str, str], seconds: float, shelf: Shelf
) -> dict[str, Any]:
    """What is shown of an entry without reading it whole."""
    return {
        "kind": "shaders",
        "name": fn.name,
        "place": fn.span.place if fn.span is not None else "",
        "signature": ", ".join(f"{p.name}: {p.type}" for p in fn.params),
        "dispatches": len(made.dispatches),
        "spirv_bytes": sum(len(d.shader.words) for d in made.dispatches),
        "seconds": round(seconds, 4),
        "device": shelf.device,
        "version": shelf.version,
        "parts": parts,
    }


# --- spans ---------------------------------------------------------------------------------------


def anchored(made: Artifact, fn: Func) -> Artifact:
    """The artifact with numbers of ops in place of spans."""
    if not made.limits:
        return made
    numbers = {op.span: k for k, op in reversed(list(enumerate(walk(fn.body))))}
    return made._replace(limits=tuple(_moved(c, _anchor(c, numbers)) for c in made.limits))


def _anchor(check: Check, numbers: dict[Span | None, int]) -> Span | None:
    number = numbers.get(check.span)
    return None if number is None else Span("", number, 0, 0, 0)


def released(made: Artifact, fn: Func) -> Artifact:
    """The artifact with the spans of this Func's ops. Raises IndexError where it has no such op."""
    if not made.limits:
        return made
    ops: list[Op] = list(walk(fn.body))
    return made._replace(
        limits=tuple(_moved(c, ops[c.span.line].span if c.span else None) for c in made.limits)
    )


def _moved(check: Check, span: Span | None) -> Check:
    return check._replace(span=span)
