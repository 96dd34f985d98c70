"""The pass pipeline: the order of passes, as data with a reason per step.

The stages are: before the split into dispatches, per dispatch, and lowering.

    program, temps = optimise(fn, caps, options)
    PASSES["licm"](fn)

A pass is imported when it first runs. The verifier checks the final result. If that is invalid,
or if `VKCHI_VERIFY` is set, it checks the result of every pass.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vkchi.analysis.fills import fills_of
from vkchi.env import is_on, passes_left_out
from vkchi.errors import ArgumentError, InternalError
from vkchi.interrupts.local import local
from vkchi.ir.core import NO_FILLS, Func, Param, Program, Region
from vkchi.ir.ops import ATOMICS, LOOPS, PLAIN_ACCESSES, QUOTIENTS, ROUNDED_DOWN, UPDATES
from vkchi.ir.report_ops import REPORTS
from vkchi.ir.verify import verify
from vkchi.passes.memo import Memo
from vkchi.passes.tiers import Tier
from vkchi.target.caps import FULL, SMALLEST, Caps
from vkchi.target.options import Options
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.passes.simplify import Ruleset
    from vkchi.target.artifact import MemoryFill

Change = Callable[[Func], "Func | Program"]
Given = Mapping[str, Any]  # caps, options, memo, tier
Check = Callable[[Func, str], None]  # called with the result of a pass and its name
BRANCHES = LOOPS | {"if"}


class BuiltDispatches(NamedTuple):
    """Dispatches with their temporaries, and the dispatches that only fill arrays."""

    funcs: Sequence[Func]
    temps: Sequence[Param] = ()
    fills: Mapping[str, tuple[MemoryFill, ...]] = NO_FILLS


class PassEntry(NamedTuple):
    """Location and requirements of a pass.

    - `where`: `module:function`.
    - `takes`: arguments besides the Func, of `caps, options, memo, tier`.
    - `needs`: op kinds without which the pass changes nothing.
    - `several`: one such op, outside serial loops, is not enough, unless the Func has a kind of
      `beside`.
    """

    where: str
    takes: str = ""
    needs: Collection[str] = ()
    several: bool = False
    beside: Collection[str] = ()


class PassStep(NamedTuple):
    """A pass in the pipeline and the reason for its position.

    With `after`, the step runs only if one of those passes, in the same stage, changed the Func.
    A changed mapping of loops to the device alone does not count.
    """

    name: str
    why: str
    after: tuple[str, ...] = ()


ENTRIES: dict[str, PassEntry] = {
    "simplify": PassEntry("simplify:simplify", "memo"),
    "simplify_fast": PassEntry("simplify:simplify_fast", "memo"),
    "cse": PassEntry("cse:merge_equal_ops"),
    "dce": PassEntry("dce:remove_dead"),
    "unread": PassEntry("dce:remove_unread"),
    "forward": PassEntry("store_forwarding:forward_memory", needs=PLAIN_ACCESSES),
    "dead_stores": PassEntry("store_forwarding:remove_dead_stores"),  # before differentiation
    "licm": PassEntry("licm:hoist_invariants", needs=LOOPS),
    "demote": PassEntry("demote:demote_atomics", needs=UPDATES),
    "demote_all": PassEntry("demote:demote_all_atomics", needs=UPDATES),
    "demote_but_sums": PassEntry("demote:demote_but_sums", needs=UPDATES),
    "strength": PassEntry("strength:reduce_strength", needs=ROUNDED_DOWN.keys()),
    "distribute": PassEntry("distribute:distribute", "caps, memo", ("atomic_add",), several=True),
    "expand": PassEntry("expand:expand_scalars", "caps, memo", ("atomic_add",), several=True),
    "gather": PassEntry(
        "gather:scatter_to_gather", "caps, memo", ("atomic_add",), several=True, beside=QUOTIENTS
    ),
    "reciprocals": PassEntry("reciprocals:multiply_instead", "caps", tuple(ROUNDED_DOWN.values())),
    "peel": PassEntry("peel:peel", "caps, tier", ("parallel",)),
    "split": PassEntry("split:split_dispatches"),
    "coarsen": PassEntry("coarsen:coarsen", "caps", ATOMICS.keys()),
    "bins": PassEntry("bins:privatize_histograms", "caps", ATOMICS.keys()),
    "reduce": PassEntry("reduce:reduce", "caps", ATOMICS.keys()),
    "jam": PassEntry("jam:jam", "caps", ("parallel",)),
    "jam_sums": PassEntry("jam:jam_reductions", "caps", ATOMICS.keys()),
    "indices": PassEntry("indices:order_indices", needs=("elem",)),
    "commoning": PassEntry("commoning:common_loads", needs=("for",)),
    "promote": PassEntry("promote:promote_elements", needs=BRANCHES),
    "workgroup": PassEntry(
        "workgroup:pad_to_workgroup", "caps", ("barrier",)
    ),  # a part of map_grid
    "remainders": PassEntry("remainders:turn_remainders", "caps", ("mod",)),
    "predicate": PassEntry("predicate:predicate", "caps", ("if",)),
    "jump_threading": PassEntry("jump_threading:thread_jumps", "caps", ("if",), several=True),
    "unroll": PassEntry("unroll:unroll", "caps", ("for",)),
    "unroll_sums": PassEntry("unroll_sums:unroll_sums", needs=ATOMICS.keys(), several=True),
    "unroll_loads": PassEntry("unroll_loads:unroll_loads", "caps", ("for",), several=True),
    "unroll_words": PassEntry("unroll_words:unroll_words", "caps", ("for",)),
    "lanes": PassEntry("lanes:share_lanes", "caps", ("for",)),
    "map_grid": PassEntry("map_grid:map_grid", "caps, options"),
    "wide": PassEntry("wide:cut_wide_loops"),  # run by the compiler on frontend output
    "bounds": PassEntry("bounds:eliminate_bounds_checks"),
    "combine": PassEntry("combine:combine_lanes", "caps", ATOMICS.keys()),
    "legalize": PassEntry("legalize:legalize", "caps"),
    "access": PassEntry("lower_access:lower_access"),
    "neighbours": PassEntry("neighbours:join_neighbours", "caps", ("address",)),
    "broadcast": PassEntry("broadcast:broadcast_loads", "caps", ("for",)),
    "arithmetic": PassEntry("arithmetic:lower_arithmetic", "caps"),
    "bases": PassEntry("bases:mark_constant_offsets", "caps", ("address",)),
    "rounds": PassEntry("rounds:spell_rounds", "caps", ("for",)),
    "stores_last": PassEntry("stores_last:keep_stores_back", "caps", ("store", *ATOMICS)),
    "streams": PassEntry("streams:lower_random", needs=("random",)),
    "roots": PassEntry("roots:compare_squares", needs=("sqrt",)),
    "records": PassEntry("lower_reports:lower_reports", needs=REPORTS),
    "fission": PassEntry("fission:cut_long_loops", needs=("parallel",)),
    "fusion": PassEntry("fusion:fuse_loops", needs=("parallel",), several=True),
    "shallow": PassEntry("shallow:limit_nesting"),  # run by the compiler on frontend output
}

# On the whole kernel, before it is split into dispatches.
BEFORE_SPLIT: tuple[PassStep, ...] = (
    PassStep("simplify", "static shapes and known branches: fewer dispatches, less to copy"),
    PassStep("dce", "what is dead must not travel between dispatches"),
    PassStep("fusion", "the spaces of loops are known; each dispatch has less to load then"),
    PassStep("expand", "what distribute and gather could not take, for what it takes to compute"),
    PassStep("distribute", "coarsen, after the cut, makes strips of the new loops"),
    PassStep("gather", "loops run over elements then, and ask whose these are, which peel answers"),
    PassStep(
        "simplify",
        "what one iteration computes that another one needs",
        ("expand", "distribute", "gather"),
    ),
    PassStep(
        "dce", "what iterations do besides what is gathered", ("expand", "distribute", "gather")
    ),
    PassStep("peel", "the edges of a loop are a dispatch; conditions are in few forms by now"),
    PassStep("simplify", "branches that are known in the middle", ("peel",)),
    PassStep("dce", "what only they needed", ("peel",)),
    PassStep("fission", "last before the cut: more loops are more dispatches"),
)

# On each dispatch.
PER_DISPATCH: tuple[PassStep, ...] = (
    PassStep("unroll_sums", "before reduce, which takes sums whose places are known"),
    PassStep("simplify", "and these places are numbers then", ("unroll_sums",)),
    PassStep("demote", "loads and stores are what licm and forward understand"),
    PassStep("licm", "before forward, which merges what came out of a loop with what stood there"),
    PassStep("jump_threading", "before forward: a branch knows what its condition has loaded"),
    PassStep("forward", "loads become values that the rules can see"),
    PassStep(
        "simplify",
        "what these left: components of packs, conditions now known",
        ("jump_threading", "forward"),
    ),
    PassStep(
        "dce",
        "private places never read; reduce wants to see all uses of a place",
        ("jump_threading", "forward"),
    ),
    PassStep("bounds", "reduce and map_grid hide that an index belongs to its loop"),
    PassStep("coarsen", "makes serial loops for reduce to take sums out of"),
    PassStep("simplify", "strips of constants, and equal ops of several lines", ("coarsen",)),
    PassStep("licm", "places must be computed outside of the loop that sums", ("coarsen",)),
    PassStep("jam_sums", "before reduce, after which terms of a sum are no neighbours"),
    PassStep("bins", "before reduce, which takes out of serial loops what they need not do there"),
    PassStep("reduce", "needs the final loops and places, and makes new ones"),
    PassStep(
        "demote_all", "what came out of serial loops may be private now, and reduce left the rest"
    ),
    PassStep("forward", "and so it meets other accesses of its place", ("reduce",)),
    PassStep("promote", "after forward, which needs no place for straight code; jam copies places"),
    PassStep("indices", "jam sees what varies by what indices are made of"),
    PassStep("jam", "reduce makes serial loops; map_grid counts what is left of the axes"),
    PassStep(
        "indices", "and what jam adds to them; map_grid hides what they are made of", ("jam",)
    ),
    PassStep("simplify", "equal indices of neighbours side by side are one value", ("jam",)),
    PassStep("forward", "what one of them loads, another need not", ("jam",)),
    PassStep("unroll_loads", "jam shares what short loops load while they are loops"),
    PassStep("simplify", "the places of rounds are numbers", ("unroll_loads",)),
    PassStep("licm", "what all rounds of a loop around load", ("unroll_loads",)),
    PassStep("forward", "several short loops load the same there", ("unroll_loads",)),
    PassStep(
        "bounds", "places of which it was not known there; map_grid blinds it", ("unroll_loads",)
    ),
    PassStep("commoning", "what jam laid side by side is what the next round loads"),
    PassStep("remainders", "who reads remainders has; map_grid hides what indices run over"),
    PassStep("lanes", "as map_grid, of what has no grid: reduce and bounds are through"),
    PassStep(
        "map_grid", "after reduce, which shares loops out, and what it blinds: demote, bounds"
    ),
    PassStep(
        "simplify",
        "reduce and map_grid build without looking around",
        ("bins", "reduce", "jam", "indices", "lanes", "map_grid"),
    ),
    PassStep(
        "licm",
        "what all iterations of an invocation share",
        ("bins", "reduce", "jam", "indices", "lanes", "map_grid"),
    ),
    PassStep(
        "predicate", "after bounds, which proves by branches; unroll takes loops without them"
    ),
    PassStep(
        "unroll", "what is known of loops' lengths is known; before neighbours, which joins loads"
    ),
    PassStep("unroll_words", "as unroll: on other devices, of other loops"),
    PassStep(
        "simplify", "indices of rounds, what is equal now", ("predicate", "unroll", "unroll_words")
    ),
    PassStep("forward", "what one round stores the next need not load", ("unroll_words",)),
    PassStep("bounds", "the places that reduce made", ("reduce",)),
    PassStep("roots", "who else asks for a root has been found out; legalize may write roots"),
    PassStep("combine", "of atomics that are left, those that legalize writes as loops"),
    PassStep("legalize", "all ops are there; what follows makes none that a device may lack"),
    PassStep("strength", "last: bounds and the grid read the plain forms"),
    PassStep("reciprocals", "of the divisions that strength writes"),
    PassStep(
        "dce",
        "what these left unused",
        ("reduce", "jam", "indices", "lanes", "map_grid", "legalize", "roots"),
    ),
)

# On each dispatch, before it is emitted: expands the ops marked `LOWERED` in the op table.
# Passes that analyze elements run before.
LOWERING: tuple[PassStep, ...] = (
    PassStep("access", "addresses are arithmetic like any other from here on"),
    PassStep("licm", "the parts of addresses that a serial loop does not change", ("access",)),
    PassStep("broadcast", "what an address is made of stands before its loop"),
    PassStep("dce", "addresses in its tiles that only loads of others need", ("broadcast",)),
    PassStep(
        "neighbours", "offsets are equal where they can be, and loads where they stay", ("access",)
    ),
    PassStep("stores_last", "accesses are those that are emitted"),
    PassStep("streams", "nobody asks any more whether a Func draws"),
    PassStep("records", "until here, reports touch no memory"),
    PassStep("arithmetic", "no pass reads divisions and lengths any more"),
    PassStep(
        "rounds", "loads that are joined need no offset of their own; bases takes constants away"
    ),
    PassStep("licm", "the terms of offsets that no round changes", ("rounds",)),
    PassStep("dce", "the offsets as they were", ("rounds",)),
    PassStep("bases", "last: what it says of addresses is for the emitter"),
)

# Optimizations that are not required for correctness; `VKCHI_PASSES` can disable them.
OPTIONAL = frozenset({
    "bases", "bins", "broadcast", "coarsen", "combine", "commoning", "demote", "demote_all",
    "distribute", "expand", "fills", "fission", "forward", "fusion", "gather", "indices", "jam",
    "jam_sums", "jump_threading", "lanes", "licm", "neighbours", "peel", "predicate", "promote",
    "reciprocals", "reduce", "remainders", "roots", "rounds", "stores_last", "strength", "unroll",
    "unroll_loads", "unroll_sums", "unroll_words",
})  # fmt: skip

# Passes that run on loops over arrays without branches and reductions.
USUAL = (
    "split", "simplify", "dce", "peel", "fission", "forward", "bounds", "indices", "jam",
    "map_grid", "licm", "unroll", "unroll_words", "legalize", "strength", "reciprocals", "access",
    "broadcast", "neighbours", "rounds", "stores_last", "arithmetic", "bases",
)  # fmt: skip


def disabled_passes() -> frozenset[str]:
    """Return the passes that `VKCHI_PASSES` disables.

    Raises ArgumentError if one is not an optional pass.
    """
    names = passes_left_out()
    for name in sorted(names - OPTIONAL):
        raise ArgumentError(
            f"VKCHI_PASSES cannot leave out {name!r}; it can {', '.join(sorted(OPTIONAL))}"
        )
    return names


@cache
def load_pass(name: str) -> Callable[..., Any]:
    """Return the function of a pass. Raises KeyError for an unknown name."""
    if name not in ENTRIES:
        raise KeyError(f"no pass is called {name!r}; there are {', '.join(ENTRIES)}")
    module, _, function = ENTRIES[name].where.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"vkchi.passes.{module}"), function)
    return found


def load_usual() -> None:
    """Import the passes that run on a plain loop over arrays, and compile the rules."""
    for name in USUAL:
        load_pass(name)
    rules: Ruleset = import_module("vkchi.passes.simplify").exact_rules()
    rules.prepare()


class Pass:
    """A pass by name, callable on a Func, with fixed device capabilities and options."""

    def __init__(self, name: str, caps: Caps = FULL, options: Options | None = None) -> None:
        self.name, self.caps, self.options = name, caps, options or Options()

    def __call__(self, fn: Func) -> Any:
        """Return the changed Func, or the Program of `split`."""
        given = given_to(fn, self.caps, self.options, Memo())
        result = run_pass(self.name, fn, given)
        return result[0] if isinstance(result, tuple) else result


def run_pass(name: str, fn: Func, given: Given) -> Any:
    """Run a pass on a Func with the arguments that it takes."""
    entry = ENTRIES[name]
    if not may_apply(entry, fn, given["memo"]):
        return fn
    return load_pass(name)(fn, *[given[name] for name in entry.takes.split(", ") if name])


def may_apply(entry: PassEntry, fn: Func, memo: Memo) -> bool:
    """True if a Func contains the ops that a pass needs."""
    if entry.needs and not memo.has(fn, entry.needs):
        return False
    if not entry.several or count_up_to_two(fn.body, entry.needs) >= 2:
        return True
    return bool(entry.beside) and memo.has(fn, entry.beside)


def count_up_to_two(region: Region, kinds: Collection[str]) -> int:
    """Count ops of these kinds in a region, at most two. An op in a serial loop counts as two."""
    count = sum(op.kind in kinds for op in region.ops)
    for op in region.ops:
        if op.regions and count < 2:
            inside = sum(count_up_to_two(r, kinds) for r in op.regions)
            count += 2 * inside if op.kind in LOOPS else inside
    return count


# Passes by name, for tests and the command line, on a device with all capabilities. Exceptions:
# passes for CPUs get a CPU, `legalize` the least capable device.
CPU = FULL._replace(kind="cpu", subgroup_size=8)
PASSES: dict[str, Change] = {name: Pass(name) for name in ENTRIES}
PASSES["arithmetic"] = Pass("arithmetic", CPU._replace(signed_zero_inf_nan_f32=True))
PASSES["bins"] = Pass("bins", CPU)
PASSES["broadcast"] = Pass("broadcast", CPU)
PASSES["expand"] = Pass("expand", CPU)
PASSES["combine"] = Pass("combine", FULL._replace(f32_atomic_add=False, f64_atomic_add=False))
PASSES["jam_sums"] = Pass("jam_sums", CPU)
PASSES["jump_threading"] = Pass("jump_threading", CPU)
PASSES["peel"] = Pass("peel", CPU)
PASSES["remainders"] = Pass("remainders", CPU)
PASSES["lanes"] = Pass("lanes", CPU)
PASSES["rounds"] = Pass("rounds", CPU)
PASSES["unroll_loads"] = Pass("unroll_loads", CPU)
PASSES["unroll_words"] = Pass("unroll_words", CPU)
PASSES["legalize"] = Pass("legalize", SMALLEST)


def given_to(fn: Func, caps: Caps, options: Options, memo: Memo) -> Given:
    """Arguments available to passes on a Func."""
    return {"caps": caps, "options": options, "memo": memo, "tier": Tier(fn, options)}


def optimize_kernel(
    fn: Func, caps: Caps, options: Options, memo: Memo | None = None
) -> tuple[Program, tuple[Param, ...]]:
    """Return a kernel's dispatches for a device, and the temporaries that a launch provides.

    Dispatches without effects are left out. Raises InternalError if a pass breaks the IR.
    """
    given = given_to(fn, caps, options, memo or Memo())
    clock = PassTimer(fn.name)
    made = run_verified(lambda check: cut_dispatches(fn, given, clock, check), given, clock)
    kept = tuple(f for f in made.funcs if len(f.body.ops) > 1)
    used = {p for f in kept for p in f.params}
    clock.show()
    program = Program(fn.name, kept, made.fills, has_next=given["tier"].has_next)
    return program, tuple(p for p in made.temps if p in used)


def cut_dispatches(fn: Func, given: Given, clock: PassTimer, check: Check) -> BuiltDispatches:
    """Split a kernel into optimized dispatches and temporaries."""
    program, temps = load_pass("split")(run_passes(fn, BEFORE_SPLIT, given, check))
    clock.tick("split")
    fills = find_fills(program, given["caps"])
    return BuiltDispatches(
        [run_passes(f, PER_DISPATCH, given, check) for f in program.funcs], temps, fills
    )


def find_fills(program: Program, caps: Caps) -> dict[str, tuple[MemoryFill, ...]]:
    """Return, by name, the dispatches that only fill arrays (CPUs only).

    A CPU driver executes a fill command faster than a small dispatch.
    """
    if "fills" in disabled_passes() or not caps.is_cpu:
        return {}
    return {f.name: found for f in program.funcs if (found := fills_of(f))}


def lower_dispatch(fn: Func, caps: Caps, memo: Memo | None = None) -> Func:
    """Lower a dispatch to the ops that the emitter supports.

    Raises InternalError if a pass breaks the IR.
    """
    given = given_to(fn, caps, Options(), memo or Memo())
    clock = PassTimer(f"{fn.name}, lowered")
    made = run_verified(
        lambda check: BuiltDispatches([run_passes(fn, LOWERING, given, check)]), given, clock
    )
    clock.show()
    return made.funcs[0]


def run_verified(
    run: Callable[[Check], BuiltDispatches], given: Given, clock: PassTimer
) -> BuiltDispatches:
    """Run passes and verify the result.

    If the result is invalid or a pass raises, the passes run again with the verifier after each
    one. Raises InternalError naming the pass that broke the IR.
    """

    def check_each(new: Func, name: str) -> None:
        clock.tick(name)
        try:
            verify(new, known)
        except InternalError as e:
            raise InternalError(f"after pass `{name}`: {e}") from None

    known = given["memo"].verified
    if is_on("VKCHI_VERIFY"):
        return run(check_each)
    try:
        made = run(lambda _, name: clock.tick(name))
        for fn in made.funcs:
            verify(fn, known)
    except local(Exception) as e:
        failure = e
    else:
        clock.tick("verify")
        return made
    run(check_each)  # not inside `except`: user errors must propagate without a context
    raise failure


def run_passes(fn: Func, steps: Sequence[PassStep], given: Given, check: Check) -> Func:
    """Run these steps on a Func. `check` is called with the result of each."""
    changed: set[str] = set()
    is_fast, missing = given["options"].fast_math, disabled_passes()
    for step in steps:
        if step.name in missing or (step.after and changed.isdisjoint(step.after)):
            continue
        name = "simplify_fast" if is_fast and step.name == "simplify" else step.name
        new = run_pass(name, fn, given)
        check(new, name)
        if new is not fn and not is_mapped_alone(fn, new):
            changed.add(step.name)
        fn = new
    return fn


def is_mapped_alone(old: Func, new: Func) -> bool:
    """True if the Funcs differ only in workgroup sizes or in the order of loop axes."""
    return len(old.body.ops) == len(new.body.ops) and all(
        a is b or (a.kind == b.kind == "parallel" and a.regions[0].ops is b.regions[0].ops)
        for a, b in zip(old.body.ops, new.body.ops)
    )


class PassTimer:
    """Accumulates the time per pass; prints it if VKCHI_TIME is set."""

    def __init__(self, title: str) -> None:
        self.title, self.on = title, is_on("VKCHI_TIME")
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def tick(self, name: str) -> None:
        """Add the time since the last tick to `name`."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
        self.last = now

    def show(self) -> None:
        """Print one line to stderr, in milliseconds."""
        if self.on:
            parts = ", ".join(f"{name} {1e3 * s:.2f}" for name, s in self.seconds.items())
            print(f"vkchi: {self.title}: passes (ms): {parts}", file=sys.stderr)
