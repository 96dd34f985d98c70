"""Disk cache of shape-specialized code, keyed on the kernel's entry, the derived Func and the
shapes.

Reading an entry does not load the IR.

    artifact = find_specialized(home, what, {"x": (640, 480)})
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from vkchi.cache.codec import Malformed, decode, encode
from vkchi.cache.compiled import CacheLocation
from vkchi.cache.store import digest
from vkchi.cache.version import is_changed
from vkchi.interrupts.local import local
from vkchi.target.artifact import Artifact

if TYPE_CHECKING:
    from vkchi.ir.core import Func

Shapes = Mapping[str, tuple[int, ...]]


def find_specialized(home: CacheLocation | None, what: str, shapes: Shapes) -> Artifact | None:
    """Return the cached code for arrays of these shapes, or None.

    `what` names the Func among those derived from the kernel; "" is the kernel itself. An
    unreadable entry is removed, with a warning.
    """
    entry = None if home is None else home.shelf.get(key_of(home, what, shapes))
    if home is None or entry is None:
        return None
    try:
        found: Artifact = decode(entry[1], "Artifact")
    except Malformed as e:
        key = key_of(home, what, shapes)
        home.shelf.warn(f"the entry {key[:12]} cannot be read ({e}): it is made anew")
        home.shelf.remove(key)
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
    if home is None or is_changed():
        return made
    from vkchi.cache.content import header_of  # lazy: not needed on cache hits
    from vkchi.ir.text import ir_text

    parts = {**home.header["parts"], "kind": "shaders", **parts_of(home, what, shapes)}
    bare = made._replace(limits=())  # the kernel's own launches check them
    try:
        body = encode(bare._replace(ir=ir_text(fn)), "Artifact")
    except local(TypeError, ValueError):  # cannot be encoded
        return made
    header = header_of(fn, made, parts, seconds, home.shelf)
    home.shelf.put(key_of(home, what, shapes), header, body)
    return made


def parts_of(home: CacheLocation, what: str, shapes: Shapes) -> dict[str, str]:
    extents = {f"extents of {name}": repr(shape) for name, shape in shapes.items()}
    return {"kernel": home.key, "form": what, **extents}


def key_of(home: CacheLocation, what: str, shapes: Shapes) -> str:
    parts = parts_of(home, what, shapes)
    return digest([b"shaped", *(f"{k}={v}".encode() for k, v in parts.items())])
