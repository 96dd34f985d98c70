"""Compiler driver: Python function and argument types to shaders (docs/design.md part 2).

`compile_kernel` lowers a kernel to CHI IR and adds the checks and warnings of its launches.
`build_artifact` optimizes IR and emits SPIR-V; gradients use it directly.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING

from vkchi import env
from vkchi.analysis.cost import work_of
from vkchi.analysis.values.host_numbers import (
    BoundedCount,
    host_length,
    host_number,
    most_iterations,
    trips_over,
    wrapped_count,
)
from vkchi.cache.compiled import Compiled
from vkchi.compile_state import compiling
from vkchi.frontend.state.captured_values import Members
from vkchi.frontend.state.reachable_values import methods_seen
from vkchi.ir.core import Func, Op, Param, Program, base_memory, walk
from vkchi.ir.op_table.invocation_ops import REPORTS
from vkchi.ir.ops import READS, WRITES
from vkchi.span import Span
from vkchi.target.artifact import OWN_SITES, Artifact, Dispatch, Interface
from vkchi.target.caps import Caps
from vkchi.target.cell_lists import OuterCells, listed_activity
from vkchi.target.options import Options
from vkchi.target.remarks import MOST_SERIAL, STRICT, Caution, Decision, Log, LoopCaution, record
from vkchi.target.shader import REPORTS as REPORT_ARRAY
from vkchi.target.shader import Check, without_wraps
from vkchi.types import Array

if TYPE_CHECKING:
    from vkchi.frontend.argspec import ArgSpec
    from vkchi.frontend.lowering import Lowered
    from vkchi.frontend.state.pending import PendingDecision

TOO_MANY = (
    "a loop of {n} iterations is more than run at once: split it, or give its range an i64 bound"
)
TOO_MANY_HERE = (
    "this loop has more iterations than run at once: split it, or give its range an i64 bound"
)

# Modules that every compilation uses, loaded at or before the first one.
STAGES = (
    "frontend.lowering",
    "opt.control.shallow",
    "opt.mapping.wide",
    "opt.mapping.map_grid",
    "spirv",
)


def load_compiler() -> None:
    """Import the modules needed to compile a plain loop, before the first compilation."""
    with compiling("the first kernel"):  # turns the garbage collector off
        for module in STAGES:
            import_module(f"vkchi.{module}")
        import_module("vkchi.opt.pipeline").load_usual()


def compile_kernel(
    fn: FunctionType,
    args: tuple[ArgSpec, ...],
    options: Options,
    caps: Caps,
    log: Log | None = None,
) -> Compiled:
    """Compile the kernel `fn` for the types `args`: lower, optimize and emit it.

    With `log`, the artifact cache is not used, and decisions of the frontend and of passes are
    appended to `log`. Raises CompilationError for errors in the kernel, DeviceError for missing
    device features.
    """
    with compiling(fn.__name__):
        return _compile_kernel(fn, args, options, caps, log)


def _compile_kernel(
    fn: FunctionType, args: tuple[ArgSpec, ...], options: Options, caps: Caps, log: Log | None
) -> Compiled:
    from vkchi.frontend.lowering import lower_kernel  # 50 ms; gradients do not need it
    from vkchi.opt.control.shallow import limit_nesting
    from vkchi.opt.mapping.wide import cut_wide_loops

    clock = _Clock(fn.__name__)
    lowered = lower_kernel(fn, args, options)
    members = Members(lowered.members)
    if lowered.members and not options.unrelated:
        members = relate_members(lowered, args)
    cautions = cautions_of(lowered, options)
    uncut = lowered._replace(func=limit_nesting(lowered.func))
    lowered = lowered._replace(func=cut_wide_loops(uncut.func))
    clock.tick("lower")
    show_stage("ir", lowered.func)
    if log is not None:
        log += [complete(found) for found in lowered.decisions]
    # Before loops are cut: loops over lists are short.
    func = lowered.func if options.unrelated else cut_wide_loops(with_lists(uncut, caps))
    artifact = build_watched(func, array_names(fn, lowered), options, caps, log)
    clock.tick("optimise, emit")
    return _compiled(fn, lowered, artifact, cautions, members)


def with_lists(lowered: Lowered, caps: Caps) -> Func:
    """Return the Func of a lowered kernel, with loops over sparse fields turned into loops over
    active lists. Derivatives and other variants are made of the Func itself.

    No effect if `VKCHI_PASSES` disables "listing".
    """
    from vkchi.opt.pipeline import disabled_passes  # loaded by any compilation

    arrays = {name: b[1] for name, b in lowered.bindings.items() if b[0] == "field"}
    activities = {name: x.activity for name, x in arrays.items() if x.activity is not None}
    if not activities or "listing" in disabled_passes():
        return lowered.func
    from vkchi.opt.loops.listing import list_loops  # few kernels need it

    names = {id(array): name for name, array in arrays.items()}
    outward = {
        name: [OuterCells(names[id(x)], ways) for x, ways in a.around if id(x) in names]
        for name, a in activities.items()
    }
    return list_loops(lowered.func, caps, outward)


def _compiled(
    fn: FunctionType,
    lowered: Lowered,
    artifact: Artifact,
    cautions: tuple[Caution, ...],
    members: Members,
) -> Compiled:
    fields = {k: b[1] for k, b in lowered.bindings.items() if b[0] == "field"}
    interface = interface_of(lowered, artifact, cautions)
    known = lowered.dependencies
    func = partial(_itself, lowered.func)
    reads = (*known.reads(fn), *methods_seen(known.classes, known.functions))
    sources = known.sources(fn, fields)
    is_own = known.is_pinned() if not fields else sources is None or sources.is_of_arguments
    return Compiled(
        artifact, interface, func, fields, known, reads=reads, members=members, is_own=is_own,
        sources=sources if fields else None,
    )  # fmt: skip


def relate_members(lowered: Lowered, args: tuple[ArgSpec, ...]) -> Members:
    """Set the attributes `like` and `noalias` of the ndarrays of a lowered kernel with members;
    return these with the facts.

    The frontend reads neither attribute, so they can be set after it.
    """
    from vkchi.frontend.argspec import passed_arrays  # few kernels need them
    from vkchi.interop.in_place import are_disjoint_arguments

    passed = {arg.name: arg.given for arg in passed_arrays(args)}
    arrays = [m.name for m in lowered.members if m.role == "array"]
    held = {name: lowered.dependencies.member(name) for name in arrays}
    both = {**passed, **held}
    are_disjoint = are_disjoint_arguments(list(both.values()))
    params = {p.name: p for p in lowered.func.params}
    if are_disjoint:
        for name in both:
            params[name].attributes = params[name].attributes._replace(noalias=True)
    first: dict[tuple[int, ...], str] = {}  # parameters by shape
    likes: dict[str, str] = {}
    for name, array in both.items():
        t = params[name].type
        assert isinstance(t, Array)
        like = first.setdefault(tuple(array.shape)[: t.ndim], name) if t.ndim else name
        if name in held and like != name:
            likes[name] = like
            params[name].attributes = params[name].attributes._replace(like=like)
    return Members(
        tuple([m._replace(like=likes.get(m.name, "")) for m in lowered.members]), are_disjoint
    )


def lower_only(fn: FunctionType, args: tuple[ArgSpec, ...], options: Options) -> Compiled:
    """Lower a kernel for `python_mode`; the artifact has no shaders. Raises CompilationError."""
    from vkchi.frontend.lowering import lower_kernel

    with compiling(fn.__name__):
        lowered = lower_kernel(fn, args, options)
        cautions = source_cautions(lowered, options)
        artifact = Artifact(fn.__name__, (), array_types(lowered.func.params), {}, {}, ())
        return _compiled(fn, lowered, artifact, cautions, Members(lowered.members))


def _itself(fn: Func) -> Func:
    return fn


def cautions_of(lowered: Lowered, options: Options) -> tuple[Caution, ...]:
    """Warnings about a kernel's source, and about loops that are serial and long in every launch.

    With `options.strict`, raises KernelTypeError for conversions that lose information and for
    constants that vary.
    """
    long = [c.counted(c.trips[1]) for c in serial_loops(lowered) if c.trips[0] == "const"]
    return (*source_cautions(lowered, options), *long)


def serial_loops(lowered: Lowered) -> Iterator[LoopCaution]:
    """Yield warnings about serial loops whose trip count the host can compute.

    Loops that need no warning, or whose bound on the count is at most MOST_SERIAL, are left out.
    """
    for found in lowered.decisions:
        trips = trips_in(found) if found.is_warned else None
        if trips is not None and trips.hi > MOST_SERIAL:
            yield found.caution(trips.expr)


def trips_in(found: PendingDecision) -> BoundedCount | None:
    """Trip count of the loop of a decision; None if unknown or if the host cannot compute it."""
    return None if found.axes is None else trips_over(found.axes, found.step)


def source_cautions(lowered: Lowered, options: Options) -> tuple[Caution, ...]:
    """Warnings about conversions and constants of the source, one per line and kind.

    With `options.strict`, raises KernelTypeError for the first of a kind in STRICT.
    """
    if not lowered.cautions:
        return ()
    from vkchi.opt.rewrite.narrowing import unproved_cautions  # few kernels need it

    found: dict[tuple[str, str, int], Caution] = {}
    for caution in unproved_cautions(lowered.func, lowered.cautions):
        if options.strict and caution.kind in STRICT:
            raise caution.error()
        found.setdefault((caution.kind, caution.span.file, caution.span.line), caution)
    return tuple(found.values())


def interface_of(
    lowered: Lowered, artifact: Artifact, cautions: tuple[Caution, ...]
) -> Interface:  # fmt: skip
    """Interface of a lowered kernel for launches: bindings, results, report sites, checks,
    warnings."""
    bindings = {
        name: ("field", *lowered.dependencies.path_of(b[1])) if b[0] == "field" else b
        for name, b in lowered.bindings.items()
    }
    checks = checks_of(lowered, artifact)
    whole = (lowered.returns, lowered.results, lowered.returns_tuple)
    loops = tuple(found for found in serial_loops(lowered) if found.trips[0] != "const")
    return Interface(bindings, *whole, lowered.sites, checks, cautions, loops)


def array_names(fn: FunctionType, lowered: Lowered) -> frozenset[str]:
    """Names of the arrays of a kernel whose stores `debug="nan"` watches.

    Arrays of the kernel's results are excluded. Empty for kernels of vkchi itself.
    """
    if fn.__module__ is not None and fn.__module__.startswith("vkchi."):
        return frozenset()
    returned = {name for name, binding in lowered.bindings.items() if binding[0] == "return"}
    return frozenset(array_types(lowered.func.params)) - returned


def build_watched(
    fn: Func, names: frozenset[str], options: Options, caps: Caps, log: Log | None = None
) -> Artifact:
    """As `build_artifact`. With `options.nan`, it also reports NaN and infinities that float stores
    write to the arrays `names`, except stores of constants."""
    if not options.nan or not names:
        return build_artifact(fn, options, caps, log)
    from vkchi.opt.lowering.finite_stores import watch_stores  # in debug mode only

    watched, sites = watch_stores(fn, names, OWN_SITES, has_int64=caps.int64)
    return build_artifact(watched, options, caps, log)._replace(own_sites=sites)


def complete(found: PendingDecision) -> Decision:
    """The decision about a loop, with its trip count, None if unknown."""
    trips = trips_in(found)
    return found.decision._replace(trips=None if trips is None else trips.expr)


def build_artifact(fn: Func, options: Options, caps: Caps, log: Log | None = None) -> Artifact:
    """Optimize a Func and emit its shaders, or return the cached artifact of the same IR.

    With `log`, decisions of passes are appended to it. The cache is used if `options.cache` is set,
    `log` is None, and no variable requires a compilation (`env.shows_stages`). Raises DeviceError
    for missing device features.
    """
    with compiling(fn.name):
        if options.cache is None or log is not None or env.shows_stages():
            return _build(fn, options, caps, log)
        from vkchi.cache.content import get_or_build  # only needed with a cache

        return get_or_build(fn, options, caps, options.cache, _build)


def _build(fn: Func, options: Options, caps: Caps, log: Log | None = None) -> Artifact:
    from vkchi.opt.control.shallow import check_nesting
    from vkchi.opt.mapping.map_grid import plan_grid  # not needed for cached kernels
    from vkchi.opt.memo import Memo
    from vkchi.opt.pipeline import lower_dispatch, optimize_kernel
    from vkchi.spirv import emit

    memo = Memo(log)
    program, temps = optimize_kernel(fn, caps, options, memo)
    dispatches = []
    for k, func in enumerate(program.funcs):
        check_nesting(func)
        show_stage("opt", func)
        grid, lowered = plan_grid(func, caps), lower_dispatch(func, caps, memo)
        _, mark, label = func.name.partition(":")  # of `ti.loop_config(name=)`
        name = f"{fn.name}.{k}{mark}{label}"
        shader = emit(lowered, grid, caps, name, exact=options.exact, is_fast=options.fast_math)
        record(log, Decision("shader", func.span, shader.name, name=func.name))
        fills, size = program.fills.get(func.name, ()), program.sizes[func.name]
        reads, writes = memory_access(func)
        reads |= {found for name in reads if (found := listed_activity(name))}
        dispatches.append(Dispatch(shader, reads, writes, fills, size))
    return Artifact(
        fn.name, tuple(dispatches), array_types(fn.params), array_types(temps),
        reporting_sites(program), limits_of(program), work=work_of(fn),
    )  # fmt: skip


def array_types(params: Sequence[Param]) -> dict[str, Array]:
    return {p.name: p.type for p in params if isinstance(p.type, Array)}


def limits_of(program: Program) -> tuple[Check, ...]:
    """Checks of the iteration counts of the parallel loops that remain after optimization."""
    loops = [op for fn in program.funcs for op in fn.body.ops if op.kind == "parallel"]
    return tuple(check for op in loops for check in length_checks(op, TOO_MANY_HERE))


def checks_of(lowered: Lowered, artifact: Artifact) -> tuple[Check, ...]:
    """Checks that the host evaluates at each launch, without those proved to hold.

    They are the conditions that the frontend recorded, such as loop bounds within the index type,
    and limits of the iteration counts of parallel loops.
    """
    found = []
    for demand in lowered.demands:
        number = wrapped_count(host_number(demand.value), demand.value)
        if number is not None and not is_certain(demand.test, number):
            test = f"all({demand.test} for n in (n, w))"  # exact value, and value with wraparound
            found.append(Check(number.expr, test, demand.sentence, demand.span))
    loops = [op for op in lowered.func.body.ops if op.kind == "parallel"]
    found += [check for op in loops for check in length_checks(op, TOO_MANY)]
    if any(host_length(op) is None for op in loops):  # passes may have determined it
        found += artifact.limits
    return tuple(found)


def length_checks(loop: Op, sentence: str) -> list[Check]:
    """The check that the iteration count of a parallel loop is in range, as a list of one.

    Empty if that is proved, or if the host cannot compute the count.
    """
    length = host_length(loop)
    if length is None:
        return []
    test = f"n == w and n <= {most_iterations(loop)}"
    if without_wraps(length.expr) == length.expr and is_certain(test, length):
        return []
    return [Check(length.expr, test, sentence, loop.span)]


def is_certain(test: str, number: BoundedCount) -> bool:
    """True if all values in the range of `number` pass `test`.

    The range is that of the value with wraparound, which the kernel uses. Only its ends are tested,
    and 0 if it is between them. Precondition: a test that fails for any value in the range fails
    for one of these.
    """
    ends = [n for n in (number.lo, 0, number.hi) if number.lo <= n <= number.hi]
    passes = compile_test(test)
    return all(passes(n, n) for n in ends)


@lru_cache(maxsize=256)
def compile_test(test: str) -> Callable[[int, int], bool]:
    """Compile a test of `Check` to a function of the exact value `n` and the wrapped value `w`."""
    made: Callable[[int, int], bool] = eval(f"lambda n, w: {test}", {})
    return made


def reporting_sites(program: Program) -> dict[int, int]:
    """Map the site of each report op in `program` to the index of its dispatch."""
    return {
        op.attr: k
        for k, fn in enumerate(program.funcs)
        for op in walk(fn.body)
        if op.kind in REPORTS
    }


def memory_access(fn: Func) -> tuple[frozenset[str], frozenset[str]]:
    """(names of arrays read, names of arrays written) by a Func; ops that report write
    REPORT_ARRAY."""
    reads: set[str] = set()
    writes: set[str] = set()
    for op in walk(fn.body):
        if op.kind in REPORTS:
            writes.add(REPORT_ARRAY)
        array = base_memory(op.args[0]) if op.args else None
        if not isinstance(array, Param) or not isinstance(array.type, Array):
            continue
        if op.kind in READS:
            reads.add(array.name)
        if op.kind in WRITES:
            writes.add(array.name)
    return frozenset(reads), frozenset(writes)


def first_write(fn: Func, name: str) -> Span | None:
    """Span of the first write to the array `name`; None without a write, or if it has no span."""
    writes = (op for op in walk(fn.body) if op.kind in WRITES)
    names = ((op, getattr(base_memory(op.args[0]), "name", "")) for op in writes)
    return next((op.span for op, found in names if found == name), None)


def show_stage(stage: str, fn: Func) -> None:
    """Print a Func to stderr if VKCHI_PRINT names the stage; write it to the folder VKCHI_DUMP, if
    set."""
    is_printed = stage in env.stages_to_print()
    if not (is_printed or env.flag("VKCHI_DUMP")):
        return
    from vkchi.ir.text import print_func  # loaded on demand

    if is_printed:
        print(f"; {stage}\n{print_func(fn)}", file=sys.stderr)
    env.dump("VKCHI_DUMP", f"{fn.name}.{stage}.chi", print_func(fn).encode())


class _Clock:
    """Prints the time of each step to stderr if VKCHI_TIME is on."""

    def __init__(self, name: str) -> None:
        self.name, self.on, self.last = name, env.is_on("VKCHI_TIME"), time.perf_counter()

    def tick(self, step: str) -> None:
        now = time.perf_counter()
        if self.on:
            print(f"vkchi: {self.name}: {step} {1e3 * (now - self.last):.2f} ms", file=sys.stderr)
        self.last = now
