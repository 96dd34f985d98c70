"""Debug listing of an entry: source, IR and SPIR-V, with the source lines of each line.

The IR of an entry has spans, its SPIR-V has none. To map instructions to ops, the IR is compiled
again by an emitter that records positions. The mapping is used only if this yields exactly the
entry's words.

    linked = link(header, body)
    linked.ir[3].refs       # ("0:2",): line index 2 of the first source; then lines of callers
"""

from __future__ import annotations

import ast
import linecache
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vkchi.cache.codec import decode
from vkchi.cache.manifest import KernelRecord
from vkchi.cache.referenced_names import without_comments
from vkchi.errors import VkchiError
from vkchi.interrupts.local import local
from vkchi.ir.core import Func, Op, Region
from vkchi.ir.text import func_from_text
from vkchi.opt.mapping.map_grid import plan_grid
from vkchi.opt.pipeline import lower_dispatch, optimize_kernel
from vkchi.span import PACKAGE, Span
from vkchi.spirv.disasm import disassemble
from vkchi.spirv.dispatch import emit
from vkchi.spirv.emitter import Emitter
from vkchi.spirv.module_builder import iterate_instructions
from vkchi.target.artifact import Artifact, IrText
from vkchi.target.caps import Caps
from vkchi.target.options import Options
from vkchi.target.shader import Shader
from vkchi.tuples import NamedTuple

AROUND = 2  # lines of context before and after
APART = 20  # longest gap between lines in one listing
OWN_FILE = "<vkchi>"


class Line(NamedTuple):
    """A line of text, and references to its source lines, innermost first."""

    text: str
    refs: tuple[str, ...] = ()


class Listing(NamedTuple):
    title: str
    lines: tuple[Line, ...]


class Linked(NamedTuple):
    """The listings of an entry."""

    sources: tuple[Listing, ...]
    ir: tuple[Line, ...]
    shaders: tuple[Listing, ...]
    is_linked: bool  # True if instructions have source lines


Sources = Sequence[tuple[str, int, str]]  # (file, first line, text)


def open_body(header: Mapping[str, Any], body: bytes) -> tuple[Artifact, Sources]:
    """Return the artifact and the sources of an entry of kind `kernel` or `shaders`. Raises
    Malformed. The sources of an entry of kind `shaders` are ()."""
    if header.get("kind") != "kernel":
        return decode(body, "Artifact"), ()
    kept: KernelRecord = decode(body, "KernelRecord")
    return kept.artifact._replace(ir=decode(kept.text, "IrText")), kept.sources


def link(header: Mapping[str, Any], body: bytes) -> Linked:
    """Return source, IR and SPIR-V of an entry, with source references. Raises Malformed, and the
    errors of `func_from_text`."""
    artifact, sources = open_body(header, body)
    shaders = [d.shader for d in artifact.dispatches]
    if artifact.ir is None:
        parts = tuple(Listing(s.name, plain_lines(s)) for s in shaders)
        return Linked((), (), parts, is_linked=False)
    places = Places(sources, artifact.ir.spans)
    fn = func_from_text(artifact.ir)
    spans = rebuilt(fn, header, shaders)
    return Linked(
        places.parts(),
        tuple(ir_lines(artifact.ir, fn, places)),
        tuple(Listing(s.name, spirv_lines(s, found, places)) for s, found in zip(shaders, spans)),
        is_linked=any(spans),
    )


# --- source --------------------------------------------------------------------------------------


class Places:
    """The sources of an entry, and the mapping of spans to their lines."""

    def __init__(self, sources: Sources, spans: Sequence[Span | None]) -> None:
        self.is_kept = bool(sources)  # if so, spans are relative
        self._when = "" if sources else ", as it is now"
        self.sources = list(sources) if sources else list(blocks_of(spans))

    def refs(self, span: Span | None) -> tuple[str, ...]:
        """Return the source lines of a span and of its callers: `source:line`, innermost first."""
        found: list[str] = []
        while span is not None:
            ref = self._ref(span)
            if ref and ref not in found:
                found.append(ref)
            span = span.caller
        return tuple(found)

    def _ref(self, span: Span) -> str:
        if self.is_kept:  # relative: function index and line index
            return "" if span.file.startswith(OWN_FILE) else span.line_place
        for k, (file, first, text) in enumerate(self.sources):
            if file == span.file and first <= span.line <= first + text.count("\n"):
                return f"{k}:{span.line - first}"
        return ""

    def parts(self) -> tuple[Listing, ...]:
        return tuple(
            Listing(f"{file}:{first}{self._when}", tuple(self._lines(k, whole)))
            for k, (file, first, whole) in enumerate(self.sources)
        )

    def _lines(self, number: int, whole: str) -> Iterator[Line]:
        lines = whole.rstrip().split("\n")
        counted = without_comments(whole)[1] if self.is_kept else tuple(range(len(lines)))
        places = {line: place for place, line in enumerate(counted)}
        for k, text in enumerate(lines):
            yield Line(text, (f"{number}:{places[k]}",) if k in places else ())


def blocks_of(spans: Sequence[Span | None]) -> Iterator[tuple[str, int, str]]:
    """Yield (file, first line, text) of the current lines around these spans and their callers,
    without files of vkchi."""
    lines: dict[str, set[int]] = {}
    for span in spans:
        while span is not None:
            if not span.file.startswith((PACKAGE, OWN_FILE)) and os.path.isfile(span.file):
                lines.setdefault(span.file, set()).add(span.line)
            span = span.caller
    for file, numbers in lines.items():
        whole = linecache.getlines(file)
        first = last = 0
        for number in [*sorted(numbers), len(whole) + 2 * APART]:
            if last and number - last > APART:
                begin = max(1, first - AROUND)
                yield file, begin, "".join(whole[begin - 1 : last + AROUND])
                first = 0
            first, last = first or number, number


# --- IR ------------------------------------------------------------------------------------------


def ir_lines(text: IrText, fn: Func, places: Places) -> Iterator[Line]:
    spans: list[Span | None] = [fn.span]
    spans += region_spans(fn.body, fn.span)
    lines = text.text.rstrip("\n").split("\n")
    spans += [fn.span] * (len(lines) - len(spans))
    for line, span in zip(lines, spans):
        yield Line(line, places.refs(span))


def region_spans(region: Region, span: Span | None) -> Iterator[Span | None]:
    if region.params:
        yield span
    for op in region.ops:
        yield op.span
        for inner in op.regions:
            yield from region_spans(inner, op.span)
            yield op.span  # the closing brace


# --- SPIR-V --------------------------------------------------------------------------------------


class PositionEmitter(Emitter):
    """Emitter that records the range of code words of each op."""

    __slots__ = ("marks",)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.marks: list[tuple[int, int, Span | None]] = []

    def lower(self, ops: Sequence[Op]) -> None:
        """Emit these ops. Ranges of nested ops are recorded before those of enclosing ops."""
        for op in ops:
            start = len(self.code)
            super().lower([op])
            self.marks.append((start, len(self.code), op.span))


Spans = dict[int, Span]  # by word index in the module


def rebuilt(fn: Func, header: Mapping[str, Any], shaders: Sequence[Shader]) -> list[Spans]:
    """Return the spans of each shader's words. All are empty if recompilation fails or yields other
    words."""
    nothing: list[Spans] = [{} for _ in shaders]
    try:
        options, caps = setting_of(header)
        found = [*compiled(fn, options, caps)]
    except local(VkchiError, ValueError, TypeError, KeyError):
        return nothing
    same = [shader.words for shader, _ in found] == [shader.words for shader in shaders]
    return [spans for _, spans in found] if same else nothing


def setting_of(header: Mapping[str, Any]) -> tuple[Options, Caps]:
    """The options and capabilities in an entry's key. Raises ValueError, TypeError, KeyError."""
    given: dict[str, dict[str, Any]] = {"option": {}, "device": {}}
    for name, text in header["parts"].items():
        kind, _, field = str(name).partition(" ")
        if kind in given and not field.startswith("default_"):
            given[kind][field] = ast.literal_eval(str(text))
    return Options(**given["option"]), Caps(**given["device"])


def compiled(fn: Func, options: Options, caps: Caps) -> Iterator[tuple[Shader, Spans]]:
    """Compile a Func like `build_artifact`; yield each shader with the spans of its words."""
    program, _ = optimize_kernel(fn, caps, options)
    for k, func in enumerate(program.funcs):
        made: list[PositionEmitter] = []

        def noting(*args: Any, made: list[PositionEmitter] = made, **more: Any) -> PositionEmitter:
            made.append(PositionEmitter(*args, **more))
            return made[0]

        grid = plan_grid(func, caps)
        shader = emit(
            lower_dispatch(func, caps),
            grid,
            caps,
            f"{fn.name}.{k}",
            exact=options.exact,
            emitter=noting,
        )
        em = made[0]
        first = len(shader.words) // 4 - 2 - len(em.code)  # OpReturn and OpFunctionEnd follow
        spans: Spans = {}
        for start, end, span in em.marks:
            if span is not None:
                for at in range(start, end):
                    spans.setdefault(first + at, span)
        yield shader, spans


def spirv_lines(shader: Shader, spans: Spans, places: Places) -> tuple[Line, ...]:
    head, *lines = disassemble(shader.words).rstrip("\n").split("\n")
    words = list(memoryview(shader.words).cast("I"))
    at, found = 5, [Line(head)]
    for line, (_, operands) in zip(lines, iterate_instructions(words)):
        found.append(Line(line, places.refs(spans.get(at))))
        at += len(operands) + 1
    return tuple(found)


def plain_lines(shader: Shader) -> tuple[Line, ...]:
    return tuple(Line(text) for text in disassemble(shader.words).rstrip("\n").split("\n"))
