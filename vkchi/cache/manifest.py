"""Cache of lowering and building, keyed on a kernel's source and every Python object it can reach.

`survey_kernel` computes the key. To be valid in other processes, entries refer to fields by their
index in the survey, and to source spans by function and line. A kernel that depends on an object
without a digest has no entry here; its shaders are still cached by `content`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any

from vkchi.cache.codec import Malformed, add_records, decode, encode
from vkchi.cache.compiled import CacheLocation, Compiled, Places
from vkchi.cache.content import header_of, remove_unreadable, setting_parts
from vkchi.cache.kernel_survey import KernelSurvey, NoDigestError, is_vkchi_module
from vkchi.cache.store import CacheStore, digest
from vkchi.cache.version import is_changed
from vkchi.fields.storage import Storage
from vkchi.frontend.argspec import ArgSpec
from vkchi.frontend.state.captured_values import (
    OF_PARENTS,
    Member,
    Members,
    Path,
    PathRead,
    PathRoot,
    Step,
    repeatable_reads,
    value_of,
    values_in,
)
from vkchi.frontend.state.reachable_values import methods_seen
from vkchi.interrupts.local import local
from vkchi.lang.value_keys import value_key
from vkchi.ndarray import Ndarray
from vkchi.span import PACKAGE, Span
from vkchi.target.artifact import Artifact, Interface
from vkchi.target.caps import Caps
from vkchi.target.options import Options
from vkchi.tuples import NamedTuple
from vkchi.types import Type
from vkchi.types.struct_types import StructType

Make = Callable[[FunctionType, tuple[ArgSpec, ...], Options, Caps], Compiled]
OWN_FILE = "<vkchi>"


class KeptPath(NamedTuple):
    """A serialized path.

    - function: index in `survey.functions` of the path's root, which `kind` and `name` identify.
    - steps: item keys other than ints and strings are stored as positions in their dict.
    """

    function: int
    kind: str
    name: str
    steps: tuple[tuple[str, int | str], ...]


class KeptRead(NamedTuple):
    """A serialized read of a Python value: its path instead of the value.

    A process that deserializes it takes the value from its own objects, whose digest is the same.
    If the kernel has members, `value` is a digest of a value that is compared by contents: it may
    be that of a property which depends on shapes, and these are in no digest.
    """

    path: KeptPath
    how: str
    span: Span | None
    value: str = ""


class KeptMember(NamedTuple):
    """A serialized `Member`. The type of an array is that of the array at the path."""

    role: str
    name: str
    type: Type | None
    paths: tuple[KeptPath, ...]
    like: str


class KernelRecord(NamedTuple):
    """Body of an entry.

    - fields: parameter name to index in the survey.
    - results: return types, with structs as indices in the survey.
    - sources: file, first line and text of each function, for display.
    - text: encoded IR text, rarely needed.
    - reads: paths to the Python values that were read.
    - members, are_disjoint: `Compiled.members`.
    """

    artifact: Artifact
    interface: Interface
    fields: dict[str, int]
    results: tuple[int | Type, ...]
    sources: tuple[tuple[str, int, str], ...]
    text: bytes
    reads: tuple[KeptRead, ...]
    may_race: bool = False
    members: tuple[KeptMember, ...] = ()
    are_disjoint: bool = False
    is_own: bool = True


add_records(KeptPath, KeptRead, KeptMember, KernelRecord)


class SurveyedKernel(NamedTuple):
    """The survey of a kernel's environment, and the cache key derived from it."""

    survey: KernelSurvey
    key: str
    parts: dict[str, str]


def get_or_compile(
    fn: FunctionType, args: tuple[ArgSpec, ...], options: Options, caps: Caps, shelf: CacheStore,
    make: Make,
) -> Compiled:  # fmt: skip
    """Return the compiled kernel, from the cache or from `make`. Raises the errors of `make`.

    A kernel from `make` is stored, unless it has no key or cannot be encoded, or its key or the
    compiler's sources have changed during compilation.
    """
    found = survey_kernel(fn, args, options, caps, shelf.version)
    if found is not None:
        entry = shelf.get(found.key)
        compiled = None if entry is None else decode_kernel(entry, found, shelf)
        if compiled is not None:
            return compiled
    begin = time.perf_counter()
    made = make(fn, args, options, caps)
    seconds = time.perf_counter() - begin
    if found is None or is_changed():
        return made
    again = survey_kernel(fn, args, options, caps, shelf.version)
    if again is None or again.key != found.key:  # code that lowering ran changed an input
        return made
    try:
        body = encode_kernel(made, found)
    except local(NoDigestError, TypeError, ValueError):
        return made
    header = {
        "kind": "kernel",
        "name": fn.__qualname__,
        "place": f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}",
        "signature": ", ".join(f"{a.name}: {a.type or a.kind}" for a in args),
        **header_of(made.artifact, found.parts, seconds, shelf),
    }
    shelf.put(found.key, header, body)
    return made._replace(home=CacheLocation(shelf, found.key, header, places_of(found.survey)))


def survey_kernel(
    fn: FunctionType, args: tuple[ArgSpec, ...], options: Options, caps: Caps, version: str
) -> SurveyedKernel | None:
    """Return a kernel's survey and key; None if the survey raises, mostly NoDigestError."""
    try:
        survey = KernelSurvey(fn, args)
    except local(Exception):  # user objects may raise anything; lowering may not even read them
        return None
    parts = {
        "kind": "kernel",
        "compiler": version,
        **survey.parts,
        "option default_fp": repr(options.default_fp),
        "option default_ip": repr(options.default_ip),
        **setting_parts(options, caps),
    }
    return SurveyedKernel(survey, digest(f"{k}={v}".encode() for k, v in parts.items()), parts)


# --- entries ------------------------------------------------------------------------------------


def encode_kernel(made: Compiled, found: SurveyedKernel) -> bytes:
    """Encode an entry's body. Raises NoDigestError for objects outside the survey, and the errors
    of `encode`."""
    survey = found.survey
    check_reached(made, survey)
    check_arrays(made)
    numbers = {id(field): k for k, field in enumerate(survey.fields)}
    try:
        fields = {name: numbers[id(field)] for name, field in made.fields.items()}
    except KeyError:
        raise NoDigestError("a field that no name leads to") from None
    fn = made.func
    from vkchi.ir.text import ir_text  # lazy: only after a compile

    text = ir_text(fn)
    move = partial(relative, places=places_of(survey))
    ir = encode(text, "IrText", span=move)
    bare = made.artifact._replace(ir=None)
    interface = made.interface._replace(results=())
    results = numbered(made.interface.results, survey.structs)
    reads = kept_reads(made.reads, survey, has_values=bool(made.members.all))
    members = tuple([kept_member(m, survey) for m in made.members.all])
    kept = KernelRecord(
        bare, interface, fields, results, sources_of(survey), ir, reads, made.may_race, members,
        made.members.are_disjoint, made.is_own,
    )  # fmt: skip
    return encode(kept, "KernelRecord", span=move)


def numbered(results: Iterable[Type], structs: Sequence[StructType]) -> tuple[int | Type, ...]:
    """Replace structs among return types by survey indices. Raises NoDigestError for a struct
    outside the survey."""
    numbers = {id(t): k for k, t in enumerate(structs)}
    if any(isinstance(t, StructType) and id(t) not in numbers for t in results):
        raise NoDigestError("a struct that no name leads to is returned")
    return tuple([numbers.get(id(t), t) for t in results])


def check_arrays(made: Compiled) -> None:
    """Raise NoDigestError if the code depends on which ndarrays it was compiled for."""
    for read in made.reads if made.members.all else ():
        if read.how == "items" or any(isinstance(x, Ndarray) for x in values_in(read.value)):
            raise NoDigestError(f"{read.path} is an ndarray, or leads to some")


def check_reached(made: Compiled, survey: KernelSurvey) -> None:
    """Raise NoDigestError if lowering used a function that the survey did not reach.

    Functions of vkchi without closure are exempt. The same error is raised if lowering ran code
    whose reads are unknown, or recorded no dependencies.
    """
    known = made.dependencies
    if known is None or known.opaque:
        raise NoDigestError("code that Python cannot look into was run")
    for fn in known.functions:
        if fn not in survey.functions and (fn.__closure__ or not is_vkchi_module(fn.__module__)):
            raise NoDigestError(f"{fn.__qualname__} was reached by no name")


def decode_kernel(
    entry: tuple[dict[str, Any], bytes], found: SurveyedKernel, shelf: CacheStore
) -> Compiled | None:
    """Decode an entry's kernel. If that fails, warn, remove the entry and return None."""
    kept: KernelRecord | None = None
    try:
        places = places_of(found.survey)
        move = partial(absolute, places=places)
        kept = decode(entry[1], "KernelRecord", span=move)
        assert kept is not None
        arrays = {name: found.survey.fields[k] for name, k in kept.fields.items()}
        check_bound(kept, arrays)
        structs = found.survey.structs
        results = tuple([structs[t] if isinstance(t, int) else t for t in kept.results])
        reads = reads_of(kept.reads, found.survey)
        members = members_of(kept, found.survey)
        if members and [value_digest(read) for read in reads] != [r.value for r in kept.reads]:
            return None
    except (Malformed, LookupError) as e:
        if kept is None or not kept.members:  # their values are not all in the key
            remove_unreadable(shelf, found.key, e)
        return None
    return Compiled(
        kept.artifact,
        kept.interface._replace(results=results),
        partial(read_func, kept.text, move),
        arrays,
        home=CacheLocation(shelf, found.key, entry[0], places),
        reads=(*reads, *methods_seen(found.survey.classes, found.survey.functions)),
        may_race=kept.may_race,
        members=Members(members, kept.are_disjoint),
        is_own=kept.is_own or len(reads) < len(kept.reads),
    )


def check_bound(kept: KernelRecord, fields: Mapping[str, Storage]) -> None:
    """Raise Malformed if the fields do not match the artifact's arrays, KeyError for an unknown
    array."""
    for name, binding in kept.interface.bindings.items():
        if binding[0] == "field" and name not in fields:
            raise Malformed(f"{name} is no field")
    for name, field in fields.items():
        if field.__vkchi_array__() is not kept.artifact.arrays[name]:  # type: ignore[attr-defined]
            raise Malformed(f"{name} is another field")


def read_func(data: bytes, move: Callable[[Span], Span]) -> Any:
    from vkchi.ir.text import func_from_text  # lazy: only for derived kernels

    return func_from_text(decode(data, "IrText", span=move))


# --- spans --------------------------------------------------------------------------------------


def places_of(survey: KernelSurvey) -> Places:
    """Return file, first line and indices of the lines that are not comments of each function, in
    survey order."""
    found = []
    for fn in survey.functions:
        lines = survey.bare[fn][1] if fn in survey.bare else ()
        found.append((fn.__code__.co_filename, fn.__code__.co_firstlineno, lines))
    return found


def sources_of(survey: KernelSurvey) -> tuple[tuple[str, int, str], ...]:
    """Return file, first line and source of each function, in survey order. The source is "" if it
    was not read."""
    return tuple(
        (file, first, survey.texts.get(fn, ""))
        for fn, (file, first, _) in zip(survey.functions, places_of(survey))
    )


def relative(span: Span, places: Places) -> Span:
    """Return a span with a function's index as file, and line indices among its lines that are not
    comments.

    A span in vkchi itself gets a file name that begins with OWN_FILE. Raises NoDigestError if the
    span is in no function of the survey.
    """
    if span.file.startswith(PACKAGE):
        return span._replace(file=OWN_FILE + span.file[len(PACKAGE) :])
    for k, (file, first, lines) in enumerate(places):
        if span.file == file and span.line - first in lines and span.end_line - first in lines:
            line, end = lines.index(span.line - first), lines.index(span.end_line - first)
            return span._replace(file=str(k), line=line, end_line=end)
    raise NoDigestError(f"{span.place} is in no function that was met")


def absolute(span: Span, places: Places) -> Span:
    """Return the absolute span of a relative one: the inverse of `relative`. Raises IndexError,
    ValueError."""
    if span.file.startswith(OWN_FILE):
        return span._replace(file=PACKAGE + span.file[len(OWN_FILE) :])
    file, first, lines = places[int(span.file)]
    line, end = first + lines[span.line], first + lines[span.end_line]
    return span._replace(file=file, line=line, end_line=end)


# --- reads of Python values -----------------------------------------------------------------------


def kept_reads(
    reads: Iterable[PathRead], survey: KernelSurvey, *, has_values: bool
) -> tuple[KeptRead, ...]:
    """Serialize the reads of a kernel, except entries of classes; `has_values`: with digests.
    Raises NoDigestError for a path from a function outside the survey, and for a key that has no
    position."""
    return tuple([
        KeptRead(
            kept_path(read.path, survey), read.how, read.span,
            value_digest(read) if has_values else "",
        )
        for read in reads if read.how != "entry"
    ])  # fmt: skip


def value_digest(read: PathRead) -> str:
    """Return a digest of a value that is compared by contents; "" of others."""
    key = value_key(read.value) if read.how == "value" else None
    return digest([repr(key).encode()]) if is_portable(key) else ""


def is_portable(key: Any) -> bool:
    """True if the text of a key is the same in other processes."""
    if isinstance(key, tuple):
        return all(map(is_portable, key))
    return isinstance(key, int | float | str | bytes | type | Type) and not isinstance(
        key, StructType
    )


def kept_member(m: Member, survey: KernelSurvey) -> KeptMember:
    paths = tuple([kept_path(path, survey) for path in m.paths])
    return KeptMember(m.role, m.name, m.type if isinstance(m.type, Type) else None, paths, m.like)


def members_of(kept: KernelRecord, survey: KernelSurvey) -> tuple[Member, ...]:
    """Deserialize the members of a kernel. Raises Malformed if a path leads to no array."""
    args, found = values_of(survey), []
    try:
        for m in kept.members:
            paths = tuple([path_of(path, survey, args) for path in m.paths])
            given = value_of(paths[0], args).argument if m.type is None else m.type
            found.append(Member(m.role, m.name, given, paths, m.like))  # type: ignore[arg-type]
    except local(Exception) as e:  # also those of user code
        raise Malformed(f"an array that the kernel reads cannot be read: {e}") from None
    return tuple(found)


def values_of(survey: KernelSurvey) -> tuple[Any, ...]:
    """Return the compile-time arguments, and None for others."""
    return tuple([arg.value for arg in survey.args])


def kept_path(path: Path, survey: KernelSurvey) -> KeptPath:
    root, steps = path
    args = values_of(survey)
    if root.fn not in survey.functions:
        raise NoDigestError(f"{root.fn.__qualname__} was reached by no name")
    kept = []
    for k, (kind, key) in enumerate(steps):
        if kind == "attr" or type(key) in (int, str):
            kept.append((kind, key))
            continue
        base = value_of(Path(root, steps[:k]), args)
        found = [at for at, one in enumerate(base) if one is key] if type(base) is dict else []
        if not found:
            raise NoDigestError(f"{path} has a key without a form")
        kept.append(("at", found[0]))
    return KeptPath(survey.functions[root.fn], root.kind, root.name, tuple(kept))


def reads_of(kept: Iterable[KeptRead], survey: KernelSurvey) -> tuple[PathRead, ...]:
    """Deserialize reads: evaluate their paths in this process. Raises Malformed if that fails."""
    args = values_of(survey)
    try:
        return repeatable_reads([read_of(one, survey, args) for one in kept], args)
    except local(Exception) as e:  # also those of user code
        raise Malformed(f"a value that the kernel reads cannot be read: {e}") from None


def path_of(one: KeptPath, survey: KernelSurvey, args: tuple[Any, ...]) -> Path:
    fn = list(survey.functions)[one.function]
    root = PathRoot(one.kind, fn, one.name)  # type: ignore[arg-type]
    steps: tuple[Step, ...] = ()
    for kind, key in one.steps:
        if kind == "at":
            kind, key = "item", list(value_of(Path(root, steps), args))[int(key)]
        steps = (*steps, (kind, key))
    return Path(root, steps)


def read_of(one: KeptRead, survey: KernelSurvey, args: tuple[Any, ...]) -> PathRead:
    path, how = path_of(one.path, survey, args), one.how
    if how in OF_PARENTS:
        return PathRead(path, how, path.steps[-1][1], one.span)  # type: ignore[arg-type]
    value = value_of(path, args)
    value = type(value) if how == "kind" else value
    return PathRead(path, how, value, one.span)  # type: ignore[arg-type]
