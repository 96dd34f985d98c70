"""The pass pipeline: the order of passes, as data with a reason per step.

    Source --kernel--> Dispatch --reductions--> Reduced --mapping--> Mapped --lowering--> Machine

The four stages of `STAGES` each require a form of IR and guarantee the next one (`opt.forms`). The
first transforms the whole kernel and splits it; the others transform each dispatch.

    program, temps = optimize_kernel(fn, caps, options)     # stages 1 to 3
    lowered = lower_dispatch(program.funcs[0], caps)        # stage 4
    PASSES["licm"](fn)

`optimize_kernel` and `lower_dispatch` verify their final Funcs. If one is invalid, or a pass
raises, the passes run again, with the verifier after each, and forms checked after each stage. With
`VKCHI_VERIFY` they run once, with these checks. A call of an entry of `PASSES` verifies nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

from vkchi.analysis.cost import size_of, traffic_per_iteration
from vkchi.analysis.memory.must_write import fills_of
from vkchi.env import is_on, passes_left_out
from vkchi.errors import ArgumentError, InternalError
from vkchi.interrupts.local import local
from vkchi.ir.core import NO_FILLS, NO_SIZES, Func, Op, Param, Program, Region, has_kind, walk
from vkchi.ir.op_table.invocation_ops import REPORTS
from vkchi.ir.ops import ATOMICS, DIVISIONS, LOOPS, PLAIN_ACCESSES, QUOTIENTS, ROUNDED_DOWN, UPDATES
from vkchi.ir.verify import verify
from vkchi.opt.memo import Memo
from vkchi.target import tuning
from vkchi.target.caps import FULL, SMALLEST, Caps
from vkchi.target.options import Options
from vkchi.target.remarks import Decision, Log, record
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Tensor
from vkchi.types.layout import shares_words

if TYPE_CHECKING:
    from vkchi.opt.rewrite.simplify import Ruleset
    from vkchi.target.artifact import DispatchSize, MemoryFill

Change = Callable[[Func], "Func | Program"]
Given = Mapping[str, Any]  # caps, options, memo, log
# The Func that each pass last left. A cleanup with one pass of CLEANUP counts for those of them
# that ran before.
Left = dict[str, Func]
CLEANUP = {"simplify", "licm", "forward"}
BRANCHES = LOOPS | {"if"}


class BuiltDispatches(NamedTuple):
    """Dispatches with their temporary arrays.

    `fills` maps the names of dispatches that only fill arrays to these fills. `sizes` maps the name
    of each dispatch to its iterations and bytes.
    """

    funcs: Sequence[Func]
    temps: Sequence[Param] = ()
    fills: Mapping[str, tuple[MemoryFill, ...]] = NO_FILLS
    sizes: Mapping[str, DispatchSize] = NO_SIZES


class PassEntry(NamedTuple):
    """Location and requirements of a pass.

    - `where`: `module:function`.
    - `takes`: arguments besides the Func, of `caps options memo log`.
    - `needs`: op kinds without which the pass changes nothing.
    - `several`: one such op, outside serial loops, is not enough, unless the Func has a kind of
      `beside`.
    - `least`: number of ops below which the pass changes nothing.
    - `beyond`: components that a tensor must exceed for the pass to change something.
    """

    where: str
    takes: str = ""
    needs: Collection[str] = ()
    several: bool = False
    beside: Collection[str] = ()
    least: int = 0
    beyond: int = 0


class PassStep(NamedTuple):
    """A pass in the pipeline and the reason for its position."""

    name: str
    why: str


class Cleanup(NamedTuple):
    """Passes that run in turn, and the reason for their position."""

    names: tuple[str, ...]
    why: str


class Stage(NamedTuple):
    """Steps, and the form of each Func after them."""

    steps: tuple[PassStep | Cleanup, ...]
    form: str


# Sentences of `explain` about an outermost loop that a pass changed. `bins`, `demote_all`,
# `fusion`, `lanes`, `reduce` and `scatter` record decisions of their own.
REMARKS = {
    "broadcast": "invocations share loads of equal addresses (cooperative loads)",
    "coarsen": "an invocation executes a strip of iterations (thread coarsening)",
    "collapse": "independent serial loops in it are executed in parallel (loop collapsing)",
    "commoning": "loaded values are kept for the next iteration (predictive commoning)",
    "fission": "it is divided into shorter loops (loop fission)",
    "inspector": "a serial loop tests its guard for 32 iterations at a time (inspector-executor)",
    "jam": "an invocation executes adjacent iterations together (unroll-and-jam)",
    "jam_sums": "an invocation sums adjacent iterations together (unroll-and-jam)",
    "narrow": "short serial loops and branches become straight-line code, to access words",
    "peel": "iterations at the borders run apart from the others (index-set splitting)",
    "predicate": "short branches are executed without jumps (if-conversion)",
    "reroll": "repeated code in it is executed by a serial loop (loop rerolling)",
    "sink": "a guarded store of one value to one element runs after a serial loop (store sinking)",
    "strips": "an invocation executes a strip of iterations, to use cache lines (loop blocking)",
    "unroll": "a serial loop executes several iterations at once (partial unrolling)",
    "unroll_guarded": "a short serial loop is unrolled, and its loads run before its branches",
    "unroll_loads": "a short serial loop is unrolled, so that its loads run once",
    "unroll_sums": "a short serial loop is unrolled, so that each of its sums has one element",
}
ENTRIES: dict[str, PassEntry] = {
    "simplify": PassEntry("rewrite.simplify:simplify", "memo"),
    "simplify_fast": PassEntry("rewrite.simplify:simplify_fast", "memo"),
    "cse": PassEntry("rewrite.cse:merge_equal_ops"),
    "dce": PassEntry("rewrite.dce:remove_dead"),
    "unread": PassEntry("rewrite.dce:remove_unread"),
    "forward": PassEntry("memory.store_forwarding:forward_memory", needs=PLAIN_ACCESSES),
    # before differentiation
    "dead_stores": PassEntry("memory.store_forwarding:remove_dead_stores"),
    "licm": PassEntry("rewrite.licm:hoist_invariants", needs=LOOPS),
    "demote": PassEntry("memory.demote:demote_atomics", needs=UPDATES),
    "demote_all": PassEntry("memory.demote:demote_all_atomics", "log", needs=UPDATES),
    "demote_but_sums": PassEntry("memory.demote:demote_but_sums", needs=UPDATES),
    "scatter": PassEntry(
        "loops.scatter.expand:transform_scatter_adds",
        "caps memo",
        ("atomic_add",),
        several=True,
        beside=QUOTIENTS,
    ),
    # parts of scatter
    "distribute": PassEntry(
        "loops.scatter.distribute:distribute", "caps memo", ("atomic_add",), several=True
    ),
    "expand": PassEntry(
        "loops.scatter.expand:expand_scalars", "caps memo", ("atomic_add",), several=True
    ),
    "gather": PassEntry(
        "loops.scatter.gather:scatter_to_gather",
        "caps memo",
        ("atomic_add",),
        several=True,
        beside=QUOTIENTS,
    ),
    "divisions": PassEntry("math.divisions:reduce_divisions", "caps", DIVISIONS),
    # parts of divisions
    "strength": PassEntry("math.divisions:reduce_strength", needs=ROUNDED_DOWN.keys()),
    "reciprocals": PassEntry(
        "math.divisions:multiply_instead", "caps", tuple(ROUNDED_DOWN.values())
    ),
    "peel": PassEntry("loops.peel:peel", "caps log", ("parallel",)),
    "split": PassEntry("mapping.split:split_dispatches"),
    "collapse": PassEntry("loops.collapse:collapse_nests", "caps log", ("for",)),
    "coarsen": PassEntry("loops.coarsen:coarsen", "caps log", ATOMICS.keys()),
    "bins": PassEntry("loops.bins:privatize_histograms", "caps log", ATOMICS.keys()),
    "reduce": PassEntry("loops.reduce:reduce", "caps log", ATOMICS.keys()),
    "jam": PassEntry("loops.jam:jam", "caps log", ("parallel",)),
    "jam_sums": PassEntry("loops.jam:jam_reductions", "caps", ATOMICS.keys()),
    "interchange": PassEntry("mapping.axis_order:interchange_axes", needs=("parallel",)),
    "strips": PassEntry("loops.strips:block_rivals", "caps", ("parallel",)),
    "narrow": PassEntry("loops.narrow:straighten_narrow", "caps memo", BRANCHES),
    "indices": PassEntry("rewrite.indices:order_indices", needs=("elem",)),
    "commoning": PassEntry("loops.serial.commoning:common_loads", needs=("for",)),
    "promote": PassEntry("memory.promote:promote_elements", needs=BRANCHES),
    "padding": PassEntry(
        "mapping.padding:pad_to_workgroup", "caps", ("barrier",)
    ),  # a part of map_grid
    "remainders": PassEntry("math.remainders:turn_remainders", "caps", ("mod",)),
    "inspector": PassEntry("control.inspector:inspect_guards", "caps", ("if",)),
    "speculate": PassEntry("control.speculate:speculate_loads", "caps", ("if",)),
    "predicate": PassEntry("control.predicate:predicate", "caps", ("if",)),
    "jump_threading": PassEntry(
        "control.jump_threading:thread_jumps", "caps", ("if",), several=True
    ),
    "unroll": PassEntry("loops.serial.unroll:unroll", "caps log", ("for",)),
    "unroll_guarded": PassEntry("loops.serial.unroll_guarded:unroll_guarded", "caps", ("if",)),
    "unroll_sums": PassEntry(
        "loops.serial.unroll_sums:unroll_sums", needs=ATOMICS.keys(), several=True
    ),
    "unroll_limit": PassEntry("loops.serial.unroll_limit:limit_unrolling", "caps", ("for",)),
    "unroll_loads": PassEntry(
        "loops.serial.unroll_loads:unroll_loads", "caps", ("for",), several=True
    ),
    "lanes": PassEntry("loops.lanes:share_lanes", "caps log", ("for",)),
    "map_grid": PassEntry("mapping.map_grid:map_grid", "caps options"),
    "listing": PassEntry("loops.listing:list_loops", "caps", ("parallel",)),  # by the compiler
    "wide": PassEntry("mapping.wide:cut_wide_loops"),  # run by the compiler on frontend output
    "bounds": PassEntry("rewrite.bounds:eliminate_bounds_checks"),
    "combine": PassEntry("lowering.combine:combine_lanes", "caps", ATOMICS.keys()),
    "tensor_loops": PassEntry("lowering.tensor_loops:loop_over_rows", beyond=tuning.LARGE_TENSOR),
    "legalize": PassEntry("lowering.legalize:legalize", "caps memo"),
    "access": PassEntry("lowering.lower_access:lower_access", "log"),
    "neighbours": PassEntry("memory.neighbours:join_neighbours", "caps", ("address",)),
    "broadcast": PassEntry("loops.serial.broadcast:broadcast_loads", "caps log", ("for",)),
    "arithmetic": PassEntry("math.arithmetic:lower_arithmetic", "caps memo"),
    "bases": PassEntry("lowering.bases:mark_constant_offsets", "caps", ("address",)),
    "rounds": PassEntry("lowering.rounds:spell_rounds", "caps", ("for",)),
    "sink": PassEntry("memory.sinking:sink_stores", needs=("if",)),
    "stores_last": PassEntry("memory.stores_last:keep_stores_back", "caps", ("store", *ATOMICS)),
    "streams": PassEntry("lowering.streams:lower_random", needs=("random",)),
    "roots": PassEntry("rewrite.roots:compare_squares", needs=("sqrt",)),
    "records": PassEntry("lowering.lower_reports:lower_reports", needs=REPORTS),
    "reroll": PassEntry("loops.serial.reroll:reroll", least=tuning.REROLL_LOOP_OPS),
    "fission": PassEntry("loops.fission:cut_long_loops", needs=("parallel",)),
    "fusion": PassEntry("loops.fusion:fuse_loops", "log", needs=("parallel",), several=True),
    "shallow": PassEntry("control.shallow:limit_nesting"),  # run by the compiler on frontend output
}

TIDY = ("simplify", "dce")
TERMS = ("simplify", "licm", "forward")

# On the whole kernel. `split` returns a Program.
KERNEL: tuple[PassStep | Cleanup, ...] = (
    PassStep(
        "reroll",
        "before simplify, which changes some of the repetitions: those with 0, 1 or equal indices",
    ),
    Cleanup(
        TIDY,
        "folds static shapes and known branches: fewer dispatches; dead values must not be passed"
        " between dispatches",
    ),
    PassStep("collapse", "bounds are folded; before fusion and peel, which read parallel axes"),
    PassStep("fusion", "iteration spaces are known; each dispatch loads less"),
    PassStep(
        "scatter",
        "before coarsen, which strip-mines the new loops, and before peel, which removes the bounds"
        " checks this pass adds",
    ),
    Cleanup(TIDY, "merges values that several iterations recompute; peel reads conditions"),
    PassStep("peel", "boundary iterations become dispatches of their own"),
    Cleanup(TIDY, "folds branches that are constant in the interior"),
    PassStep("fission", "last before the split: each loop is a dispatch"),
    PassStep("split", "all transformations of several loops are done"),
)

# On each dispatch: sums of many iterations into one element.
REDUCTIONS: tuple[PassStep | Cleanup, ...] = (
    PassStep("unroll_sums", "before reduce, which needs constant accumulator addresses"),
    Cleanup(("simplify",), "folds these addresses to constants"),
    PassStep("demote", "licm and forward handle plain loads and stores, not atomics"),
    PassStep("jump_threading", "before forward: branches can reuse loads of their condition"),
    Cleanup(
        ("licm", "forward", *TIDY, "bounds"),
        "the rules match forwarded values; reduce examines all uses of an address; bounds knows"
        " the ranges of source loops",
    ),
    PassStep("coarsen", "before reduce, which hoists reductions out of the serial loops it makes"),
    Cleanup(TERMS, "hoists accumulator addresses out of the reduction loop"),
    PassStep("interchange", "before jam_sums and jam, which keep the order of axes"),
    PassStep("jam_sums", "before reduce, which separates the terms of a reduction"),
    PassStep("bins", "before reduce, which would hoist the same atomics"),
    PassStep("reduce", "needs final loops and addresses, and makes new ones"),
    PassStep("demote_all", "hoisted accumulators may be private; reduce did not take the rest"),
)

# On each dispatch: which invocation executes which iterations, and the code of an invocation.
MAPPING: tuple[PassStep | Cleanup, ...] = (
    PassStep(
        "promote", "after forward, which handles straight code; before jam, which copies addresses"
    ),
    PassStep("narrow", "before jam, which unrolls straight code"),
    PassStep("indices", "canonicalises indices, from which jam reads how addresses vary"),
    PassStep("jam", "after reduce, which makes serial loops; before map_grid, which maps the axes"),
    PassStep("strips", "after jam, which makes words of straight code; before map_grid"),
    PassStep("unroll_loads", "after jam, which shares loads of short loops"),
    Cleanup(
        ("indices", *TERMS, "bounds"),
        "before map_grid, which hides terms and ranges of indices; proves addresses of reduce",
    ),
    PassStep("commoning", "after jam: loads of adjacent iterations become loop-carried values"),
    PassStep(
        "remainders", "after all readers of remainders; before map_grid, which hides index ranges"
    ),
    PassStep("lanes", "like map_grid, for code without a grid; after reduce and bounds"),
    PassStep("map_grid", "after reduce, demote and bounds: it hides the loop indices they need"),
    Cleanup(("simplify", "licm"), "hoists values that all iterations of an invocation share"),
    PassStep(
        "inspector",
        "after map_grid, which fixes the lanes; before predicate, which removes guards, and unroll",
    ),
    PassStep("sink", "after map_grid, which makes the outermost loop of an invocation"),
    PassStep("speculate", "after inspector; before bounds, which proves the moved accesses"),
    PassStep(
        "predicate",
        "after bounds, which reads branches; before unroll, which needs loops without them",
    ),
    PassStep("unroll_guarded", "after predicate, which removes branches; before neighbours"),
    PassStep("unroll", "trip counts are known; before neighbours, which vectorizes loads"),
    Cleanup(
        ("simplify", "forward", "bounds"),
        "folds indices of unrolled iterations; forwards stores to the next one; proves accesses"
        " that predicate executes always",
    ),
    PassStep("roots", "all other uses of roots are known; before legalize, which may emit roots"),
    PassStep("tensor_loops", "no later pass reads whole tensors; before legalize"),
    PassStep("combine", "before legalize, which expands the remaining atomics to loops"),
    PassStep("legalize", "later passes emit no op that a device may lack"),
    PassStep("divisions", "last: bounds and map_grid match the unreduced forms"),
    PassStep("dce", "removes unused ops"),
)

# On each dispatch, before it is emitted: expands the ops marked `LOWERED` in the op table.
# Passes that analyze elements run before.
LOWERING: tuple[PassStep | Cleanup, ...] = (
    PassStep("access", "turns element pointers into address arithmetic"),
    Cleanup(("licm",), "hoists loop-invariant address terms"),
    PassStep("broadcast", "after licm: invariant terms are outside of the loop"),
    PassStep("neighbours", "equal offsets are merged, and loads have their final position"),
    PassStep("stores_last", "the accesses are final"),
    PassStep("streams", "no later pass tests for random numbers"),
    PassStep("records", "until here, reports access no memory"),
    PassStep("arithmetic", "no later pass reads divisions and trip counts"),
    PassStep("unroll_limit", "the number of ops is final; before rounds, for unrolled loops"),
    PassStep("rounds", "after neighbours: vectorized loads share offsets; before bases"),
    PassStep("bases", "last: it marks addresses for the emitter"),
)

# The forms are those of `opt.forms`. The frontend's output passes through `shallow` and
# `wide`; that of kernels with sparse fields also through `listing`.
STAGES = {
    "frontend": Stage((), "Source"),
    "kernel": Stage(KERNEL, "Dispatch"),
    "reductions": Stage(REDUCTIONS, "Reduced"),
    "mapping": Stage(MAPPING, "Mapped"),
    "lowering": Stage(LOWERING, "Machine"),
}

# Optimizations that are not required for correctness; `VKCHI_PASSES` can disable them.
OPTIONAL = frozenset({
    "bases", "bins", "broadcast", "coarsen", "collapse", "combine", "commoning", "demote",
    "demote_all", "divisions", "fills", "fission", "forward", "fusion", "indices", "inspector",
    "interchange", "jam", "jam_sums", "jump_threading", "lanes", "licm", "listing", "narrow",
    "neighbours", "peel", "predicate", "promote", "reduce", "remainders", "reroll", "roots",
    "rounds", "scatter", "sink", "speculate", "stores_last", "strips", "tensor_loops", "unroll",
    "unroll_guarded", "unroll_limit", "unroll_loads", "unroll_sums",
})  # fmt: skip

# Passes that run on loops over arrays without branches and reductions.
USUAL = (
    "split", "simplify", "dce", "peel", "fission", "forward", "bounds", "interchange", "indices",
    "jam", "strips", "map_grid", "licm", "unroll", "legalize", "divisions", "access",
    "broadcast", "neighbours", "unroll_limit", "rounds", "stores_last", "arithmetic", "bases",
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
    """Return the function of a pass; its module is imported at the first call. Raises KeyError for
    an unknown name."""
    if name not in ENTRIES:
        raise KeyError(f"no pass is called {name!r}; there are {', '.join(ENTRIES)}")
    module, _, function = ENTRIES[name].where.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"vkchi.opt.{module}"), function)
    return found


def load_usual() -> None:
    """Import the passes that run on a plain loop over arrays, and compile the exact rules of
    `simplify`."""
    for name in USUAL:
        load_pass(name)
    rules: Ruleset = import_module("vkchi.opt.rewrite.simplify").exact_rules()
    rules.prepare()


class Pass:
    """A pass by name, callable on a Func, with fixed device capabilities and options."""

    def __init__(self, name: str, caps: Caps = FULL, options: Options | None = None) -> None:
        self.name, self.caps, self.options = name, caps, options or Options()

    def __call__(self, fn: Func) -> Any:
        """Return the Func that the pass returns, or the Program of `split`."""
        given = given_to(self.caps, self.options, Memo())
        result = run_pass(self.name, fn, given)
        return result[0] if isinstance(result, tuple) else result


def run_pass(name: str, fn: Func, given: Given) -> Any:
    """Return the result of the pass called `name`, with the arguments in its `takes`; `fn` itself
    if `may_apply` is False, unless there is a log, to which the pass may give its reasons."""
    entry = ENTRIES[name]
    if given["log"] is None and not may_apply(entry, fn, given["memo"]):
        return fn
    return load_pass(name)(fn, *[given[taken] for taken in entry.takes.split()])


def may_apply(entry: PassEntry, fn: Func, memo: Memo) -> bool:
    """True if a Func contains the ops that a pass needs, as many as it needs (`PassEntry`)."""
    if entry.needs and not memo.has(fn, entry.needs):
        return False
    if entry.least and not has_ops(fn, entry.least):
        return False
    if entry.beyond and not has_tensor(fn, entry.beyond):
        return False
    if not entry.several or count_up_to_two(fn.body, entry.needs) >= 2:
        return True
    return bool(entry.beside) and memo.has(fn, entry.beside)


def has_tensor(fn: Func, size: int) -> bool:
    """True if an op has a tensor of more than `size` components as result."""
    return any(isinstance(op.type, Tensor) and op.type.size > size for op in walk(fn.body))


def has_ops(fn: Func, count: int) -> bool:
    """True if a Func has at least `count` ops, also nested."""
    return next(islice(walk(fn.body), count - 1, None), None) is not None


def count_up_to_two(region: Region, kinds: Collection[str]) -> int:
    """Return 0, 1, or any number of 2 or more: the ops of these kinds in a region, also nested.

    An op in a serial loop counts at least twice. Counting stops early once there are two.
    """
    count = 0
    for op in region.ops:
        if op.kind in kinds:
            count += 1
        if op.regions and count < 2:
            inside = sum([count_up_to_two(r, kinds) for r in op.regions])
            count += 2 * inside if op.kind in LOOPS else inside
        if count >= 2:
            break
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
PASSES["inspector"] = Pass("inspector", CPU)
PASSES["jam_sums"] = Pass("jam_sums", CPU)
PASSES["jump_threading"] = Pass("jump_threading", CPU)
PASSES["peel"] = Pass("peel", CPU)
PASSES["narrow"] = Pass("narrow", CPU)
PASSES["speculate"] = Pass("speculate", CPU)
PASSES["unroll_guarded"] = Pass("unroll_guarded", CPU)
PASSES["strips"] = Pass("strips", CPU)
PASSES["remainders"] = Pass("remainders", CPU)
PASSES["lanes"] = Pass("lanes", CPU)
PASSES["listing"] = Pass("listing", CPU)
PASSES["rounds"] = Pass("rounds", CPU)
PASSES["unroll_limit"] = Pass("unroll_limit", CPU)
PASSES["unroll_loads"] = Pass("unroll_loads", CPU)
PASSES["unroll_words"] = Pass("unroll", CPU)
PASSES["legalize"] = Pass("legalize", SMALLEST)


def given_to(caps: Caps, options: Options, memo: Memo) -> Given:
    return {"caps": caps, "options": options, "memo": memo, "log": memo.log}


def optimize_kernel(
    fn: Func, caps: Caps, options: Options, memo: Memo | None = None
) -> tuple[Program, tuple[Param, ...]]:
    """Return a kernel's dispatches for a device, and the temporaries that a launch provides.

    Dispatches with an empty body are left out. Raises InternalError if a pass breaks the IR. Errors
    of passes propagate, such as the DeviceError of `legalize`.
    """
    given = given_to(caps, options, memo or Memo())
    clock = PassTimer(fn.name)
    made = run_verified(lambda checks: cut_dispatches(fn, given, checks), given, clock)
    kept = tuple(f for f in made.funcs if len(f.body.ops) > 1)
    used = {p for f in kept for p in f.params}
    clock.show()
    program = Program(fn.name, kept, made.fills, made.sizes)
    return program, tuple(p for p in made.temps if p in used)


def cut_dispatches(fn: Func, given: Given, checks: Checks) -> BuiltDispatches:
    """Run the first three stages: passes before the split, the split, and passes per dispatch.

    Also finds the fills and sizes of dispatches, right after the split, and records dispatches in
    the log if there is one.
    """
    left: Left = {}
    checks.after_stage(fn, "frontend")
    whole = run_passes(fn, KERNEL[:-1], given, checks, left)
    clean = [name for name, last in left.items() if is_mapped_alone(last, whole)]
    program, temps = load_pass("split")(whole)
    checks.clock.tick("split")
    fills = find_fills(program, given["caps"])
    sizes = {f.name: size_of(f) for f in program.funcs}
    if given["log"] is not None:
        note_dispatches(program, given["log"])
    checks.clock.tick("sizes")
    made = []
    for f in program.funcs:
        checks.after_stage(f, "kernel")
        left = dict.fromkeys(clean, f)
        f = run_stage(f, "reductions", given, checks, left)
        made.append(run_stage(f, "mapping", given, checks, left))
    return BuiltDispatches(made, temps, fills, sizes)


def note_dispatches(program: Program, log: Log) -> None:
    """Record in `log` the dispatch of each outermost loop. For a `parallel`, also record the bytes
    that an iteration reads, and those that it writes."""
    for f in program.funcs:
        for op in outermost_loops(f.body):
            record(log, Decision("dispatch", op.span, name=f.name))
            if op.kind == "parallel" and not any(map(is_bit_packed, f.params)):
                for name, n in traffic_per_iteration(op, frozenset(f.params))._asdict().items():
                    trips = None if n is None else n.expr
                    record(log, Decision("bytes", op.span, name, trips=trips, name=f.name))


def is_bit_packed(p: Param) -> bool:
    """True for an array whose elements share words, so that the bytes of an access are unknown."""
    return isinstance(p.type, Array) and shares_words(p.type.layout)


def outermost_loops(region: Region) -> Iterator[Op]:
    for op in region.ops:
        if op.kind in LOOPS or op.kind == "parallel":
            yield op
        else:
            for inner in op.regions:
                yield from outermost_loops(inner)


def find_fills(program: Program, caps: Caps) -> dict[str, tuple[MemoryFill, ...]]:
    """Return the fills of the dispatches that only fill arrays, by dispatch name.

    Empty on GPUs, and if `VKCHI_PASSES` disables `fills`. A CPU driver executes a fill command
    faster than a small dispatch.
    """
    if "fills" in disabled_passes() or not caps.fills_by_command:
        return {}
    return {f.name: found for f in program.funcs if (found := fills_of(f))}


def lower_dispatch(fn: Func, caps: Caps, memo: Memo | None = None) -> Func:
    """Lower a dispatch to the ops that the emitter supports.

    Raises InternalError if a pass breaks the IR.
    """
    given = given_to(caps, Options(), memo or Memo())
    clock = PassTimer(f"{fn.name}, lowered")
    made = run_verified(
        lambda checks: BuiltDispatches([run_stage(fn, "lowering", given, checks, {})]),
        given,
        clock,
    )
    clock.show()
    return made.funcs[0]


class Checks:
    """Called after passes and stages. Times passes. With `is_each`, also verifies the result of
    each pass, and checks the form of each stage."""

    def __init__(self, given: Given, clock: PassTimer, *, is_each: bool) -> None:
        self.given, self.clock, self.is_each = given, clock, is_each

    def after_pass(self, fn: Func, name: str) -> None:
        self.clock.tick(name)
        if self.is_each:
            try:
                verify(fn, self.given["memo"].verified)
            except InternalError as e:
                raise InternalError(f"after pass `{name}`: {e}") from None

    def after_stage(self, fn: Func, name: str) -> None:
        if self.is_each:
            from vkchi.opt.forms import check_form  # only for these checks

            form = STAGES[name].form
            check_form(fn, form, self.given["caps"], f"after stage `{name}`", disabled_passes())


def run_verified(
    run: Callable[[Checks], BuiltDispatches], given: Given, clock: PassTimer
) -> BuiltDispatches:
    """Run passes and verify the result.

    If the result is invalid or a pass raises, the passes run again, with the checks after each pass
    and stage. Raises InternalError naming the pass that broke the IR; if none did, the error of the
    pass or of the verifier. With `VKCHI_VERIFY` the passes run once, with all checks.
    """
    each = Checks(given, clock, is_each=True)
    if is_on("VKCHI_VERIFY"):
        return run(each)
    try:
        made = run(Checks(given, clock, is_each=False))
        for fn in made.funcs:
            verify(fn, given["memo"].verified)
    except local(Exception) as e:
        failure = e
    else:
        clock.tick("verify")
        return made
    run(each)  # not inside `except`: user errors must propagate without a context
    raise failure


def run_stage(fn: Func, name: str, given: Given, checks: Checks, left: Left) -> Func:
    """Run a stage on a Func that it does not split."""
    fn = run_passes(fn, STAGES[name].steps, given, checks, left)
    checks.after_stage(fn, name)
    return fn


def run_passes(
    fn: Func, steps: Sequence[PassStep | Cleanup], given: Given, checks: Checks, left: Left
) -> Func:
    """Run these steps on a Func, each on the result of the last.

    A pass is skipped if it is disabled, or if the Func is the one in `left`, which this function
    updates. With `fast_math`, `simplify_fast` replaces `simplify`.
    """
    is_fast, missing = given["options"].fast_math, disabled_passes()
    for step in steps:
        names = step.names if isinstance(step, Cleanup) else (step.name,)
        for name in names:
            if name in missing or (name in left and is_mapped_alone(left[name], fn)):
                continue
            old = fn
            fn = run_pass("simplify_fast" if is_fast and name == "simplify" else name, old, given)
            checks.after_pass(fn, name)
            if given["log"] is not None and name in REMARKS:
                note_changes(old, fn, name, given["log"])
        if isinstance(step, Cleanup):
            names = (*names, *(CLEANUP & left.keys()))
        for name in names:
            left[name] = fn
    return fn


def note_changes(old: Func, new: Func, name: str, log: Log) -> None:
    """Record in `log` that a pass changed outermost loops, with its sentence of REMARKS."""
    kept = set(outermost_loops(new.body))
    for op in outermost_loops(old.body):
        if op not in kept:
            record(log, Decision("changed", op.span, REMARKS[name], name=old.name))


def is_mapped_alone(old: Func, new: Func) -> bool:
    """True if the bodies have the same ops, except that `parallel` ops may differ in arguments,
    attributes and parameters. Their regions must share one list of ops, none of which depends on
    the workgroup size."""
    if old is new or len(old.body.ops) != len(new.body.ops):
        return old is new
    for a, b in zip(old.body.ops, new.body.ops):
        if a is b:
            continue
        if not (a.kind == b.kind == "parallel" and a.regions[0].ops is b.regions[0].ops):
            return False
        if has_kind(a.regions[0], ("local_index",)):
            return False
    return True


class PassTimer:
    """Accumulates the time per pass; prints it if VKCHI_TIME is set."""

    def __init__(self, title: str) -> None:
        self.title, self.on = title, is_on("VKCHI_TIME")
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def tick(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
        self.last = now

    def show(self) -> None:
        if self.on:
            parts = ", ".join(f"{name} {1e3 * s:.2f}" for name, s in self.seconds.items())
            print(f"vkchi: {self.title}: passes (ms): {parts}", file=sys.stderr)
