"""Content-addressed cache of `build_artifact`: IR text, options and device capabilities to an
artifact.

The key also contains the compiler's version. It contains no source spans: code does not depend on
them. A stored check refers to an op of the Func by its number. Reading replaces the number by the
span of that op in the current Func.
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
from vkchi.target.options import IN_CODE, CodeStore, Options
from vkchi.target.shader import Check

Make = Callable[[Func, Options, Caps], Artifact]


def get_or_build(fn: Func, options: Options, caps: Caps, shelf: CodeStore, make: Make) -> Artifact:
    """Return the artifact of `fn`, from the cache or from `make`. Raises the errors of `make`.

    An artifact from `make` is stored, unless it cannot be encoded or the compiler's sources have
    changed.
    """
    text = print_func(fn)
    parts = key_parts(text, options, caps, shelf.version)
    key = digest(f"{name}={value}".encode() for name, value in parts.items())
    found = shelf.get(key)
    if found is not None:
        artifact = decode_artifact(found[1], fn, key, shelf)
        if artifact is not None:
            return artifact
    begin = time.perf_counter()
    made = make(fn, options, caps)
    seconds = time.perf_counter() - begin
    try:
        body = encode(spans_to_numbers(made._replace(ir=ir_text(fn)), fn), "Artifact")
    except local(TypeError, ValueError):  # cannot be encoded: not cached
        return made
    if is_changed():
        return made
    shelf.put(key, header_of(fn, made, parts, seconds, shelf), body)
    return made


def key_parts(text: str, options: Options, caps: Caps, version: str) -> dict[str, str]:
    """Return the inputs that code depends on, by name: version, digest of the IR text, options,
    capabilities."""
    return {
        "kind": "shaders",
        "compiler": version,
        "ir": digest([text.encode()]),
        **{f"option {name}": repr(getattr(options, name)) for name in IN_CODE},
        **{f"device {name}": repr(value) for name, value in caps._asdict().items()},
    }


def decode_artifact(body: bytes, fn: Func, key: str, shelf: CodeStore) -> Artifact | None:
    """Decode an entry's artifact. If that fails, warn, remove the entry and return None."""
    try:
        return numbers_to_spans(decode(body, "Artifact"), fn)
    except (Malformed, IndexError) as e:
        shelf.warn(f"the entry {key[:12]} cannot be read ({e}): it is removed and made anew")
        shelf.remove(key)
        return None


def header_of(
    fn: Func, made: Artifact, parts: dict[str, str], seconds: float, shelf: CodeStore
) -> dict[str, Any]:
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


def spans_to_numbers(made: Artifact, fn: Func) -> Artifact:
    """Return a copy of an artifact whose checks refer to ops of `fn` by number.

    The number of the first op with the check's span becomes the line of a span without a file.
    Checks whose span no op has get None.
    """
    if not made.limits:
        return made
    numbers = {op.span: k for k, op in reversed(list(enumerate(walk(fn.body))))}
    return made._replace(limits=tuple(_moved(c, _anchor(c, numbers)) for c in made.limits))


def _anchor(check: Check, numbers: dict[Span | None, int]) -> Span | None:
    number = numbers.get(check.span)
    return None if number is None else Span("", number, 0, 0, 0)


def numbers_to_spans(made: Artifact, fn: Func) -> Artifact:
    """Return a copy of an artifact whose checks have the spans of the ops that they number. Raises
    IndexError."""
    if not made.limits:
        return made
    ops: list[Op] = list(walk(fn.body))
    return made._replace(
        limits=tuple(_moved(c, ops[c.span.line].span if c.span else None) for c in made.limits)
    )


def _moved(check: Check, span: Span | None) -> Check:
    return check._replace(span=span)
