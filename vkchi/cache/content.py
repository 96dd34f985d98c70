"""Disk cache of shaders: of a Func, and of a Func for arrays of known shapes.

- `get_or_build`: keyed on the IR text, options and device capabilities.
- `find_specialized`, `build_specialized`: keyed on the kernel's entry, the derived Func and the
  shapes. Reading an entry does not load the IR.

Keys also contain the compiler's version. They contain no source spans: code does not depend on
them. A stored check refers to an op of the Func by its number. Reading replaces the number by the
span of that op in the current Func.

    artifact = find_specialized(home, what, {"x": (640, 480)})
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vkchi.cache.codec import Malformed, decode, encode
from vkchi.cache.compiled import CacheLocation
from vkchi.cache.store import CacheStore, digest
from vkchi.cache.version import is_changed
from vkchi.interrupts.local import local
from vkchi.span import Span
from vkchi.target.artifact import Artifact
from vkchi.target.caps import Caps
from vkchi.target.options import IN_CODE, Options
from vkchi.target.shader import Check

if TYPE_CHECKING:
    from vkchi.ir.core import Func, Op

Make = Callable[["Func", Options, Caps], Artifact]
Shapes = Mapping[str, tuple[int, ...]]


def get_or_build(fn: Func, options: Options, caps: Caps, shelf: CacheStore, make: Make) -> Artifact:
    """Return the artifact of `fn`, from the cache or from `make`. Raises the errors of `make`.

    An artifact from `make` is stored, unless it cannot be encoded or the compiler's sources have
    changed.
    """
    from vkchi.ir.text import print_func

    parts = {
        "kind": "shaders",
        "compiler": shelf.version,
        "ir": digest([print_func(fn).encode()]),
        **setting_parts(options, caps),
    }
    key = digest(f"{name}={value}".encode() for name, value in parts.items())
    found = shelf.get(key)
    if found is not None:
        try:
            return numbers_to_spans(decode(found[1], "Artifact"), fn)
        except (Malformed, IndexError) as e:
            remove_unreadable(shelf, key, e)
    begin = time.perf_counter()
    made = make(fn, options, caps)
    _store(shelf, key, fn, spans_to_numbers(made, fn), parts, time.perf_counter() - begin)
    return made


def setting_parts(options: Options, caps: Caps) -> dict[str, str]:
    """Return the options and capabilities that code depends on, as parts of a key."""
    return {
        **{f"option {name}": repr(getattr(options, name)) for name in IN_CODE},
        **{f"device {name}": repr(value) for name, value in caps._asdict().items()},
    }


def remove_unreadable(shelf: CacheStore, key: str, fault: Exception) -> None:
    """Remove an entry that cannot be decoded, with a warning."""
    shelf.warn(f"the entry {key[:12]} cannot be read ({fault}): it is made anew")
    shelf.remove(key)


def _store(
    shelf: CacheStore, key: str, fn: Func, made: Artifact, parts: dict[str, str], seconds: float
) -> None:
    """Store an artifact with its IR, unless it cannot be encoded or the compiler's sources have
    changed."""
    from vkchi.ir.text import ir_text

    try:
        body = encode(made._replace(ir=ir_text(fn)), "Artifact")
    except local(TypeError, ValueError):
        return
    if not is_changed():
        place = fn.span.place if fn.span is not None else ""
        signature = ", ".join(f"{p.name}: {p.type}" for p in fn.params)
        about = {"kind": "shaders", "name": fn.name, "place": place, "signature": signature}
        shelf.put(key, {**about, **header_of(made, parts, seconds, shelf)}, body)


def header_of(
    made: Artifact, parts: dict[str, str], seconds: float, shelf: CacheStore
) -> dict[str, Any]:
    """Return the fields of an entry's header that do not depend on its kind."""
    return {
        "dispatches": len(made.dispatches),
        "spirv_bytes": sum(len(d.shader.words) for d in made.dispatches),
        "seconds": round(seconds, 4),
        "device": shelf.device,
        "version": shelf.version,
        "parts": parts,
    }


# --- known shapes --------------------------------------------------------------------------------


def find_specialized(home: CacheLocation | None, what: str, shapes: Shapes) -> Artifact | None:
    """Return the cached code for arrays of these shapes, or None.

    `what` names the Func among those derived from the kernel; "" is the kernel itself. An
    unreadable entry is removed, with a warning.
    """
    if home is None:
        return None
    key = key_of(home, what, shapes)
    entry = home.shelf.get(key)
    if entry is None:
        return None
    try:
        found: Artifact = decode(entry[1], "Artifact")
    except Malformed as e:
        remove_unreadable(home.shelf, key, e)
        return None
    return found


def build_specialized(
    home: CacheLocation | None,
    what: str,
    shapes: Shapes,
    fn: Func,
    build: Callable[[Func], Artifact],
) -> Artifact:
    """Return `build(fn)`, and store it in the disk cache under `what` and these shapes. Raises the
    errors of `build`.

    It is not stored if `home` is None, it cannot be encoded, or the compiler's sources have
    changed.
    """
    begin = time.perf_counter()
    made = build(fn)
    seconds = time.perf_counter() - begin
    if home is not None:
        parts = {**home.header["parts"], "kind": "shaders", **parts_of(home, what, shapes)}
        bare = made._replace(limits=())  # the kernel's own launches check them
        _store(home.shelf, key_of(home, what, shapes), fn, bare, parts, seconds)
    return made


def parts_of(home: CacheLocation, what: str, shapes: Shapes) -> dict[str, str]:
    extents = {f"extents of {name}": repr(shape) for name, shape in shapes.items()}
    return {"kernel": home.key, "form": what, **extents}


def key_of(home: CacheLocation, what: str, shapes: Shapes) -> str:
    parts = parts_of(home, what, shapes)
    return digest([b"shaped", *(f"{k}={v}".encode() for k, v in parts.items())])


# --- spans ---------------------------------------------------------------------------------------


def spans_to_numbers(made: Artifact, fn: Func) -> Artifact:
    """Return a copy of an artifact whose checks refer to ops of `fn` by number.

    The number of the first op with the check's span becomes the line of a span without a file.
    Checks whose span no op has get None.
    """
    if not made.limits:
        return made
    from vkchi.ir.core import walk

    numbers = {op.span: k for k, op in reversed(list(enumerate(walk(fn.body))))}
    return made._replace(limits=tuple(c._replace(span=_anchor(c, numbers)) for c in made.limits))


def _anchor(check: Check, numbers: dict[Span | None, int]) -> Span | None:
    number = numbers.get(check.span)
    return None if number is None else Span("", number, 0, 0, 0)


def numbers_to_spans(made: Artifact, fn: Func) -> Artifact:
    """Return a copy of an artifact whose checks have the spans of the ops that they number. Raises
    IndexError."""
    if not made.limits:
        return made
    from vkchi.ir.core import walk

    ops: list[Op] = list(walk(fn.body))
    spans = [ops[c.span.line].span if c.span else None for c in made.limits]
    return made._replace(limits=tuple(c._replace(span=s) for c, s in zip(made.limits, spans)))
