"""Race warnings outside debug mode; with `ti.cpu`, racing loops are serialized.

A kernel is watched if `suspects` found candidates when it was compiled. Its parallel loops are
examined before it runs, in at most MOST_LOOKS calls:

- A witness proves that two iterations conflict (`witness`). The result depends on shapes and
  integer arguments alone, and is cached on disk.
- A loop of 2 to MOST_TRIED iterations is tried once on copies, with the instrumentation of debug
  mode (`detector`). Candidates update an array at loaded indices and read it, or have a witness
  that depends on memory (`witness.IF`). Any addition counts; a store counts if it changes the
  element.

Each loop is reported once. If the user requested `ti.cpu` and gets a software device, a racing loop
of at most MOST_IN_ORDER iterations is serialized. The call then runs a variant compiled as with
`ti.loop_config(serialize=True)`. Such kernels are examined at every call, because other shapes may
be too large. Other kernels are not watched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vkchi.cache.codec import add_records
from vkchi.calls.facts import CachedQueries, Case, case_of
from vkchi.compile_state import compiling
from vkchi.errors import DeviceError, warn_at
from vkchi.interop import host_views
from vkchi.ir.core import Op, Value, walk
from vkchi.races.race import memory_name, race_message
from vkchi.span import PACKAGE, Span
from vkchi.target.remarks import KINDS, Caution
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.analysis.memory.boxes import Shaped
    from vkchi.launch.call_cache import GuardedKernels
    from vkchi.launch.compiled_kernel import CompiledKernel
    from vkchi.races import watch as facts
    from vkchi.races.suspects import RaceCandidates

MOST_LOOKS = 8  # examined calls of a kernel; each may have other shapes and integers
MOST_TRIED = MOST_IN_ORDER = 1 << 16  # limits on the trip count of a loop
SHOWN: dict[Any, Any] = {}  # a registry of Python's warnings
MOST_BYTES = 1 << 28  # limit on the arrays that a trial copies


class Proven(NamedTuple):
    """A conflict as data.

    `loop` is the number of its loop. With `is_open`, only a trial can prove it.
    """

    loop: int
    array: str
    is_read: bool
    first: Span | None
    second: Span | None
    is_open: bool = False


class Loops(NamedTuple):
    has_candidates: bool
    to_try: tuple[int, ...]


add_records(Proven, Loops)
if not TYPE_CHECKING:
    facts = CachedQueries(
        "races.watch",
        {"loops": "Loops"},
        {"proven": "tuple[Proven, ...]", "lengths": "dict[int, int]"},
    )


# --- queries -------------------------------------------------------------------------------------


def candidates_of(kernel: CompiledKernel) -> RaceCandidates:
    from vkchi.races.suspects import race_candidates

    return kernel.derived.find("suspects", None, lambda: race_candidates(kernel.func))


def numbers_of_loops(kernel: CompiledKernel) -> dict[Span | None, int]:
    found: dict[Span | None, int] = {}
    for op in walk(kernel.func.body):
        if op.kind == "parallel":
            found.setdefault(op.span, len(found))
    return found


def loops(kernel: CompiledKernel) -> Loops:
    numbers, made = numbers_of_loops(kernel), candidates_of(kernel)
    to_try = dict.fromkeys(numbers[m.loop.span] for m in made.by_trial)
    return Loops(bool(made.by_witness), tuple(to_try))


def proven(kernel: CompiledKernel, case: Case) -> tuple[Proven, ...]:
    """One conflict per loop that has a witness in a call of this case; open conflicts included."""
    from vkchi.races.witness import IF, WitnessSearch

    numbers, made = numbers_of_loops(kernel), candidates_of(kernel)
    search = WitnessSearch(made.func, made.by_witness, dict(case[0]), dict(case[1]))
    found: dict[int, Proven] = {}
    for m in sorted(made.by_witness, key=lambda m: m.first[0].kind != "load"):
        loop = numbers[m.loop.span]
        if loop not in found or found[loop].is_open:
            how = search.find(m)
            if how and (how != IF or loop not in found):
                found[loop] = described(loop, m.root, m.first[0], m.second[0], is_open=how == IF)
    return tuple(found.values())


def described(loop: int, root: Value, one: Op, other: Op, *, is_open: bool = False) -> Proven:
    return Proven(loop, memory_name(root), one.kind == "load", one.span, other.span, is_open)


def lengths(kernel: CompiledKernel, case: Case) -> dict[int, int]:
    """Trip counts by loop number in a call of this case, if they are known."""
    from vkchi.races.witness import WitnessSearch

    search = WitnessSearch(kernel.func, (), dict(case[0]), dict(case[1]))
    found: dict[int, int] = {}
    for op in walk(kernel.func.body):
        if op.kind == "parallel":
            length = search.length(op)
            if length is not None:
                number = numbers_of_loops(kernel)[op.span]
                found[number] = max(length, found.get(number, 0))
    return found


def case_of_launch(kernel: CompiledKernel, args: tuple[Any, ...]) -> Case:
    """Integers and shapes of a launch; nothing is bound or copied."""
    from vkchi.calls.call import leaf_arguments

    arrays: dict[str, Shaped] = dict(kernel.fields(args))
    numbers: dict[str, int] = {}
    types = kernel.artifact.arrays
    for parameter, arg in leaf_arguments(kernel, args):
        if isinstance(arg, int):
            numbers[parameter.name] = int(arg)
        elif parameter.kind == "array" and parameter.name in types:
            view = arg if hasattr(arg, "elem") else host_views.view_of(arg)
            if view is not None:
                arrays[parameter.name] = ShapeOnly(tuple(view.shape)[: types[parameter.name].ndim])
    return case_of(numbers, arrays)


class ShapeOnly(NamedTuple):
    shape: tuple[int, ...]


# --- watching ------------------------------------------------------------------------------------


class RaceWatch:
    """Race examination of a kernel's first calls, or of all calls once a loop was serialized.

    `variants` are the kernel's variants by serialized loops. With `is_kept`, they are cached on
    disk.
    """

    def __init__(self, is_kept: bool) -> None:
        self.is_kept = is_kept
        self.left = MOST_LOOKS
        self.tried: set[int] = set()
        self.raced: dict[int, Proven] = {}
        self.told: set[int] = set()
        self.variants: dict[tuple[int, ...], GuardedKernels] = {}

    def look(
        self, kernel: CompiledKernel, args: tuple[Any, ...], *, is_run: bool
    ) -> tuple[int, ...]:
        """Warn about races in a call; return the numbers of the loops to serialize.

        Only calls that run (`is_run`) are counted and tried on copies. After the last call to
        examine, `kernel.watch` is set to None.
        """
        if kernel.is_ours or kernel.runtime.options.accepts_races(kernel.path):
            kernel.watch = None
            return ()
        has_candidates, to_try = facts.loops(kernel)
        case = case_of_launch(kernel, args)
        found = {p.loop: p for p in facts.proven(kernel, case)} if has_candidates else {}
        length = facts.lengths(kernel, case) if found or to_try else {}
        is_open = {k for k, p in found.items() if p.is_open}
        found = {k: p for k, p in found.items() if not p.is_open}
        if is_run:
            self.left -= 1
            for loop in sorted(is_open.union(to_try) - self.tried - found.keys()):
                if 2 <= length.get(loop, 0) <= MOST_TRIED:
                    self.tried.add(loop)
                    self.raced.update((p.loop, p) for p in try_loop(kernel, args, loop))
        found |= self.raced
        in_order: tuple[int, ...] = ()
        if kernel.runtime.is_cpu_wanted:
            in_order = tuple(
                k for k in sorted(found) if length.get(k, MOST_IN_ORDER + 1) <= MOST_IN_ORDER
            )
        for k in sorted(found.keys() - self.told):
            if k in in_order or not kernel.runtime.options.debug:  # debug mode warns itself
                warn_race(kernel, found[k], is_in_order=k in in_order)
            self.told.add(k)
        if self.left <= 0 and not self.variants and not in_order:
            kernel.watch = None
        return in_order


def try_loop(kernel: CompiledKernel, args: tuple[Any, ...], loop: int) -> Iterator[Proven]:
    """Yield the first conflict that a run on copies shows, if any.

    Nothing if memory is short, or if the copies would exceed MOST_BYTES.
    """
    from vkchi.calls.call import describe_call
    from vkchi.races.detector import DetectorOptions, group_by_lines, instrument_races
    from vkchi.races.meeting import InstrumentedRun
    from vkchi.races.witness import IF, WitnessSearch

    numbers, found = numbers_of_loops(kernel), candidates_of(kernel)
    given, shapes = case_of_launch(kernel, args)
    with compiling(kernel.derived.title):
        search = WitnessSearch(found.func, found.by_witness, dict(given), dict(shapes))
        is_open = [m for m in found.by_witness if search.find(m) == IF]
    some = [m for m in (*found.by_trial, *is_open) if numbers[m.loop.span] == loop]
    call = describe_call(kernel.func.name, kernel, args)
    if (
        sum(call.arrays[name].size_bytes for name in kernel.written & call.arrays.keys())
        > MOST_BYTES
    ):
        return
    groups = group_by_lines(some)
    added = {op.args[1] for m in some for op in m.second if op.kind != "store"}
    made = instrument_races(found.func, groups, DetectorOptions(knows_values=True, active=added))
    try:
        met = InstrumentedRun(call, groups, made).find(call)
    except DeviceError:
        return
    if met:
        group = groups[met[0]]
        yield described(loop, group.root, group.first[0], group.second[0])


def warn_race(kernel: CompiledKernel, race: Proven, *, is_in_order: bool) -> None:
    """Warn about a conflict at the user's line of its first access, if there is one."""
    one, other = user_location(race.first), user_location(race.second)
    if one is None:
        return
    text = race_message(race.array, one, other, is_read=race.is_read)
    otherwise = f"read from a copy of `{race.array}`" if race.is_read else "let one iteration store"
    otherwise = f", or {otherwise}"
    if is_in_order:
        text += "; under arch=ti.cpu the loop runs serially, in order"
        otherwise = ""
    help = f"write ti.loop_config(serialize=True) before the loop{otherwise}"
    caution = Caution("race", f"{kernel.path.rpartition('.')[2]}(): {text}", help, one)
    kind = KINDS[caution.kind]
    warn_at(caution.text(), kind, one.file, one.line, SHOWN)


def user_location(span: Span | None) -> Span | None:
    while span is not None and span.file.startswith(PACKAGE):
        span = span.caller
    return span
