"""Explanation of a kernel's launch by the compiler's decisions: loops, atomics, accesses, copies.

The kernel is compiled again without the cache, with a log of decisions (`target.remarks`). Counts
are evaluated for the arguments of the call. Nothing is launched.

    print(explain_call(compiler, "step", kernel, args))
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vkchi.interop import host_views
from vkchi.interop.in_place import host_arrays
from vkchi.launch.executable import count_reader
from vkchi.signature.bound import ImportedArray
from vkchi.span import PACKAGE, Span, line_of
from vkchi.target.remarks import Decision, Log
from vkchi.target.shader import Count, Grid, compile_count, is_listed
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.cache.compiled import Compiled
    from vkchi.launch.compiled_kernel import CompiledKernel

Evaluate = Callable[["Count | None"], "int | None"]
MANY = 8  # lines of one kind


class LoggedCompiler(Protocol):
    """A kernel that compiles with a log of decisions."""

    def compile_logged(self, kernel: CompiledKernel, args: tuple[Any, ...], log: Log) -> Compiled:
        """Compile again; add the decisions to `log`."""


class Explanation(NamedTuple):
    """Decisions about a kernel, its grids by dispatch name, and a function that evaluates counts.
    `active`: numbers of active cells, by the name of their list."""

    log: Log
    grids: dict[str, Grid]
    evaluate: Evaluate
    active: Mapping[str, int]

    def about(self, kind: str, span: Span | None) -> list[Decision]:
        return [d for d in self.log if d.kind == kind and d.span == span]

    def of_kind(self, *kinds: str) -> list[Decision]:
        return [d for d in self.log if d.kind in kinds]


def explain_call(
    compiler: LoggedCompiler,
    name: str,
    kernel: CompiledKernel,
    args: tuple[Any, ...],
    shared: Sequence[ImportedArray] = (),
) -> str:
    """Return the explanation of a call as text. The `shared` arguments are used in place, not
    copied."""
    log: Log = []
    made = compiler.compile_logged(kernel, args, log)
    log += copies(kernel, args, {one.name for one in shared})
    bound = kernel.bind_arguments(args)
    if shared:
        bound.share(shared)
    read = count_reader(kernel.places)
    names = {d.reason: d.name for d in log if d.kind == "shader"}
    grids = {names[d.shader.name]: d.shader.grid for d in made.artifact.dispatches}
    active = {name: cells.count() for name, cells in kernel.lists.items()}

    def evaluate(count: Count | None) -> int | None:
        return None if count is None else max(0, compile_count(count, read)(bound.flat))

    found = Explanation(log, grids, evaluate, active)
    head = [f"{name}(){place_of(kernel)}"]
    parts = (loop_lines, atomic_lines, access_lines, copy_lines)
    return "\n".join([*head, *(line for part in parts for line in part(found))])


def place_of(kernel: CompiledKernel) -> str:
    span = kernel.func.span
    return f", {span.line_place}" if span is not None else ""


def copies(kernel: CompiledKernel, args: tuple[Any, ...], in_place: set[str]) -> Iterator[Decision]:
    """Yield a decision for each host array that a call copies to the device."""
    for parameter, arg in zip(kernel.parameters, args, strict=True):
        is_host = not hasattr(arg, "elem") and host_views.view_of(arg) is not None
        if parameter.kind == "array" and is_host and parameter.name not in in_place:
            back = " and back" if parameter.name in kernel.written else ""
            why = host_arrays(kernel.runtime).why_copied(arg, parameter.name)
            reason = f"copied to the device{back} at each call: {why.reason}"
            yield Decision("copy", None, reason, why.help, name=parameter.name)


# --- lines ---------------------------------------------------------------------------------------


def place(span: Span | None) -> str:
    """Return line number and source line of a location in the user's code; "" for None.

    A location inside vkchi is replaced by that of its caller.
    """
    while span is not None and span.file.startswith(PACKAGE) and span.caller is not None:
        span = span.caller
    if span is None:
        return ""
    return f"line {span.line}, `{line_of(span.file, span.line).strip().rstrip(':')}`"


def loop_lines(found: Explanation) -> Iterator[str]:
    loops = found.of_kind("parallel", "serial")
    if not loops:
        yield "no loops: one invocation runs the kernel"
    copies: dict[Span | None, list[Decision]] = {}
    for d in loops:
        copies.setdefault(d.span, []).append(d)
    for span, same in copies.items():  # several of one span: unrolled, or an inlined function
        for head, count in Counter([heading(found, d) for d in same]).items():
            yield f"{place(span)}: {head}{f' ({count} such loops)' if count > 1 else ''}"
        yield from (f"  {line}" for line in details(found, span))
        yield from dict.fromkeys(f"  help: {d.help}" for d in same if d.help)


def heading(found: Explanation, loop: Decision) -> str:
    """Return kind, trip count and reason of a loop."""
    trips = found.evaluate(loop.trips)
    many = "an unknown number of" if trips is None else f"{trips:,}"
    unit = "iteration" if trips == 1 else "iterations"
    if loop.is_sparse:
        unit = "cells of a sparse field, inactive ones skipped"
    if loop.kind == "parallel":
        return f"parallel over {many} {unit}"
    return f"serial, {many} {unit}: {loop.text}"


def details(found: Explanation, span: Span | None) -> Iterator[str]:
    """Yield lines about the mapping of a span's loops to the device, and about the bytes of an
    iteration. Equal lines about one dispatch after another are yielded once."""
    parts = [tuple([d.text]) for d in found.about("fused", span)]
    loops = {d.span for d in found.of_kind("parallel", "serial")}
    known = loops | {d.span for d in found.of_kind("atomic")}
    for d in found.about("dispatch", span):
        lines: list[str] = []
        if d.name in found.grids:
            lines += grid_lines(found.grids[d.name], found)
        lanes = [x for x in found.of_kind("lanes") if x.name == d.name]
        lines += [f"{place(x.span)}: {x.text}" for x in lanes]
        read, written = (bytes_of(found, span, d.name, way) for way in ("read", "written"))
        if read is not None and written is not None:
            lines.append(f"an iteration reads {read:,} bytes and writes {written:,}")
        elif any(b.name == d.name for b in found.about("bytes", span)):
            lines.append("the bytes of an iteration depend on conditions or on values in memory")
        made = [x for x in found.of_kind("changed") if x.name == d.name and x.span not in loops]
        lines += [x.text for x in made]  # a loop that passes made has the location of an access
        inner = [x for x in found.of_kind("refused") if x.name == d.name and x.span not in known]
        lines += [f"{place(x.span)}: {x.text}" for x in inner]
        parts.append(tuple(lines))
    parts.append(tuple([d.text for d in found.about("changed", span)]))
    parts.append(tuple(refusals(found, span)))
    for part in dict.fromkeys(parts):
        yield from part


def refusals(found: Explanation, span: Span | None) -> Iterator[str]:
    """Yield the reasons why transformations were not applied, unless another copy or part of the
    loop was transformed in that way."""
    applied = [d.text for d in found.about("changed", span)]
    for d in found.about("refused", span):
        technique = d.text.removeprefix("no ").partition(":")[0]
        if not any(f"({technique})" in text for text in applied):
            yield d.text


def bytes_of(found: Explanation, span: Span | None, dispatch: str, way: str) -> int | None:
    """Return the bytes that an iteration reads or writes; None if unknown, or if the loops of one
    span (unrolled copies) differ."""
    counts = {
        found.evaluate(b.trips)
        for b in found.about("bytes", span)
        if (b.name, b.reason) == (dispatch, way)
    }
    return counts.pop() if len(counts) == 1 else None


def grid_lines(grid: Grid, found: Explanation) -> Iterator[str]:
    """Yield lines about a dispatch's workgroups."""
    if grid.is_serial:
        yield "one invocation"
        return
    counts = [found.evaluate(axis.length) or 0 for axis in grid.axes]
    if is_listed(grid.axes[0].length):
        _, (_, name, most), (_, each) = grid.axes[0].length
        counts = [found.active.get(name, most) * each]
        yield f"over a list of active blocks: {counts[0] // each:,} of {most:,}"
    groups = math.prod(-(-n // axis.block) for n, axis in zip(counts, grid.axes))
    shape = " x ".join([str(axis.block) for axis in grid.axes])
    yield f"{groups:,} workgroup{'s' * (groups != 1)} of {shape} invocations"


def atomic_lines(found: Explanation) -> Iterator[str]:
    """Yield a line per atomic, and each help once, after the last line that it applies to."""
    lines = {
        f"{place(d.span)}: atomic: {cause}": help
        for d in found.of_kind("atomic")
        for cause, help in [cause_of(found, d)]
    }
    shown = limited(list(lines), "atomics")
    last = {lines.get(line, ""): line for line in shown}
    spans = {place(d.span): d.span for d in found.of_kind("atomic")}
    for line in shown:
        yield line
        span = spans.get(line.partition(": atomic: ")[0])
        yield from dict.fromkeys(f"  {text}" for text in refusals(found, span))
        help = lines.get(line, "")
        if help and last[help] == line:
            yield f"  help: {help}"


def cause_of(found: Explanation, atomic: Decision) -> tuple[str, str]:
    """Return the reason why an atomic remains, with how it is emulated, if it is; and advice."""
    causes = found.about("cause", atomic.span)
    cause, help = (causes[0].text, causes[0].help) if causes else ("the program asks for it", "")
    return (f"{cause}; {atomic.reason}" if atomic.reason else cause), help


def access_lines(found: Explanation) -> Iterator[str]:
    lines = dict.fromkeys(
        f"{place(d.span)}: an index of `{d.name}` is not proved in range, so that it is tested"
        for d in found.of_kind("unproved")
    )
    yield from limited(list(lines), "accesses")


def copy_lines(found: Explanation) -> Iterator[str]:
    for d in found.of_kind("copy"):
        yield f"argument `{d.name}`: {d.text}"
        yield f"  help: {d.help}"


def limited(lines: list[str], what: str) -> list[str]:
    """Return the first MANY lines, and one more with the number of the others, if there are any."""
    more = len(lines) - MANY
    return lines if more <= 0 else [*lines[:MANY], f"{more} more {what}"]
