"""The cache around lowering: a kernel whose source and surroundings are as before is not lowered.

Owns: the key of a kernel for one signature, what is kept under it, and how what is kept is put to
use in another process: fields by number in the order of `survey`, spans by function and line of
that. Must not know: how kernels are compiled, files.

A kernel that depends on what has no digest has no entry here; its shaders still have (`content`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

from vkchi.cache.codec import Malformed, decode, encode
from vkchi.cache.compiled import Compiled, Home, Places
from vkchi.cache.store import digest
from vkchi.cache.survey import Survey, Unknown, is_ours
from vkchi.cache.version import is_changed
from vkchi.frontend.argspec import ArgSpec
from vkchi.span import PACKAGE, Span
from vkchi.target.artifact import Artifact, Interface, IrText
from vkchi.target.caps import Caps
from vkchi.target.options import IN_CODE, Options, Shelf
from vkchi.tuples import NamedTuple

Make = Callable[[FunctionType, tuple[ArgSpec, ...], Options, Caps], Compiled]
OWN_FILE = "<vkchi>"


class Found(NamedTuple):
    """A kernel's surroundings, and the key that they give."""

    survey: Survey
    key: str
    parts: dict[str, str]


def kept(
    fn: FunctionType, args: tuple[ArgSpec, ...], options: Options, caps: Caps, shelf: Shelf,
    make: Make,
) -> Compiled:  # fmt: skip
    """The kernel, compiled, or as the cache has it. Raises what `make` raises."""
    found = look_around(fn, args, options, caps, shelf.version)
    if found is not None:
        entry = shelf.get(found.key)
        compiled = None if entry is None else read(entry, found, shelf)
        if compiled is not None:
            return compiled
    begin = time.perf_counter()
    made = make(fn, args, options, caps)
    seconds = time.perf_counter() - begin
    if (
        found is not None
        and found.key == key_now(fn, args, options, caps, shelf)
        and not is_changed()
    ):
        try:
            body = write(made, found)
        except (Unknown, TypeError, ValueError):
            return made
        header = header_of(fn, args, made, found.parts)
        told = {"seconds": round(seconds, 4), "device": shelf.device, "version": shelf.version}
        header |= told
        shelf.put(found.key, header, body)
        return made._replace(home=Home(shelf, found.key, header, places_of(found.survey)))
    return made


def look_around(
    fn: FunctionType, args: tuple[ArgSpec, ...], options: Options, caps: Caps, version: str
) -> Found | None:
    """The key of a kernel; None where it depends on what has no digest."""
    try:
        survey = Survey(fn, args)
    except Exception:  # what users' objects raise, where lowering may never look
        return None
    parts = {
        "kind": "kernel",
        "compiler": version,
        **survey.parts,
        "option default_fp": repr(options.default_fp),
        "option default_ip": repr(options.default_ip),
        **{f"option {name}": repr(getattr(options, name)) for name in IN_CODE},
        **{f"device {name}": repr(value) for name, value in caps._asdict().items()},
    }
    return Found(survey, digest(f"{k}={v}".encode() for k, v in parts.items()), parts)


def key_now(
    fn: FunctionType, args: tuple[ArgSpec, ...], options: Options, caps: Caps, shelf: Shelf
) -> str:
    """The key after lowering: another where code that lowering ran has changed what it read, of
    which a later kernel is to see the change."""
    found = look_around(fn, args, options, caps, shelf.version)
    return "" if found is None else found.key


# --- what is kept --------------------------------------------------------------------------------


def write(made: Compiled, found: Found) -> bytes:
    """The bytes of an entry. Raises Unknown for what the survey did not meet, and TypeError for
    what has no form."""
    survey = found.survey
    check_reached(made, survey)
    numbers = {id(field): k for k, field in enumerate(survey.fields)}
    try:
        fields = {name: numbers[id(field)] for name, field in made.fields.items()}
    except KeyError:
        raise Unknown("a field that no name leads to") from None
    fn = made.func
    from vkchi.ir.text import ir_text  # not before something is compiled

    text = ir_text(fn)
    move = partial(relative, places=places_of(survey))
    whole = moved((made.artifact._replace(ir=None), made.interface), move)
    return encode((*whole, fields, sources_of(survey), encode(moved(text, move))))


def check_reached(made: Compiled, survey: Survey) -> None:
    """Raises Unknown where lowering read what the survey did not meet."""
    known = made.dependencies
    if known is None or known.opaque:
        raise Unknown("code that Python cannot look into was run")
    for fn in known.functions:
        if fn not in survey.functions and (fn.__closure__ or not is_ours(fn.__module__)):
            raise Unknown(f"{fn.__qualname__} was reached by no name")


def read(entry: tuple[dict[str, Any], bytes], found: Found, shelf: Shelf) -> Compiled | None:
    """The kernel of an entry; None, and the entry is gone, where that is none."""
    try:
        artifact, interface, fields, _, text = decode(entry[1])
        if not isinstance(artifact, Artifact) or not isinstance(interface, Interface):
            raise Malformed("no kernel")
        places = places_of(found.survey)
        move = partial(absolute, places=places)
        if not isinstance(text, bytes):
            raise Malformed("no text")
        limits, sites, checks = moved((artifact.limits, interface.sites, interface.checks), move)
        arrays = {name: found.survey.fields[k] for name, k in fields.items()}
        for name, field in arrays.items():
            if field.__vkchi_array__() is not artifact.arrays[name]:
                raise Malformed(f"{name} is another field")
    except (ValueError, TypeError, LookupError, AttributeError) as e:
        shelf.warn(f"the entry {found.key[:12]} cannot be read ({e}): it is made anew")
        shelf.remove(found.key)
        return None
    return Compiled(
        artifact._replace(limits=limits),
        interface._replace(sites=sites, checks=checks),
        partial(read_func, text, move),
        arrays,
        home=Home(shelf, found.key, entry[0], places),
    )


def read_func(data: bytes, move: Callable[[Span], Span]) -> Any:
    """The Func of a text, with its spans. The text is read only now: few warm processes need it."""
    from vkchi.ir.text import func_of  # not before something is derived of the kernel

    text: IrText = decode(data)
    return func_of(text._replace(spans=moved(text.spans, move)))


def header_of(
    fn: FunctionType, args: tuple[ArgSpec, ...], made: Compiled, parts: dict[str, str]
) -> dict[str, Any]:
    """What is shown of an entry without reading it whole."""
    code = fn.__code__
    shaders = [d.shader for d in made.artifact.dispatches]
    return {
        "kind": "kernel",
        "name": fn.__qualname__,
        "place": f"{code.co_filename}:{code.co_firstlineno}",
        "signature": ", ".join(f"{a.name}: {a.type or a.kind}" for a in args),
        "dispatches": len(shaders),
        "spirv_bytes": sum(len(s.words) for s in shaders),
        "parts": parts,
    }


# --- spans ---------------------------------------------------------------------------------------


def places_of(survey: Survey) -> Places:
    """Where the functions stand now."""
    found = []
    for fn in survey.functions:
        lines = survey.bare[fn][1] if fn in survey.bare else ()
        found.append((fn.__code__.co_filename, fn.__code__.co_firstlineno, lines))
    return found


def sources_of(survey: Survey) -> tuple[tuple[str, int, str], ...]:
    """File, first line and text of each function, by the numbers that spans have: for people."""
    return tuple(
        (file, first, survey.texts.get(fn, ""))
        for fn, (file, first, _) in zip(survey.functions, places_of(survey))
    )


def relative(span: Span, places: Places) -> Span:
    """A span by the number of its function, and the number of the lines among those that are no
    comments. Raises Unknown where that is none."""
    if span.file.startswith(PACKAGE):
        return span._replace(file=OWN_FILE + span.file[len(PACKAGE) :])
    for k, (file, first, lines) in enumerate(places):
        if span.file == file and span.line - first in lines and span.end_line - first in lines:
            line, end = lines.index(span.line - first), lines.index(span.end_line - first)
            return span._replace(file=str(k), line=line, end_line=end)
    raise Unknown(f"{span.place} is in no function that was met")


def absolute(span: Span, places: Places) -> Span:
    """The inverse. Raises IndexError, ValueError."""
    if span.file.startswith(OWN_FILE):
        return span._replace(file=PACKAGE + span.file[len(OWN_FILE) :])
    file, first, lines = places[int(span.file)]
    line, end = first + lines[span.line], first + lines[span.end_line]
    return span._replace(file=file, line=line, end_line=end)


def moved(value: Any, move: Callable[[Span], Span]) -> Any:
    """A record of records with every span, and its callers, moved."""
    if isinstance(value, Span):
        new = move(value)
        return new._replace(caller=None if new.caller is None else moved(new.caller, move))
    if isinstance(value, dict):
        return {k: moved(v, move) for k, v in value.items()}
    if isinstance(value, tuple) and value and not isinstance(value[0], bytes | str | int):
        parts = [moved(v, move) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if hasattr(value, "_fields"):
        return type(value)(*[moved(v, move) for v in value])
    return value
