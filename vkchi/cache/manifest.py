"""The cache around lowering: a kernel whose source and surroundings are as before is not lowered.

Owns: the key of a kernel for one signature, what is kept under it, and how what is kept is put to
use in another process: fields by number in the order of `survey`, spans by function and line of
that. Must not know: how kernels are compiled, files.

A kernel that depends on what has no digest has no entry here; its shaders still have (`content`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any

from vkchi.cache.codec import Malformed, add_records, decode, encode
from vkchi.cache.compiled import Compiled, Home, Places
from vkchi.cache.kept_reads import KeptRead, kept_reads, reads_of
from vkchi.cache.store import digest
from vkchi.cache.survey import Survey, Unknown
from vkchi.cache.version import is_changed
from vkchi.cache.whose import is_ours
from vkchi.fields.storage import Storage
from vkchi.frontend.argspec import ArgSpec
from vkchi.frontend.methods_seen import methods_seen
from vkchi.interrupts.local import local
from vkchi.span import PACKAGE, Span
from vkchi.target.artifact import Artifact, Interface
from vkchi.target.caps import Caps
from vkchi.target.options import IN_CODE, Options, Shelf
from vkchi.tuples import NamedTuple
from vkchi.types import Type
from vkchi.types.structs import StructType

Make = Callable[[FunctionType, tuple[ArgSpec, ...], Options, Caps], Compiled]
OWN_FILE = "<vkchi>"


class Kept(NamedTuple):
    """What an entry holds: fields by their numbers in the survey; what is returned, where it is a
    struct by its number there; of each function its file, its first line and its text, for people;
    the IR as bytes, which few read; paths to the values of Python that were read."""

    artifact: Artifact
    interface: Interface
    fields: dict[str, int]
    results: tuple[int | Type, ...]
    sources: tuple[tuple[str, int, str], ...]
    text: bytes
    reads: tuple[KeptRead, ...]
    may_race: bool = False


add_records(KeptRead, Kept)


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
        except local(Unknown, TypeError, ValueError):
            return made
        header = header_of(fn, args, made, found.parts)
        header |= {"seconds": round(seconds, 4), "device": shelf.device, "version": shelf.version}
        shelf.put(found.key, header, body)
        return made._replace(home=Home(shelf, found.key, header, places_of(found.survey)))
    return made


def look_around(
    fn: FunctionType, args: tuple[ArgSpec, ...], options: Options, caps: Caps, version: str
) -> Found | None:
    """The key of a kernel; None where it depends on what has no digest."""
    try:
        survey = Survey(fn, args)
    except local(Exception):  # what users' objects raise, where lowering may never look
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
    ir = encode(text, "IrText", span=move)
    bare = made.artifact._replace(ir=None)
    interface = made.interface._replace(results=())
    results = numbered(made.interface.results, survey.structs)
    reads = kept_reads(made.reads, survey)
    kept = Kept(bare, interface, fields, results, sources_of(survey), ir, reads, made.may_race)
    return encode(kept, "Kept", span=move)


def numbered(results: Iterable[Type], structs: Sequence[StructType]) -> tuple[int | Type, ...]:
    """What a kernel returns, structs by their numbers. Raises Unknown."""
    numbers = {id(t): k for k, t in enumerate(structs)}
    if any(isinstance(t, StructType) and id(t) not in numbers for t in results):
        raise Unknown("a struct that no name leads to is returned")
    return tuple([numbers.get(id(t), t) for t in results])


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
        places = places_of(found.survey)
        move = partial(absolute, places=places)
        kept: Kept = decode(entry[1], "Kept", span=move)
        arrays = {name: found.survey.fields[k] for name, k in kept.fields.items()}
        check_bound(kept, arrays)
        structs = found.survey.structs
        results = tuple([structs[t] if isinstance(t, int) else t for t in kept.results])
        reads = reads_of(kept.reads, found.survey)
    except (Malformed, LookupError) as e:
        shelf.warn(f"the entry {found.key[:12]} cannot be read ({e}): it is made anew")
        shelf.remove(found.key)
        return None
    return Compiled(
        kept.artifact,
        kept.interface._replace(results=results),
        partial(read_func, kept.text, move),
        arrays,
        home=Home(shelf, found.key, entry[0], places),
        methods=methods_seen(found.survey.classes, found.survey.functions),
        reads=reads,
        may_race=kept.may_race,
    )


def check_bound(kept: Kept, fields: Mapping[str, Storage]) -> None:
    """Raises Malformed where these are not the fields that a kernel works on."""
    for name, binding in kept.interface.bindings.items():
        if binding[0] == "field" and name not in fields:
            raise Malformed(f"{name} is no field")
    for name, field in fields.items():
        if field.__vkchi_array__() is not kept.artifact.arrays[name]:  # type: ignore[attr-defined]
            raise Malformed(f"{name} is another field")


def read_func(data: bytes, move: Callable[[Span], Span]) -> Any:
    """The Func of a text, with its spans. The text is read only now: few warm processes need it."""
    from vkchi.ir.text import func_of  # not before something is derived of the kernel

    return func_of(decode(data, "IrText", span=move))


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
