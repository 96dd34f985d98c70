"""Compilation of derivatives: lowered kernel and differentiable arrays to shaders.

`build_gradient` and `build_forward` run the steps of reverse and forward mode in order.
`GradientIR` is a gradient as IR and as compiled dispatches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from vkchi.analysis.dataflow import Flow, closure
from vkchi.analysis.memory.footprint import Footprint
from vkchi.analysis.values.host_numbers import trips_of
from vkchi.analysis.values.iterations import nest_of, with_widest_bounds
from vkchi.autodiff.forward import differentiate_forward, serialize_extremes
from vkchi.autodiff.gradient_checks import check_repeatable, check_second
from vkchi.autodiff.loops import strip_mine
from vkchi.autodiff.primal import ActivityAnalysis
from vkchi.autodiff.replay_log import ReplayedOp, find_draws, replay_draws
from vkchi.autodiff.results import GradientRequest, GradientSpec
from vkchi.autodiff.reverse import GradientFunc, analyze_primal, differentiate_reverse
from vkchi.autodiff.rules import is_smooth
from vkchi.compiler import build_artifact, build_watched, show_stage
from vkchi.ir.builder import Builder
from vkchi.ir.core import DUAL, Func, Op, Param, Value, base_memory, uses_in, walk
from vkchi.ir.ops import EXTREMES, SYNCS, TIED, WRITES, Effect, Trait, effect_of, kinds_with
from vkchi.ir.rebuild import Rebuilder, with_params
from vkchi.ir.verify import verify
from vkchi.opt.pipeline import load_pass
from vkchi.span import Span
from vkchi.target.artifact import Artifact
from vkchi.target.caps import Caps
from vkchi.target.options import Options
from vkchi.tuples import NamedTuple
from vkchi.types import Array

Types = Mapping[str, Array]  # by parameter name


class GradientIR(NamedTuple):
    """A gradient as IR and compiled dispatches.

    - `counting`: the kernel that counts iterations to size the buffers, if needed.
    - `needs`: the parts of arrays that the gradient reads, with the contents before the kernel ran.
    - `writes`: the parts that the kernel overwrites.
    - `draws`: the drawn values of the kernel that the gradient needs.
    """

    made: GradientFunc
    main: Artifact
    counting: Artifact | None
    needs: Footprint
    writes: Footprint
    draws: tuple[ReplayedOp, ...]

    @property
    def func(self) -> Func:
        return self.made.func

    @property
    def kernel(self) -> Func:
        return self.made.primal.fn


def build_gradient(fn: Func, spec: GradientSpec, options: Options, caps: Caps) -> GradientIR:
    """Build the gradient of a lowered kernel. Raises GradientError."""
    request, types = spec.request, dict(spec.types)
    if spec.is_second:
        return compile_gradient(fn, second_order_gradient(fn, request, types), (), options, caps)
    draws = draws_of(fn)
    if draws:  # check for lost derivatives before draws become buffer loads
        analyze_primal(
            simplify_for_gradient(fn, request.differentiable),
            request._replace(invariant=frozenset()),
        )
    made = differentiate(replay_draws(fn, draws), request)
    return compile_gradient(fn, made._replace(func=lay_out(made.func, types)), draws, options, caps)


def draws_of(fn: Func) -> tuple[ReplayedOp, ...]:
    """Integers that a kernel draws (random numbers, results of atomics) and that can be logged.

    The host must be able to bound the trip counts of the loops around them.
    """
    nest = nest_of(fn)
    wide = {loop: made for loop in nest.loops.values() if (made := with_widest_bounds(loop,
    nest)) is not None
            and trips_of(made, nest.given) is not None}  # fmt: skip
    return find_draws(fn, wide)


def second_order_gradient(fn: Func, request: GradientRequest, types: Types) -> GradientFunc:
    """Directional derivative of the gradient, by forward mode over reverse mode.

    Every differentiable array, copy, adjoint and buffer of saved values gets a `NAME..dual`. Raises
    GradientError for operations without a second derivative.
    """
    made = differentiate(fn, request, is_second=True)
    check_second(made.primal)
    own = (*made.copies, *made.adjoints.values(), *(s.param.name for s in made.saves))
    func = forward_func(made.func, request.differentiable | frozenset(own))
    verify(func)
    types = {**types, **{k + DUAL: t for k, t in types.items()}}
    return made._replace(func=lay_out(load_pass("unread")(func), types))


def differentiate(fn: Func, request: GradientRequest, *, is_second: bool = False) -> GradientFunc:
    """Simplify a Func, differentiate it in reverse mode, and remove unread results.

    Raises GradientError if there is no gradient, or if it needs values that cannot be recomputed.
    """
    made = differentiate_reverse(
        simplify_for_gradient(fn, request.differentiable), request, is_second=is_second
    )
    show_stage("grad", made.func)
    verify(made.func)
    made = made._replace(func=load_pass("unread")(made.func))
    check_repeatable(made.func)
    return made


def compile_gradient(
    fn: Func, made: GradientFunc, draws: Sequence[ReplayedOp], options: Options, caps: Caps
) -> GradientIR:  # fmt: skip
    counting = None
    if made.counting is not None and made.saves_used():
        counting = build_artifact(made.counting.func, exact_options(made.func, options), caps)
    main = build_exact(made.func, options, caps, adjoint_names(made))
    arrays = [p for p in fn.params if isinstance(p.type, Array)]
    found = {name for p in arrays for name in (p.name, p.name + DUAL)} & main.reads
    used = main.used | (counting.used if counting is not None else frozenset())
    return GradientIR(
        made, main, counting,
        Footprint(made.func, [p for p in made.func.params if p.name in found], {"load"}),
        Footprint(made.primal.fn, [p for p in arrays if p in made.primal.written], WRITES),
        tuple(d for d in draws if d.save.param.name in used),
    )  # fmt: skip


def adjoint_names(made: GradientFunc) -> frozenset[str]:
    names = made.adjoints.values()
    return frozenset([*names, *(name + DUAL for name in names)])


def build_exact(
    fn: Func, options: Options, caps: Caps, watched: frozenset[str] = frozenset()
) -> Artifact:
    return build_watched(fn, watched, exact_options(fn, options), caps)


def build_strip_mined(made: GradientFunc, options: Options, caps: Caps) -> Artifact | None:
    """Strip-mining: compile the gradient with fewer invocations than iterations, to save memory.

    None if that is not possible, for example if a loop uses its invocation index.
    """
    if any(op.kind in TIED | SYNCS for op in walk(made.func.body)):
        return None
    names = [s.param.name for s in made.saves_used()]
    fn = strip_mine(made.func, frozenset((*names, *(name + DUAL for name in names))))
    if fn is None:
        return None
    show_stage("strip_mine", fn)
    verify(fn)
    return build_exact(fn, options, caps, adjoint_names(made))


def build_forward(
    fn: Func, differentiable: frozenset[str], types: Types, options: Options, caps: Caps
) -> Artifact:
    """Compile the kernel with tangents for these arrays. Raises GradientError.

    If `put_in_place` changes the kernel, its ordinary results are only approximately equal.
    """
    made = lay_out(forward_func(simplify_for_gradient(fn, differentiable), differentiable), types)
    show_stage("grad", made)
    verify(made)
    arrays = frozenset([p.name for p in fn.params if isinstance(p.type, Array)])
    return build_exact(made, options, caps, arrays | {name + DUAL for name in differentiable})


def exact_options(fn: Func, options: Options) -> Options:
    """The options without fast math if a Func has atomic minima or maxima of floats, else
    unchanged.

    The gradient computes such an extreme twice, first the value and then its owner; both results
    must be equal.
    """
    has_extremes = any(op.kind in EXTREMES and is_smooth(op) for op in walk(fn.body))
    return options._replace(exact=True, fast_math=False) if has_extremes else options


def forward_func(fn: Func, differentiable: frozenset[str]) -> Func:
    """Forward mode of a Func; loops with minima or maxima that cannot run twice are serialized
    first."""
    made = serialize_extremes(fn, differentiable)
    return differentiate_forward(
        made if made is fn else load_pass("demote_but_sums")(made), differentiable
    )


def lay_out(fn: Func, types: Types) -> Func:
    """Replace the types of the array parameters in `types`; the layouts may differ."""
    given = [p for p in fn.params if p.name in types]
    return with_params(fn, {p: Param(types[p.name], p.name, p.attributes) for p in given})


def simplify_for_gradient(fn: Func, differentiable: frozenset[str]) -> Func:
    """Simplify a lowered kernel before differentiation.

    Runs `put_in_place`, then removes dead code and dead stores, and demotes needless atomics.
    """
    fn = put_in_place(fn, differentiable)
    for name in ("simplify", "dce", "dead_stores", "demote_but_sums"):
        fn = load_pass(name)(fn)
    return fn


def put_in_place(fn: Func, differentiable: frozenset[str]) -> Func:
    """Replace every active `with_derivative_of` by its second or third operand, and drop reports.

    Returns `fn` itself, with its reports, if nothing is active.
    """
    found = {op for op in walk(fn.body) if is_choice(op)}
    active = ActivityAnalysis(fn, differentiable).values if found else set()
    ours = {op for op in found if op.args[1] in active}
    return DerivativeChooser(fn, ours, active).run(fn) if ours else fn


# Ops whose results hold scalars of their operands unchanged.
MOVING = kinds_with(Trait.CARRIES) - {"with_derivative_of"} | {"cast"}


class CopyFlow(Flow):
    def transfer(self, op: Op, v: Value) -> Iterable[Value]:
        if op.kind in WRITES:
            root = base_memory(op.args[0])
            return (root,) if v in op.args[1:] and isinstance(root, Op) else ()
        is_passed = op.kind == "yield" or op.regions or op.kind in MOVING
        return super().transfer(op, v) if is_passed else ()


def is_choice(v: Value) -> bool:
    return isinstance(v, Op) and v.kind == "with_derivative_of"


def is_array_write(op: Op) -> bool:
    return op.kind in WRITES and isinstance(base_memory(op.args[0]), Param)


class DerivativeChooser(Rebuilder):
    """Replaces active `with_derivative_of` ops by their second operand. The third is taken where
    the result is stored in an array unchanged:

    - in stores to arrays of the result itself;
    - in all uses of all results of that decomposition call, if a result reaches an array through a
      variable or a branch;
    - the same for vectors, if no derivative flows through other results of the call.

    The third operand may be a `with_derivative_of` itself, for values. Its own third operand counts
    if vectors of the same call are stored too.
    """

    def __init__(self, fn: Func, ours: set[Op], active: set[Value]) -> None:
        super().__init__(self.choose)
        self.ours = ours
        self.stored: dict[Value, Value] = {}
        self.uses = uses_in(fn.body)
        writes = [op for op in walk(fn.body) if is_array_write(op)]
        written = {v for op in writes for v in op.args[1:]}
        inner = {op.args[2] for op in ours if is_choice(op.args[2])}
        outer = [op for op in ours if op not in inner]
        passed = {op for op in outer if self.is_passed(op, active)}
        count = Counter(op.span for op in passed)
        self.beside: set[Span | None] = set()
        self.everywhere: set[Span | None] = set()
        for op in outer:
            if is_choice(op.args[2]):
                continue
            start: list[Value] = [op]
            moved = written & CopyFlow(fn.body, start).found
            if moved:
                self.beside.add(op.span)
            direct = closure(start, self.moved_to)
            is_alone = op in passed and count[op.span] == 1
            if is_alone or moved - direct:
                self.everywhere.add(op.span)

    def is_passed(self, op: Op, active: set[Value]) -> bool:
        users = self.uses.get(op, ())
        return any(u in active or u.kind in (*WRITES, "yield") or u.regions for u in users)

    def moved_to(self, v: Value) -> list[Value]:
        return [r for op in self.uses.get(v, ()) if op.kind in MOVING for r in op.results]

    def choose(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if effect_of(op.kind) is Effect.REPORT:
            return ()
        if op in self.ours:
            self.stored[op] = args[2]
            if is_choice(op.args[2]) and op.span in self.beside:
                self.stored[op] = self.stored[op.args[2]]
            return [self.stored[op] if op.span in self.everywhere else args[1]]
        values = op.args[1:] if is_array_write(op) else ()
        new = [self.as_stored(b, v) for v in values]
        if all(x is None for x in new):
            return None
        given = [x if x is not None else v for x, v in zip(new, args[1:])]
        made = b.emit(op.kind, args[0], *given, attr=op.attr)
        return [made] if op.results else ()

    def as_stored(self, b: Builder, v: Value) -> Value | None:
        if v in self.stored or not isinstance(v, Op) or v.kind not in MOVING:
            return self.stored.get(v)
        new = [self.as_stored(b, x) for x in v.args]
        if all(x is None for x in new):
            return None
        args = [x if x is not None else self.map.get(y, y) for x, y in zip(new, v.args)]
        return b.emit(v.kind, *args, attr=v.attr, type=v.type)
