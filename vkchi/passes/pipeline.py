"""Which passes run, in which order, and why: the order is data.

Owns: the list of passes by name, the two stages (before and after the split into dispatches), the
checks between passes. Must not know: what passes do.

    program, temps = optimise(fn, caps, options)
    PASSES["licm"](fn)

A pass is imported when it first runs. The verifier looks at what every pass returns, unless it
returned the Func it was given.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from vkchi.env import is_on, passes_left_out
from vkchi.errors import ArgumentError, InternalError
from vkchi.ir.core import Func, Param, Program, Value
from vkchi.ir.verify import verify
from vkchi.target.caps import FULL, SMALLEST, Caps
from vkchi.target.options import Options
from vkchi.tuples import NamedTuple

Change = Callable[[Func], "Func | Program"]


class Entry(NamedTuple):
    """Where a pass is: `module:function`; `takes` says what it is called with besides the Func:
    `caps`, or both of `caps, options`."""

    where: str
    takes: str = ""


class Step(NamedTuple):
    """A pass in the pipeline and the reason for its place. With `after`, it runs only if one of
    those passes, in the same stage, has changed the Func."""

    name: str
    why: str
    after: tuple[str, ...] = ()


ENTRIES: dict[str, Entry] = {
    "simplify": Entry("simplify:simplify"),
    "simplify_fast": Entry("simplify:simplify_fast"),
    "cse": Entry("cse:merge_equal_ops"),
    "dce": Entry("dce:remove_dead"),
    "unread": Entry("dce:remove_unread"),
    "forward": Entry("store_forwarding:forward_memory"),
    "dead_stores": Entry("store_forwarding:remove_dead_stores"),  # before differentiation
    "licm": Entry("licm:hoist_invariants"),
    "demote": Entry("demote:demote_atomics"),
    "demote_all": Entry("demote:demote_all_atomics"),
    "demote_but_sums": Entry("demote:demote_but_sums"),
    "strength": Entry("strength:reduce_strength"),
    "split": Entry("split:split_dispatches"),
    "coarsen": Entry("coarsen:coarsen", "caps"),
    "reduce": Entry("reduce:reduce", "caps"),
    "jam": Entry("jam:jam", "caps"),
    "indices": Entry("indices:order_indices"),
    "commoning": Entry("commoning:common_loads"),
    "promote": Entry("promote:promote_elements"),
    "workgroup": Entry("workgroup:fill_groups", "caps"),  # a part of map_grid
    "map_grid": Entry("map_grid:map_grid", "caps, options"),
    "wide": Entry("wide:cut_wide_loops"),  # run on what the frontend makes, by the compiler
    "bounds": Entry("bounds:bounds"),
    "legalize": Entry("legalize:legalize", "caps"),
    "access": Entry("access:lower_access"),
    "neighbours": Entry("neighbours:join_neighbours", "caps"),
    "bases": Entry("bases:take_constants_apart", "caps"),
    "streams": Entry("streams:lower_random"),
    "records": Entry("records:lower_reports"),
    "fission": Entry("fission:cut_long_loops"),
    "shallow": Entry("shallow:keep_shallow"),  # run on what the frontend makes, by the compiler
}

# On the whole kernel, before it is cut into dispatches.
BEFORE_SPLIT: tuple[Step, ...] = (
    Step("simplify", "static shapes and known branches: fewer dispatches, less to copy"),
    Step("dce", "what is dead must not travel between dispatches"),
    Step("fission", "last before the cut: more loops are more dispatches"),
)

# On each dispatch.
PER_DISPATCH: tuple[Step, ...] = (
    Step("demote", "loads and stores are what licm and forward understand"),
    Step("licm", "before forward, which merges what came out of a loop with what stood there"),
    Step("forward", "loads become values that the rules can see"),
    Step("simplify", "what forward left: components of packs, conditions now known", ("forward",)),
    Step("dce", "private places never read; reduce wants to see all uses of a place", ("forward",)),
    Step("bounds", "reduce and map_grid hide that an index belongs to its loop"),
    Step("coarsen", "makes serial loops for reduce to take sums out of"),
    Step("simplify", "strips of constants, and equal ops of several lines", ("coarsen",)),
    Step("licm", "places must be computed outside of the loop that sums", ("coarsen",)),
    Step("reduce", "needs the final loops and places, and makes new ones"),
    Step(
        "demote_all", "what came out of serial loops may be private now, and reduce left the rest"
    ),
    Step("forward", "and so it meets other accesses of its place", ("reduce",)),
    Step("promote", "after forward, which needs no place for straight code; jam copies places"),
    Step("indices", "jam sees what varies by what indices are made of"),
    Step("jam", "reduce makes serial loops; map_grid counts what is left of the axes"),
    Step("indices", "and what jam adds to them; map_grid hides what they are made of", ("jam",)),
    Step("simplify", "equal indices of neighbours side by side are one value", ("jam",)),
    Step("forward", "what one of them loads, another need not", ("jam",)),
    Step("commoning", "what jam laid side by side is what the next round loads"),
    Step("map_grid", "after reduce, which shares loops out, and what it blinds: demote, bounds"),
    Step(
        "simplify",
        "reduce and map_grid build without looking around",
        ("reduce", "jam", "indices", "map_grid"),
    ),
    Step(
        "licm",
        "what all iterations of an invocation share",
        ("reduce", "jam", "indices", "map_grid"),
    ),
    Step("bounds", "the places that reduce made", ("reduce",)),
    Step("legalize", "all ops are there; what follows makes none that a device may lack"),
    Step("strength", "last: bounds and the grid read the plain forms"),
    Step("dce", "what these left unused", ("reduce", "jam", "indices", "map_grid", "legalize")),
)

# On each dispatch, before it is emitted: what stands in the op table as `LOWERED` is written in
# other ops. Passes that reason about elements come before.
LOWERING: tuple[Step, ...] = (
    Step("access", "addresses are arithmetic like any other from here on"),
    Step("licm", "the parts of addresses that a serial loop does not change", ("access",)),
    Step(
        "neighbours", "offsets are equal where they can be, and loads where they stay", ("access",)
    ),
    Step("streams", "nobody asks any more whether a Func draws"),
    Step("records", "until here, reports touch no memory"),
    Step("bases", "last: what it says of addresses is for the emitter"),
)

# What programs run without, if slower; `VKCHI_PASSES` can leave it out.
OPTIONAL = frozenset({
    "bases", "coarsen", "commoning", "demote", "demote_all", "fission", "forward", "indices", "jam",
    "licm", "neighbours", "promote", "reduce", "strength",
})  # fmt: skip


def left_out() -> frozenset[str]:
    """The passes that `VKCHI_PASSES` leaves out. Raises ArgumentError for what is no such pass."""
    names = passes_left_out()
    for name in sorted(names - OPTIONAL):
        raise ArgumentError(
            f"VKCHI_PASSES cannot leave out {name!r}; it can {', '.join(sorted(OPTIONAL))}"
        )
    return names


def load_pass(name: str) -> Callable[..., Any]:
    """The function of a pass. Raises KeyError saying which passes there are."""
    if name not in ENTRIES:
        raise KeyError(f"no pass is called {name!r}; there are {', '.join(ENTRIES)}")
    module, _, function = ENTRIES[name].where.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"vkchi.passes.{module}"), function)
    return found


class Pass:
    """A pass by its name, as a function of a Func. Where it depends on the device, it is called
    with the capabilities given here."""

    def __init__(self, name: str, caps: Caps = FULL, options: Options | None = None) -> None:
        self.name, self.given = name, {"caps": caps, "options": options or Options()}

    def __call__(self, fn: Func) -> Any:
        """The changed Func; of `split`, the Program."""
        run = load_pass(self.name)
        takes = ENTRIES[self.name].takes
        result = run(fn, *[self.given[name] for name in takes.split(", ") if name])
        return result[0] if isinstance(result, tuple) else result


# By name, for tests and the command line: a device that can do all; legalize for the least device.
PASSES: dict[str, Change] = {name: Pass(name) for name in ENTRIES}
PASSES["legalize"] = Pass("legalize", SMALLEST)


def optimise(fn: Func, caps: Caps, options: Options) -> tuple[Program, tuple[Param, ...]]:
    """The kernel's dispatches for a device, and the temporaries that a launch must provide.

    Dispatches without effects are left out. Raises InternalError if a pass breaks the IR.
    """
    clock = Clock(fn.name)
    fn = run_steps(fn, BEFORE_SPLIT, caps, options, clock)
    program, temps = load_pass("split")(fn)
    clock.tick("split")
    funcs = [run_steps(f, PER_DISPATCH, caps, options, clock) for f in program.funcs]
    kept = tuple(f for f in funcs if len(f.body.ops) > 1)
    used = {p for f in kept for p in f.params}
    clock.show()
    return Program(program.name, kept), tuple(p for p in temps if p in used)


def lower(fn: Func, caps: Caps) -> Func:
    """A dispatch in ops that code is emitted for. Raises InternalError if a pass breaks the IR."""
    clock = Clock(f"{fn.name}, lowered")
    fn = run_steps(fn, LOWERING, caps, Options(), clock)
    clock.show()
    return fn


def run_steps(fn: Func, steps: Sequence[Step], caps: Caps, options: Options, clock: Clock) -> Func:
    """The Func after these passes, each one's result verified."""
    changed: set[str] = set()
    known: set[Value] = set()
    missing = left_out()
    for step in steps:
        if step.name in missing:
            continue
        if step.after and changed.isdisjoint(step.after):
            continue
        name = "simplify_fast" if options.fast_math and step.name == "simplify" else step.name
        new = Pass(name, caps, options)(fn)
        clock.tick(name)
        if new is fn:
            continue
        fn = new
        changed.add(step.name)
        verify_result(fn, name, known)
        clock.tick("verify")
    return fn


def verify_result(fn: Func, name: str, known: set[Value] | None = None) -> None:
    """Raises InternalError naming the pass if it broke the Func; `known` as in `verify`."""
    try:
        verify(fn, known)
    except InternalError as e:
        raise InternalError(f"after pass `{name}`: {e}") from None


class Clock:
    """Adds up what each pass takes, and says so where VKCHI_TIME is on."""

    def __init__(self, title: str) -> None:
        self.title, self.on = title, is_on("VKCHI_TIME")
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def tick(self, name: str) -> None:
        """Count the time since the last tick for `name`."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
        self.last = now

    def show(self) -> None:
        """One line to stderr, in milliseconds."""
        if self.on:
            parts = ", ".join(f"{name} {1e3 * s:.2f}" for name, s in self.seconds.items())
            print(f"vkchi: {self.title}: passes (ms): {parts}", file=sys.stderr)
