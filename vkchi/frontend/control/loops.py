"""Loop lowering: parallel at the top of a kernel, serial below, unrolled anywhere.

- A top-level `for` usually becomes a `parallel` op. Exceptions are loops that options or
  `ti.loop_config` serialize, and constant ranges of at most one item. A loop whose iterations
  depend on each other is serial too. Kernel variables that a `parallel` assigns become `local`
  memory, to which `+=` and the like are atomic. Variables that are private to an iteration stay
  values.
- A serial loop carries every variable that it may assign. With a `break` or `return` in it,
  it is a `while` op that also carries flags.
- A loop over `ti.static(...)` is unrolled, in Python functions also one over a short constant
  range, a list or a vector.

`cx.decisions` has a decision about each outermost loop: parallel or serial, and the reason. The
compiler adds trip counts. `kernel.explain` prints them. A long loop that a variable or a condition
makes serial gives a warning.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any

from vkchi.errors import CompilationError, KernelSyntaxError
from vkchi.frontend.calls.compile_time_forms import lower_iterable, unrolled_items
from vkchi.frontend.context import LoopConfig, Lowering
from vkchi.frontend.control.carry import (
    carried_variables,
    check_carried,
    loop_for,
    loop_while,
    share_variables,
)
from vkchi.frontend.control.expressions import bind_static
from vkchi.frontend.control.flow import condition_of, lower_block, lower_unless, run_region
from vkchi.frontend.control.loop_dependence import (
    CarriedVariable,
    assigned_names,
    find_carried,
    own_variables,
)
from vkchi.frontend.control.loop_limits import index_type, is_given, materialise
from vkchi.frontend.control.spaces import (
    TOO_LONG,
    LoopSpace,
    bounds_of,
    indices_of,
    is_counted_wide,
    parallel_bounds,
    space_of,
)
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.state.pending import PendingCaution, PendingDecision
from vkchi.frontend.state.scope import CONDITIONAL, REAL, VARIABLE, LoopScope, Var
from vkchi.frontend.syntax.syntax_facts import first_break, items_in, name_in, nodes_of, returns
from vkchi.frontend.values.python_values import is_static_call
from vkchi.ir.core import Op, Param, Region, Value, has_kind, walk, walk_ops
from vkchi.ir.iteration_space import INT_MAX, checked_iteration_count
from vkchi.ir.iteration_space import space_of as space_of_axes
from vkchi.ir.op_table.invocation_ops import TILE, TILE_BLOCK
from vkchi.ir.ops import GROUPED, GUARDED, SYNCS, TABLE, Effect, Trait
from vkchi.lang.matrix import Matrix
from vkchi.span import PACKAGE, Span, is_ours
from vkchi.target.remarks import Caution, Decision, fill_line
from vkchi.target.shader import range_length
from vkchi.tuples import NamedTuple
from vkchi.types import Tensor, i32, scalar_of

MOST_UNROLLED = 2000  # ops without a warning
SHORT = 16  # longest range that is unrolled in a Python function
BARRIERS = frozenset({"barrier"})
OF_WORKGROUPS = (GROUPED | SYNCS) - {"exit_invocation"}  # ops of `ti.simt`
LARGEST_BLOCK = 1024  # invocations of a workgroup at most
_SERIALIZE = (
    "to run the loop one iteration after the other, write ti.loop_config(serialize=True) before it"
)


class LoopForm(NamedTuple):
    """The form in which a `for` is lowered.

    - `items`: those of an unrolled loop; None for other loops, which have a `space`.
    - `config`: options of a parallel loop; None for a serial loop.
    - `own`: variables that are private to an iteration of a parallel loop.
    - `leaves`: the loop has a `break` or a `return`.
    - `carried`: the variable that makes the loop serial, if one does.
    """

    items: list[Any] | None = None
    space: LoopSpace | None = None
    config: LoopConfig | None = None
    own: Sequence[Var] = ()
    leaves: bool = False
    carried: CarriedVariable | None = None


def lower_for(cx: Lowering, n: ast.For) -> None:
    passive = cx.config.passive
    form = choose_form(cx, n)
    with cx.cells.leaving(passive):
        lower_loop(cx, n, form)


def lower_loop(cx: Lowering, n: ast.For, form: LoopForm) -> None:
    if form.items is not None:
        unroll(cx, n, form.items)
        return
    space = form.space
    assert space is not None
    if form.config is not None:
        parallel(cx, n, space, form.config, form.own)
        return
    if space.guard is not None and cx.is_top:
        space.guard.ask_copy(cx)
    ops, start = cx.b.ops, len(cx.b.ops)
    with in_serial(cx):
        if form.leaves:
            serial_leaving(cx, n, space)
        else:
            serial(cx, n, space)
    if form.carried is not None and uses_simt(Region((), ops[start:])):
        raise must_be_parallel(cx, n, form.carried)


def uses_simt(region: Region) -> bool:
    """True if ops inside come from functions of `ti.simt`; reports too have a `thread_index`."""
    inner = list(walk(region))
    of_reports = {op.args[0] for op in inner if TABLE[op.kind].effect is Effect.REPORT}
    return any(
        op.kind in OF_WORKGROUPS or (op.kind == "thread_index" and op not in of_reports)
        for op in inner
    )


def has_tiles(body: Region) -> bool:
    """True if the body of a loop calls functions of tiles."""
    return any(op.kind == "shared" and op.name == TILE for op in body.ops)


def must_be_parallel(cx: Lowering, n: ast.For, found: CarriedVariable) -> CompilationError:
    origin = span_of(cx, found.node)
    sentence = fill_line(found.sentence, origin)
    return KernelSyntaxError(
        f"a loop with functions of ti.simt must be parallel, but {sentence}",
        origin,
        help=HELPS[found.kind].format(name=found.name, update=found.update),
        notes=(("the loop", span_of(cx, n.iter)),),
    )


def choose_form(cx: Lowering, n: ast.For) -> LoopForm:
    """Evaluate the iterable of a loop, choose the loop's form, and record the decision in
    `cx.decisions`.

    Consumes the options of a `ti.loop_config` before the loop. Raises KernelSyntaxError or
    KernelTypeError for a loop that kernels do not have.
    """
    config, cx.config = cx.config, LoopConfig()
    iterable = lower_iterable(cx, n.iter)
    if is_static_call(cx, n.iter) or (cx.act.is_plain and is_unrolled(iterable)):
        return LoopForm(cx.at(n.iter, lambda cx: unrolled_items(cx, iterable)))
    space = cx.at(n.iter, lambda cx: space_of(cx, iterable))
    check_targets(cx, n, space)
    source = cx.act.source
    leaves = first_break(source, n) is not None or returns(source, n)
    why = cx.act.why_serial or (ASKED if config.is_serial else "")
    why = why or (LEFT if leaves and not cx.act.is_kernel else "")
    why = why or (ONCE if runs_once(space) else "")
    assigned = assigned_names(cx, n) if cx.is_top and not why else {}
    carried = None
    if assigned and not leaves:
        carried = find_carried(cx, n, assigned)
    if cx.is_top and not (why or carried or leaves) and is_put_in_order(cx, n):
        why = RACES
    if cx.is_top and not (why or carried):
        cx.decisions.append(parallel_loop(cx, n, space))
        return LoopForm(None, space, config, own_variables(cx, n, assigned))
    if carried is not None:
        cx.decisions.append(carried_loop(cx, n, space, carried))
    elif not (cx.in_parallel or cx.in_serial):
        reason = why or CONDITIONAL
        is_warned = reason == CONDITIONAL and not (config.is_serial or leaves)
        cx.decisions.append(serial_loop(cx, n, space, reason, is_warned))
    return LoopForm(None, space, leaves=leaves, carried=carried)


@contextmanager
def in_serial(cx: Lowering) -> Iterator[None]:
    """Mark the loops lowered inside as inner loops of a serial one."""
    outer, cx.in_serial = cx.in_serial, True
    yield
    cx.in_serial = outer


def is_put_in_order(cx: Lowering, n: ast.For) -> bool:
    """True if the options serialize this loop, because its iterations conflict and the user chose
    `ti.cpu`.

    They list loops by number: the first call for a loop gives it the next one.
    """
    cx.locate(n.iter)
    number = cx.parallel_loops.setdefault(cx.span, len(cx.parallel_loops))
    return number in cx.options.in_order


def is_unrolled(x: Any) -> bool:
    """True if a loop over x in a plain Python function is unrolled.

    That holds for lists, tuples, dicts, vectors and matrices of Python, and for ranges of at most
    SHORT items.
    """
    if isinstance(x, range):
        return len(x) <= SHORT
    return type(x) in (list, tuple, dict) or isinstance(x, Matrix)


def runs_once(space: LoopSpace) -> bool:
    """True if a range of constants has at most one item, such as `range(1)`.

    Users write it to make the loops inside serial, as with serialize=True.
    """
    ends = (*space.axes[0], space.step) if space.name == "range" else (None,)
    return all(isinstance(end, int) for end in ends) and range_length(*ends) <= 1


# --- targets -------------------------------------------------------------------------------------


def check_targets(cx: Lowering, n: ast.For, space: LoopSpace) -> None:
    """Check that the targets match the space, and do not hide a variable.

    Raises KernelSyntaxError or KernelTypeError.
    """
    targets = items_in(n.target)
    cx.locate(n.target)
    for target in targets:
        if not isinstance(target, ast.Name):
            raise cx.fail("the target of a loop must be a name", kind=KernelSyntaxError)
        hidden = cx.act.find(target.id)
        if hidden is not None and target.id != "_":
            raise cx.fail(
                f"`{target.id}` is a variable already and cannot be the index of a loop",
                kind=KernelSyntaxError,
                notes=((f"`{target.id}` was assigned here", hidden.span),) if hidden.span else (),
                help="use another name",
            )
    count = 1 if space.is_grouped else len(space.axes)
    if count == 0:
        raise cx.fail("an array without axes has no indices", help="its element is x[None]")
    if len(targets) != count:
        name = {"array": "array", "ndrange": "ndrange"}.get(space.name, "range")
        axes = f"{len(space.axes)} {'axis' if len(space.axes) == 1 else 'axes'}"
        if space.is_grouped:
            raise cx.fail("a loop over ti.grouped has one index, a vector", kind=KernelSyntaxError)
        raise cx.fail(
            f"the {name} has {axes}, and the loop {_names(len(targets))}",
            kind=KernelSyntaxError,
            help=f"for {', '.join('ijklmnop'[:count])} in ..., or for I in ti.grouped(...)"
            if count > 1 else "for i in ..., or ti.ndrange(n, m) for several ranges",
        )  # fmt: skip


def _names(count: int) -> str:
    return f"{count} {'index' if count == 1 else 'indices'}"


def bind_indices(cx: Lowering, n: ast.For, space: LoopSpace, indices: list[Value]) -> None:
    """Declare the loop's index variables; for a grouped loop, one vector."""
    cx.locate(n.target)
    found: list[Any] = list(indices)
    if space.is_grouped:
        elem = i32 if space.name == "array" else space.index_type
        places = [k if k.type is elem else operator_lowering.cast(cx, k, elem) for k in indices]
        t = Tensor.of(elem, (len(indices),))
        found = [cx.b.emit("pack", *places, type=t) if places else ()]
    for target, index in zip(items_in(n.target), found):
        cx.declare(name_in(target), index)


def as_index(cx: Lowering, k: Value) -> Value:
    return k if k.type is i32 else operator_lowering.cast(cx, k, i32)


def index_name(n: ast.For, axis: int = 0) -> str:
    targets = items_in(n.target)
    return name_in(targets[axis] if axis < len(targets) else targets[0])


def lower_body(cx: Lowering, n: ast.For, space: LoopSpace, indices: list[Value]) -> LoopScope:
    """Lower one iteration with its indices; return its LoopScope, which has the flags."""
    loop = LoopScope(len(cx.frames))
    with cx.act.loop(loop), cx.act.block():
        bind_indices(cx, n, space, indices)
        if space.guard is None:
            lower_block(cx, n.body)
        else:
            space.guard.lower(cx, indices, lambda: lower_block(cx, n.body))
    return loop


# --- parallel ------------------------------------------------------------------------------------


def parallel(
    cx: Lowering, n: ast.For, space: LoopSpace, config: LoopConfig, own: Sequence[Var]
) -> None:  # fmt: skip
    """Lower a top-level loop to a `parallel` op: each iteration is an invocation.

    The variables in `own` are private to each iteration. Raises KernelSyntaxError for a `break`,
    KernelTypeError for a block_dim in a loop that is counted in 64 bits.
    """
    check_runs_to_end(cx, n)
    share_variables(cx, n, own)
    cx.locate(n.iter)
    bounds = parallel_bounds(cx, space)
    if config.block is not None and is_counted_wide(bounds):
        raise cx.fail("block_dim cannot be had in a loop that is counted in 64 bits")
    params = [Param(v.type, index_name(n, space.axis(k))) for k, v in enumerate(bounds[::2])]

    def lower() -> None:
        found = cx.at(n.target, lambda cx: indices_of(cx, space, params, bounds[0]))
        is_array = space.name == "array"  # whose axes have 32 bits, even if its size has 64
        indices = [as_index(cx, k) for k in found] if is_array and len(found) > 1 else found
        indices = indices[: len(space.axes)]
        note_iteration(cx, n, space, indices)
        with cx.act.block():
            for var in own:
                cx.act.declare(Var(var.name, var.value, VARIABLE, len(cx.frames), var.span))
            lower_body(cx, n, space, indices)

    cx.in_parallel, cx.block = True, config.block
    cx.cells.marked.clear()
    arm = run_region(cx, tuple(params), lower, is_for=True)
    cx.leave_parallel()
    cx.locate(n.iter)
    check_carried(cx, arm, ())
    with cx.b.within(arm.region):
        cx.b.emit("yield")
    body = arm.region if space.guard is None else space.guard.freeze(cx, arm.region)
    block = config.block or (TILE_BLOCK if has_tiles(arm.region) else None)
    check_count(cx, bounds, body, block)
    cx.b.parallel(bounds, body, block, config.name)


def check_count(cx: Lowering, bounds: list[Value], body: Region, block: int | None) -> None:
    """Emit a failure report for a trip count beyond the limit, if that must be checked.

    It must be in a loop with several axes or a barrier, if its invocations must equal its
    iterations. Bounds that the host can compute are checked elsewhere. A loop that is counted in 64
    bits has no check, and raises KernelTypeError if it has a barrier.
    """
    is_tied = block is not None or has_kind(body, GROUPED | SYNCS)
    has_barriers = has_kind(body, BARRIERS)
    if has_barriers and is_counted_wide(bounds):
        raise cx.fail("`sync` cannot be had in a loop that is counted in 64 bits")
    if not is_tied or all(map(is_given, bounds)) or is_counted_wide(bounds):
        return
    if len(bounds) > 2 or has_barriers:
        limit = INT_MAX - LARGEST_BLOCK if has_barriers else INT_MAX
        fits, _ = checked_iteration_count(cx.b, space_of_axes(cx.b, bounds), limit)
        cx.reports.emit_unless(cx, fits, "range", [TOO_LONG])


def note_iteration(cx: Lowering, n: ast.For, space: LoopSpace, indices: list[Value]) -> None:
    """Record the index names and values, for failure messages from the loop's body."""
    names = [ast.unparse(target) for target in items_in(n.target)]
    parts = [tuple(indices)] if space.is_grouped else [(k,) for k in indices]
    cx.reports.iteration = tuple(zip(names, parts))


def check_runs_to_end(cx: Lowering, n: ast.For) -> None:
    found = first_break(cx.act.source, n)
    if found is not None:
        cx.locate(found)
        raise cx.fail(
            "`break` cannot leave a loop that runs in parallel",
            kind=KernelSyntaxError,
            notes=(("the loops at the top of a kernel do", cx.act.source.span(n.target)),),
            help=_SERIALIZE,
        )


# --- serial --------------------------------------------------------------------------------------


def serial(cx: Lowering, n: ast.For, space: LoopSpace) -> None:
    """Lower a loop without early exit: one `for` op per axis."""
    variables = carried_variables(cx, n)
    if space.name == "range":
        cx.locate(n.iter)
        begin, end = bounds_of(cx, space)

        def lower(k: Value) -> None:
            indices = cx.at(n.target, lambda cx: indices_of(cx, space, [k]))
            lower_body(cx, n, space, indices)

        hint = None if space.guard is None else GUARDED
        loop_for(cx, begin, end, variables, lower, index_name(n), hint)
        return
    _nest(cx, n, space, variables, [])


def _nest(
    cx: Lowering, n: ast.For, space: LoopSpace, variables: list[Var], indices: list[Value]
) -> None:
    axis = len(indices)
    if axis == len(space.axes):
        lower_body(cx, n, space, indices_of(cx, space, indices))
        return
    cx.locate(n.iter)
    ends = space.axes[axis]
    t = index_type(*ends)
    begin, end = [materialise(cx, bound, t) for bound in ends]
    deeper = lambda k: _nest(cx, n, space, variables, [*indices, k])  # noqa: E731
    loop_for(cx, begin, end, variables, deeper, index_name(n, space.axis(axis)))


def serial_leaving(cx: Lowering, n: ast.For, space: LoopSpace) -> None:
    """Lower a loop with `break` or `return`: a `while` op over the iterations of all axes."""
    cx.locate(n.iter)
    if len(space.axes) > 1:
        leaving_nest(cx, n, space)
        return
    begin, end = bounds_of(cx, space)
    counter = Var(index_name(n), begin, VARIABLE, len(cx.frames))

    def goes_on() -> Any:
        return cx.b.emit("lt", counter.value, end)

    def lower() -> LoopScope:
        k = counter.value
        indices = cx.at(n.target, lambda cx: indices_of(cx, space, [k]))
        loop = lower_body(cx, n, space, indices)
        cx.locate(n.iter)
        cx.assign(counter, cx.b.emit("add", k, cx.b.const(1, scalar_of(k.type))))
        return loop

    variables = [counter, *carried_variables(cx, n)]
    loop_while(cx, n, variables, goes_on, lower, may_leave=True)


def leaving_nest(cx: Lowering, n: ast.For, space: LoopSpace) -> None:
    """Lower a loop over several axes with `break` or `return` to a `while` op.

    It carries one index per axis. A product of the lengths, which could overflow, is not needed.
    The loop ends when an index is at its end: only the slowest index stays there, and an empty axis
    starts there.
    """
    types = [index_type(*ends) for ends in space.axes]
    axes = [[materialise(cx, bound, t) for bound in ends] for ends, t in zip(space.axes, types)]
    depth = len(cx.frames)
    counters = [
        Var(index_name(n, space.axis(k)), begin, VARIABLE, depth)
        for k, (begin, _) in enumerate(axes)
    ]

    def goes_on() -> Any:
        inside = [cx.b.emit("lt", c.value, end) for c, (_, end) in zip(counters, axes)]
        return reduce(lambda a, b: cx.b.emit("and", a, b), inside)

    def lower() -> LoopScope:
        indices = [c.value for c in counters]
        loop = lower_body(cx, n, space, indices_of(cx, space, indices))
        cx.locate(n.iter)
        for c, following in zip(counters, following_indices(cx, indices, axes)):
            cx.assign(c, following)
        return loop

    variables = [*counters, *carried_variables(cx, n)]
    loop_while(cx, n, variables, goes_on, lower, may_leave=True)


def following_indices(cx: Lowering, indices: list[Value], axes: list[list[Value]]) -> list[Value]:
    """Return the indices of the next iteration; the last axis varies fastest.

    No increment overflows.
    """
    b = cx.b
    found: list[Value] = []
    moves: Value | None = None  # True if this axis advances; the last one always does
    for k in reversed(range(len(axes))):
        index, (begin, end) = indices[k], axes[k]
        following: Value = b.emit("add", index, b.const(1, scalar_of(index.type)))
        goes_round = b.emit("ge", following, end) if k else None
        if goes_round is not None:
            following = b.emit("select", goes_round, begin, following)
        if moves is not None:
            following = b.emit("select", moves, following, index)
            goes_round = b.emit("and", moves, goes_round) if goes_round is not None else None
        moves = goes_round
        found.append(following)
    return found[::-1]


def lower_while(cx: Lowering, n: ast.While) -> None:
    cx.config = LoopConfig()
    if not (cx.in_parallel or cx.in_serial):
        cx.decisions.append(while_loop(cx, n))
    with in_serial(cx):
        lower_iterations(cx, n)


def lower_iterations(cx: Lowering, n: ast.While) -> None:
    source = cx.act.source

    def goes_on() -> Any:
        return cx.at(n.test, lambda cx: condition_of(cx, cx.expr(n.test)))

    def lower() -> LoopScope:
        loop = LoopScope(len(cx.frames))
        with cx.act.loop(loop), cx.act.block():
            lower_block(cx, n.body)
        return loop

    # the condition assigns variables: `while (left := left - 1) > 0:`
    if any(nodes_of(n.test, ast.NamedExpr)):
        loop_while(
            cx, n, carried_variables(cx, n), lambda: True, lambda: test_and_run(cx, n, goes_on),
            may_leave=True,
        )  # fmt: skip
        return
    leaves = first_break(source, n) is not None or returns(source, n)
    loop_while(cx, n, carried_variables(cx, n), goes_on, lower, may_leave=leaves)


def test_and_run(cx: Lowering, n: ast.While, goes_on: Callable[[], Any]) -> LoopScope:
    """Lower one iteration with the condition inside the body; a false condition breaks.

    The condition may then assign loop-carried variables.
    """
    loop = LoopScope(len(cx.frames))
    with cx.act.loop(loop), cx.act.block():
        more = goes_on()
        cx.assign(loop.broken, operator_lowering.negated(cx, more))
        lower_unless(cx, [loop.broken], lambda: lower_block(cx, n.body))
    return loop


# --- unrolled ------------------------------------------------------------------------------------


def unroll(cx: Lowering, n: ast.For, items: list[Any]) -> None:
    """Unroll a loop: lower its body once per item. A `break` or `return` skips the rest.

    Adds a caution if that gives too many ops.
    """

    def lower_from(start: int) -> None:
        for k in range(start, len(items)):
            loop = LoopScope(len(cx.frames))
            with cx.act.loop(loop), cx.act.block():
                bind_static(cx, n.target, items[k])
                lower_block(cx, n.body)
            flags = [loop.broken, cx.act.returned]
            if any(flag.value is not False for flag in flags):
                lower_unless(cx, flags, partial(lower_from, k + 1))
                return

    ops, said = cx.b.ops, len(cx.cautions)
    start = len(ops)
    lower_from(0)
    is_said = any(noted.caution.kind == "unroll" for noted in cx.cautions[said:])
    if not is_said and not cx.options.debug:  # where checks are ops too
        note_unrolled(cx, n, len(items), count_operations(ops[start:]))


def count_operations(ops: list[Op]) -> int:
    """Return the number of ops, nested ones included, without constants and addresses."""
    free = Trait.FIXED | Trait.PLACE
    return sum(not TABLE[op.kind].traits & free for op in walk_ops(ops))


def note_unrolled(cx: Lowering, n: ast.For, rounds: int, count: int) -> None:
    """Add a caution for a loop of user code that was unrolled to more than MOST_UNROLLED ops."""
    span = cx.act.source.span(n, cx.act.caller)
    if count > MOST_UNROLLED and not span.file.startswith(PACKAGE):
        sentence = (
            f"this loop is unrolled {rounds} times, to {count} operations: compiling takes long"
        )
        help = "leave ti.static out, so that it loops at run time"
        cx.cautions.append(PendingCaution(Caution("unroll", sentence, help, span)))


# --- decisions ------------------------------------------------------------------------------------


ASKED = "ti.loop_config(serialize=True) is written before it"
LEFT = "a `break` or `return` of the function ends it"
ONCE = "its range has at most one item"
RACES = "its iterations conflict, and under ti.cpu such loops run in order"
WHILE = "each iteration of a `while` loop depends on the one before"
ORDERED = "if the order is meant, write ti.loop_config(serialize=True) before the loop"
REMEDIES = {
    CONDITIONAL: "put the condition inside the loop, or decide in Python which kernel to call",
    LEFT: "move the loop to the kernel",
    RACES: "let each iteration store to elements of its own",
    REAL: "move the loop to the kernel",
}  # by reason
HELPS = {
    "reduction": "write {update}: sums, products, minima and maxima stay parallel",
    "inside": "assign `{name}` first in the loop's body, so that each iteration has its own; "
    + ORDERED,
    "after": "store what is read later in an array; " + ORDERED,
}


def parallel_loop(cx: Lowering, n: ast.For, space: LoopSpace) -> PendingDecision:
    made = Decision("parallel", span_of(cx, n.iter), is_sparse=space.guard is not None)
    return PendingDecision(made, space.axes, space.step)


def serial_loop(
    cx: Lowering, n: ast.For, space: LoopSpace, reason: str, is_warned: bool = False
) -> PendingDecision:
    help, is_sparse = REMEDIES.get(reason, ""), space.guard is not None
    made = Decision("serial", span_of(cx, n.iter), reason, help, is_sparse=is_sparse)
    return PendingDecision(made, space.axes, space.step, is_warned and not is_ours(made.span))


def carried_loop(
    cx: Lowering, n: ast.For, space: LoopSpace, found: CarriedVariable
) -> PendingDecision:
    """Return the record of a loop that is serial because a variable carries values between
    iterations."""
    help = HELPS[found.kind].format(name=found.name, update=found.update)
    origin = span_of(cx, found.node)
    made = Decision(
        "serial", span_of(cx, n.iter), found.sentence, help, origin, name=found.name,
        is_sparse=space.guard is not None,
    )  # fmt: skip
    return PendingDecision(made, space.axes, space.step, is_warned=not is_ours(made.span))


def while_loop(cx: Lowering, n: ast.While) -> PendingDecision:
    return PendingDecision(Decision("serial", span_of(cx, n.test), WHILE))


def span_of(cx: Lowering, n: ast.AST) -> Span:
    return cx.act.source.span(n, cx.act.caller)
