"""Parallel reductions: atomics to a loop-invariant address become private accumulators.

    parallel 0, n { (i) ..., atomic_add total, v }

becomes a loop over a fixed number of invocations (`map_grid`), each with a private accumulator. A
subgroup reduction combines the accumulators; one lane of the subgroup executes the single atomic.
Without subgroup reductions of the type, each invocation executes one. An atomic in a serial loop,
with a loop-invariant address, likewise becomes one atomic after it. The atomic moves out of the
outermost loop possible.

A loop takes an atomic if

- its old value is unused, and its address depends only on constants and values from outside;
- all accesses of the loop to that array, and to others that may alias it, are such atomics, of one
  kind (`reducible`);
- the loop has no barrier, fence or check that may end its invocation;
- a `parallel` does not use its invocation index, has no demanded workgroup size, and has enough
  iterations (`cost_model`).

The order of atomics is unspecified, so sums and products of floats may be reassociated. An
accumulator starts with the identity. That of f16 and bf16 is an f32, so that long sums are rounded
once.

    >>> reduce(fn, caps)
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterator, Sequence

from vkchi.analysis.dataflow import made_inside
from vkchi.analysis.memory.alias import EXITS, reducible
from vkchi.analysis.parallel_loops import is_private, may_partition
from vkchi.analysis.values.host_numbers import host_count, list_length
from vkchi.analysis.values.iterations import invariant_path
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value, base_memory, is_constant, used_in
from vkchi.ir.ops import ATOMICS, EXTREMES, LOOPS, Effect, effect_of
from vkchi.ir.rebuild import Rebuilder
from vkchi.opt.cost_model import reduction_threads, subgroup_width
from vkchi.opt.mapping.map_grid import build_shared
from vkchi.opt.mapping.share import ThreadBudget, WorkDistribution
from vkchi.target.caps import Caps
from vkchi.target.remarks import Decision, Log, record
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, Type, bf16, f16, f32, scalar_of, with_scalar

PARTIAL = "each invocation adds up its iterations first; few atomics combine their results"
FEW = "the loop is too short for partial results"
USED = "the program uses the value that it returns"
MIXED = "the loop also accesses the element, or memory that may be the same, in another way"
# Scalar types with subgroup reductions on every device that has any.
SUBGROUP_TYPES = frozenset({"i32", "u32", "f32", "f64"})


def reduce(fn: Func, caps: Caps, log: Log | None = None) -> Func:
    """Replace atomics by private accumulators where legal, in a `parallel` only if it has enough
    iterations (`reduction_threads`).

    Records in `log` the atomics that loops take, and the reason for others in `parallel` loops.
    """
    return _Reducer(fn, caps, log).rebuilder.run(fn)


class ReducibleAtomic(NamedTuple):
    """An atomic that a loop can take.

    Its address is `path` applied to `base`, an address or array from outside the loop.
    `guarded`: it is in an `if` of the loop.
    """

    atomic: Op
    base: Value
    path: tuple[Op, ...]
    guarded: bool

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for atomics of the same kind and address."""
        steps = [(p.kind, p.attr, *map(_key_of, p.args[1:])) for p in self.path]
        return (self.atomic.kind, self.base, *steps)


def _key_of(v: Value) -> object:
    return (v.type, v.attr) if is_constant(v) else v


class Accumulator(NamedTuple):
    """The atomics of one address that a loop takes, and their private accumulator."""

    claims: list[ReducibleAtomic]
    local: Op


class _Reducer:
    """Rewrites one Func. `locals` maps the atomics that loops take to their accumulators."""

    def __init__(self, fn: Func, caps: Caps, log: Log | None) -> None:
        self.caps, self.log = caps, log
        self.used = used_in(fn.body)
        self.locals: dict[Op, Op] = {}
        self.rebuilder = Rebuilder(self.visit)

    def visit(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Rewrite a loop that takes atomics, or replace such an atomic by an update of its
        accumulator."""
        local = self.locals.get(op)
        if local is not None:
            old = b.emit("load", local)
            v = as_type(b, args[1], old.type)
            b.emit("store", local, b.emit(ATOMICS[op.kind].combine, old, v))
            return args[1:]  # placeholder for its unused result
        if op.kind == "parallel":
            return self.parallel(b, op, args)
        if op.kind in LOOPS:
            return self.loop(b, op, args)
        return None

    # --- loops

    def loop(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Emit a serial loop between its accumulators and their atomics; None if it takes no
        atomic."""
        claims = find_claims(op, self.used, self.locals)
        sums = self.open_sums(b, claims)
        if not sums:
            return None
        self.note(claims, PARTIAL)
        self.rebuilder.keep(op, args)
        for found in sums:
            self.finish(b, found)
        get = self.rebuilder.map.get
        return [get(v, v) for v in op.results]

    def finish(self, b: Builder, found: Accumulator) -> None:
        """Emit the atomic after a loop.

        It is guarded by a comparison with the identity if `hides_nan`, or if it is scalar and all
        original atomics are in `if`s.
        """
        b.span = found.claims[0].atomic.span
        v, claim = b.emit("load", found.local), found.claims[0]
        is_scalar = isinstance(v.type, Scalar)
        if hides_nan(claim.atomic) or (is_scalar and all(c.guarded for c in found.claims)):
            with b.when(differs_from_identity(b, claim.atomic.kind, v)):
                self.build_atomic(b, claim, v)
        else:
            self.build_atomic(b, claim, v)

    def parallel(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Emit a `parallel` with accumulators, distributed over a fixed number of invocations.

        None if it has too few iterations, if results may depend on the invocation that runs an
        iteration, or if it takes no atomic.
        """
        is_listed = list_length(op.args[1]) is not None
        threads = reduction_threads(host_count(op), self.caps, is_listed=is_listed)
        if threads is None or not may_partition(op):
            if self.log is not None:
                self.note(find_claims(op, self.used, self.locals), FEW)
            return None
        claims = find_claims(op, self.used, self.locals, self.log)
        if not claims:
            return None
        self.note(claims, PARTIAL)
        (body,) = op.regions

        def fill(indices: Sequence[Value], _: Value) -> None:
            self.rebuilder.map.update(zip(body.params, indices, strict=True))
            self.rebuilder.ops(body.ops[:-1])

        def run(shared: WorkDistribution, t: Value) -> None:
            sums = self.open_sums(b, claims)
            shared.emit(b, t, fill)
            for found in sums:
                self.finish_subgroup(b, found)

        build_shared(
            b,
            op,
            args,
            ThreadBudget(threads, subgroup_width(self.caps), self.caps.scalar_lanes),
            run,
        )
        return ()

    def note(self, claims: Sequence[ReducibleAtomic], reason: str) -> None:
        for claim in claims:
            record(self.log, Decision("cause", claim.atomic.span, reason))

    def finish_subgroup(self, b: Builder, found: Accumulator) -> None:
        """Reduce an accumulator over the subgroup; one lane executes the atomic.

        Without a subgroup reduction of its type, every invocation executes it.
        """
        claim = found.claims[0]
        b.span = claim.atomic.span
        v: Value = b.emit("load", found.local)
        if not self.caps.subgroup_arithmetic or scalar_of(v.type).name not in SUBGROUP_TYPES:
            self.finish(b, found)
            return
        v = over_subgroup(b, claim.atomic.kind, v)
        condition = b.emit("subgroup_elect")
        if hides_nan(claim.atomic):
            condition = b.emit("and", condition, differs_from_identity(b, claim.atomic.kind, v))
        with b.when(condition):
            self.build_atomic(b, claim, v)

    # --- accumulators

    def open_sums(self, b: Builder, claims: Sequence[ReducibleAtomic]) -> list[Accumulator]:
        """Emit an accumulator per address of these atomics, initialized with the identity."""
        sums: dict[tuple[object, ...], Accumulator] = {}
        for claim in claims:
            found = sums.get(claim.key)
            if found is None:
                local = b.emit("local", identity(b, claim.atomic), name="sum")
                found = sums[claim.key] = Accumulator([], local)
            found.claims.append(claim)
            self.locals[claim.atomic] = found.local
        return list(sums.values())

    def build_atomic(self, b: Builder, claim: ReducibleAtomic, v: Value) -> None:
        """Emit the atomic with its address recomputed.

        A proof of being in range is dropped unless the indices are constant: its condition may
        not hold here.
        """
        place = self.rebuilder.map.get(claim.base, claim.base)
        for p in claim.path:
            rest = [self.outside(b, x) for x in p.args[1:]]
            fixed = p.kind != "elem" or all(is_constant(x) for x in rest)
            place = b.emit(p.kind, place, *rest, attr=p.attr if fixed else None, name=p.name)
        b.emit(claim.atomic.kind, place, as_type(b, v, claim.atomic.args[1].type))

    def outside(self, b: Builder, v: Value) -> Value:
        if is_constant(v):
            return b.emit("const", attr=v.attr, type=v.type)
        return self.rebuilder.map.get(v, v)


def identity(b: Builder, atomic: Op) -> Op:
    """Append the identity of an atomic in the type of its accumulator: f32 for f16 and bf16, else
    the operand's."""
    t = atomic.args[1].type
    assert isinstance(t, Scalar | Tensor)
    return identity_of_kind(
        b, atomic.kind, with_scalar(t, f32) if scalar_of(t) in (f16, bf16) else t
    )


def identity_of_kind(b: Builder, kind: str, t: Scalar | Tensor) -> Op:
    bits = ATOMICS[kind].identity(scalar_of(t))
    return b.emit("const", attr=(bits,) * t.size if isinstance(t, Tensor) else bits, type=t)


def hides_nan(atomic: Op) -> bool:
    """True for a minimum or maximum of floats. Applied with the identity, it would replace a NaN in
    memory, in an element that the program may not write."""
    return atomic.kind in EXTREMES and scalar_of(atomic.args[1].type).kind == "f"


def differs_from_identity(b: Builder, kind: str, v: Value) -> Op:
    """Append a test that a value, or one of its components, differs from the identity."""
    t = scalar_of(v.type)
    tests = [b.emit("ne", x, identity_of_kind(b, kind, t)) for x in b.components(v)]
    return functools.reduce(lambda x, y: b.emit("or", x, y), tests)


def over_subgroup(b: Builder, kind: str, v: Value) -> Value:
    combined = "subgroup_" + ATOMICS[kind].combine
    return b.assemble([b.emit(combined, x) for x in b.components(v)], v.type)


def as_type(b: Builder, v: Value, t: Type) -> Value:
    return v if v.type is t else b.emit("cast", v, type=t)


# --- legality ------------------------------------------------------------------------------------


def find_claims(
    loop: Op, used: set[Value], taken: Container[Op], log: Log | None = None
) -> list[ReducibleAtomic]:
    """Return the atomics that the loop can take, in program order; none if it synchronizes or may
    end early.

    `used` holds all operands of ops, `taken` holds the atomics that enclosing loops have taken. Two
    kinds of other atomics are recorded in `log`: those whose result is used, and those whose array
    the loop also accesses otherwise.
    """
    ops = [(op, guarded) for op, guarded in walk_guarded(loop.regions) if op not in taken]
    if any(effect_of(op.kind) is Effect.SYNC or op.kind in EXITS for op, _ in ops):
        return []
    defined = set(made_inside(loop))
    arrays = reducible((op for op, _ in ops), used)
    claims: list[ReducibleAtomic] = []
    for op, guarded in ops:
        if op.kind not in ATOMICS or is_private(op):
            continue
        path = invariant_path(op.args[0], defined)
        if op in used:
            record(log, Decision("cause", op.span, USED))
        elif path is not None and base_memory(op.args[0]) not in arrays:
            record(log, Decision("cause", op.span, MIXED))
        elif path is not None:
            start = path[0].args[0] if path else op.args[0]
            claims.append(ReducibleAtomic(op, start, tuple(path), guarded))
    return claims


def walk_guarded(regions: Sequence[Region], guarded: bool = False) -> Iterator[tuple[Op, bool]]:
    for region in regions:
        for op in region.ops:
            yield op, guarded
            if op.regions:
                yield from walk_guarded(op.regions, guarded or op.kind == "if")
