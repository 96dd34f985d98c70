"""Lowering of `random`: PCG arithmetic on a private state variable per invocation.

The state is initialized at the start of a `parallel`'s region, and of a Func's serial code. The
generator is that of `ir.op_table.semantics`.

    %r = random     ->     %s = load %state; %t = advance %s; store %state, %t; %r = permute %t
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.errors import InternalError
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, has_kind
from vkchi.ir.num import Num
from vkchi.ir.op_table.semantics import INCREMENT, MULTIPLIER, PERMUTER, SPREADER
from vkchi.ir.rebuild import Rebuilder
from vkchi.target.shader import SEED
from vkchi.types import i32, u32

RANDOM = ("random",)


def lower_random(fn: Func) -> Func:
    """Lower all `random` ops. Raises InternalError if there are any and no u32 seed parameter."""
    return Func(fn.name, fn.params, RandomLowering(fn.params).stream(fn.body), fn.span)


def number_iteration(region: Region, params: Sequence[Param]) -> Region:
    """Return the body of a `parallel` with one more parameter: the number of the iteration, in
    place of `thread_index`, also for random numbers."""
    number = Param(i32, "number")
    lowering = RandomLowering(params, number)
    return lowering.stream(Region((*region.params, number), region.ops))


class RandomLowering(Rebuilder):
    """Rewrites a Func with these parameters; `state` is the variable that holds the invocation's
    state. With a `number`, that replaces `thread_index`."""

    def __init__(self, params: Sequence[Param], number: Param | None = None) -> None:
        super().__init__(self.visit_op)
        self.state: Value | None = None
        self.number = number
        self.seed = next((p for p in params if p.name == SEED and p.type is u32), None)

    def visit_op(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op.kind == "random":
            return (self.draw(b),)
        if op.kind == "thread_index" and self.number is not None:
            return (self.number,)
        if op.kind != "parallel" or not has_kind(op.regions[0], RANDOM):
            return None
        outer = self.state
        body = self.stream(op.regions[0])
        self.state = outer
        return b.insert(self.copy(op, args, (body,))).results

    def stream(self, region: Region) -> Region:
        """Rewrite a region of an invocation. If the region draws random numbers, the state is
        initialized at its start."""
        with self.inside(*region.params) as new:
            if any(_draws(op) for op in region.ops):
                self.state = self.b.emit("local", self.first_state(self.b), name="state")
            self.ops(region.ops)
        return new

    def first_state(self, b: Builder) -> Value:
        """Append the computation of `first_state` from the seed and `thread_index`. Raises
        InternalError without a seed parameter."""
        if self.seed is None:
            raise InternalError(f"`random` needs a u32 parameter named `{SEED}`")
        number = self.number or b.emit("thread_index")
        index = Num(b, number).bits(u32)
        return _permuted(_advanced(Num(b, self.seed) ^ index * SPREADER)).v

    def draw(self, b: Builder) -> Value:
        assert self.state is not None
        state = _advanced(Num(b, b.emit("load", self.state)))
        b.emit("store", self.state, state.v)
        return _permuted(state).v


def _draws(op: Op) -> bool:
    """True if an op draws in this invocation, not only in a nested `parallel`."""
    inner = () if op.kind == "parallel" else op.regions
    return op.kind == "random" or any(has_kind(region, RANDOM) for region in inner)


def _advanced(state: Num) -> Num:
    return state * MULTIPLIER + INCREMENT


def _permuted(state: Num) -> Num:
    word = (state.op("shr", (state >> 28) + 4) ^ state) * PERMUTER
    return (word >> 22) ^ word
