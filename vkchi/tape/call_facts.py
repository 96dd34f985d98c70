"""Facts about a recorded call: what its gradient reads, and what it leaves in memory.

The facts of a call without lost gradients and unknown values in its arrays depend only on its
kernel, its arrays, the set of constant arrays, and integers that decide about indices, loop bounds
or conditions. They are computed once, before the first such call runs, and kept in
`RepeatedTapedCall.known`.

    found = calls.find(kernel, args)    # None if this call must be analyzed
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from vkchi.analysis.memory.boxes import Box
from vkchi.autodiff.results import DerivativeOutflow, GradientSpec, Spans
from vkchi.calls.call import KernelCall, LaunchRequest
from vkchi.calls.facts import Case, facts
from vkchi.calls.repeated import MOST_CASES, RepeatedTapedCall, find_repeated
from vkchi.fields.array_versions import point_of
from vkchi.interrupts.weak import insert_bounded
from vkchi.span import Span, is_ours, user_span
from vkchi.tape.ledger import Definition, Fills, Ledger, box_at, derivative_at, input_at
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.calls.call import Memory
    from vkchi.fields.storage import Storage
    from vkchi.launch.compiled_kernel import CompiledKernel
    from vkchi.tape.plan import GradientPlan

Parts = tuple[tuple[str, Definition], ...]  # by parameter name
NOTHING: frozenset[str] = frozenset()


class CallFacts(NamedTuple):
    """Facts about a call.

    - `made`: its gradient; None in forward mode.
    - `needs`: the parts of arrays that the gradient reads, with `point_of` the boxes.
    - `writes`: the arrays that the kernel writes, with the parts (`()`: all).
    - `stores`: the parts where it stores values with a derivative.
    - `losses`: the lost gradients that it stores.
    - `uses`: the parts of differentiable arrays that it reads.
    - `constants`: arrays that hold constants afterwards, with the fills they depend on.
    """

    made: GradientPlan | None
    needs: tuple[tuple[str, Box, int | None], ...]
    writes: tuple[tuple[str, Box], ...]
    stores: Parts
    losses: tuple[Definition, ...]
    uses: Parts
    constants: tuple[tuple[str, Fills], ...]


def facts_of(
    call: KernelCall, made: GradientPlan | None, by: GradientSpec | frozenset[str],
    constant: Mapping[str, Fills], kind: str,
) -> CallFacts:  # fmt: skip
    """Compute the facts about a call that reads the arrays in `constant` as constants.

    `by` is the gradient, or in forward mode the set of arrays with tangents. An array that receives
    no derivative stays constant, or becomes constant if the call overwrites all of it.
    """
    needs = made.needs(call) if made is not None else {}
    boxes = made.writes(call) if made is not None else {}
    undecided = {name: frozenset(fill for fill in fills if not fill.why_constant)
                 for name, fills in constant.items()}  # fmt: skip
    flows = flows_of(call, by, undecided)
    who, places = f"{call.name}()", call.arrays.keys() - (call.hosts.keys() - call.tensors.keys())
    stores, constants = [], []
    for name, span in flows.none.stores.items():
        if name in places:
            box = boxes.get(name) or box_at(call.arrays[name])
            stores.append((name, derivative_at(name, who, line_of(span), box)))
    written = sorted(call.kernel.written & call.arrays.keys())
    for name in written:
        array = call.arrays[name]
        if name in flows.all.stores or array.whole is not array or name in call.hosts:
            continue
        if name in undecided or covering(call, name) is not None:
            is_open = name in flows.surely.stores
            constants.append((name, flows.fills if is_open else undecided.get(name, Fills())))
    losses = (
        *lost_parts(call, flows.all.escapes), *lost_parts(call, flows.none.bits, is_bits=True),
        *lost_parts(call, flows.given, fills=flows.fills),
    )  # fmt: skip
    return CallFacts(
        made,
        tuple([(name, box, point_of(box)) for name, box in needs.items()]),
        tuple([(name, boxes.get(name, ())) for name in written]),
        tuple(stores), losses, tuple(uses_of(call, call.case, kind)), tuple(constants),
    )  # fmt: skip


# --- analyses ------------------------------------------------------------------------------------


class DerivativeFlows(NamedTuple):
    """Destinations of derivatives in a call, under three assumptions about its arrays.

    - `none`: no array is constant.
    - `surely`: only arrays without undecided fills are constant.
    - `all`: arrays that depend on `fills` are constant, too.

    Destinations in `surely` but not in `all` only have derivatives with respect to these fills.
    """

    none: DerivativeOutflow
    surely: DerivativeOutflow
    all: DerivativeOutflow
    fills: Fills

    @property
    def given(self) -> Spans:
        found, others = self.surely.escapes, self.all.escapes
        return {name: op for name, op in found.items() if name not in others}


def flows_of(
    call: KernelCall, by: GradientSpec | frozenset[str], constant: Mapping[str, Fills]
) -> DerivativeFlows:
    none = facts.outflow(call.kernel, by, call.case, NOTHING)
    if not constant:
        return DerivativeFlows(none, none, none, Fills())
    sure = [name for name, fills in constant.items() if not fills]
    surely, all_ = (
        facts.outflow(call.kernel, by, call.case, frozenset(names)) for names in (sure, constant)
    )
    return DerivativeFlows(none, surely, all_, Fills().union(*constant.values()))


def memory_of(call: KernelCall, name: str) -> Memory:
    found: Memory = call.hosts[name] if name in call.hosts else call.arrays[name].whole
    return found


def covering(call: KernelCall, name: str, box: Box = ()) -> int | None:
    """Index of the segment of a call by whose end all of a box is certainly overwritten, or None.

    The empty box is the whole array. None for components of fields.
    """
    array = call.arrays[name]
    return facts.covering(call.kernel, name, box, call.case) if array.whole is array else None


def lost_parts(
    call: KernelCall, escapes: Spans, *, is_bits: bool = False, fills: Fills = frozenset()
) -> list[Definition]:
    """The lost gradients that a call stores.

    `escapes` are the source spans of the stores, by parameter name. With `is_bits`, the stores hold
    the bits of a differentiable value. `fills` is not empty if the derivative is only with respect
    to these Python writes.
    """
    found = []
    boxes = facts.touched(call.kernel, "writes", call.case) if escapes else {}
    what = "bits of a value" if is_bits else "a value"
    for name, span in escapes.items():
        if name in call.arrays:
            origin = (f"{call.name}() puts {what} with a derivative there", line_of(span))
            box = boxes.get(name) or box_at(call.arrays[name])
            lost = Definition("lost", memory_of(call, name), name, origin, box, is_bits)
            found.append(lost._replace(fills=fills))
    return found


def line_of(span: Span | None) -> Span | None:
    """The user's line: the span itself, or for kernels of vkchi's own the line that called them."""
    return user_span() if is_ours(span) else span


def uses_of(
    launch: KernelCall | LaunchRequest, case: Case, kind: str
) -> Iterator[tuple[str, Definition]]:
    """Yield the parts of differentiable arrays and tensors that a launch reads."""
    tensors = launch.tensors if isinstance(launch, KernelCall) else {}
    for name, box in facts.touched(launch.kernel, "reads", case).items():
        array = launch.arrays.get(name)
        if array is None or name in launch.constants:
            continue
        if name in tensors or array.companion(kind) is not None:
            find = partial(first_access, launch.kernel, "reads", name)
            yield name, input_at(name, f"{launch.name}()", box, find)


def first_access(kernel: CompiledKernel, kinds: str, name: str) -> Span | None:
    """Source span of a kernel's first access of these kinds (`questions.footprint`) to an array."""
    from vkchi.calls.questions import footprint  # imports the IR; only needed for errors

    return footprint(kernel, kinds).span_of(name)


# --- calls with known facts ----------------------------------------------------------------------


class BoundCall:
    """The arrays of calls with the same arguments in one recording, their accounts and gradients.

    - `repeated`: data shared with such calls of other recordings; None if these are not cached.
    - `gradients`: by name. Those of torch tensors are there only while a gradient runs.
    """

    def __init__(
        self, name: str, ledger: Ledger, arrays: Mapping[str, Storage],
        gradients: dict[str, Storage], repeated: RepeatedTapedCall | None,
    ) -> None:  # fmt: skip
        self.who = f"{name}()"
        self.arrays, self.gradients, self.repeated = arrays, gradients, repeated
        self.accounts = {name: ledger.open(array) for name, array in arrays.items()}
        self.made = repeated.gradient(gradients) if repeated is not None else None
        smooth = repeated.smooth if repeated is not None else {}
        # Arrays whose gradient may change, with it (None: without one).
        self.watched = [(arrays[name], gradients.get(name)) for name, may_change in smooth.items()
                        if may_change or name not in gradients]  # fmt: skip

    def is_current(self) -> bool:
        """True if the arrays have the same gradients as before."""
        return all([array.companion("grad") is adjoint for array, adjoint in self.watched])

    def constants(self) -> list[str] | None:
        """Names of the constant arrays; None if an array holds a lost gradient, an unknown value,
        or a constant on a condition."""
        constant = []
        for name, account in self.accounts.items():
            if account.definitions.is_suspect:
                return None
            if account.fills is not None:
                if account.fills:
                    return None
                if name in self.gradients and account.array is self.arrays[name]:
                    constant.append(name)
        return constant


class KnownCalls:
    """The calls of one recording whose facts may be known."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.bound: dict[int, BoundCall] = {}  # by id of the data shared by calls

    def find(
        self, name: str, kernel: CompiledKernel, args: tuple[Any, ...]
    ) -> tuple[BoundCall, CallFacts] | None:  # fmt: skip
        """Return a call with its facts; None if it must be analyzed."""
        repeated = find_repeated(kernel, args)
        if repeated is None or not repeated.known:
            return None
        bound = self.bound.get(id(repeated))
        if bound is None or not bound.is_current():
            arrays = repeated.arrays(args)
            found = {name: arrays[name].companion("grad") for name in repeated.smooth}
            gradients = {name: array for name, array in found.items() if array is not None}
            bound = self.bind(name, arrays, gradients, repeated)
        constant = bound.constants()
        if constant is None:
            return None
        known: CallFacts | None = repeated.known.get((repeated.key_of(args), *constant))
        return (bound, known) if known is not None and known.made is bound.made else None

    def bind(
        self, name: str, arrays: Mapping[str, Storage], gradients: dict[str, Storage],
        repeated: RepeatedTapedCall | None,
    ) -> BoundCall:  # fmt: skip
        bound = BoundCall(name, self.ledger, arrays, gradients, repeated)
        if repeated is not None:
            self.bound[id(repeated)] = bound
        return bound


def keep_facts(
    call: KernelCall, bound: BoundCall, known: CallFacts, constant: Mapping[str, Fills]
) -> None:  # fmt: skip
    """Let later calls use the facts about a call, unless these depend on more than the call, its
    gradient and the set of constant arrays.

    Excluded are calls that lose derivatives or read conditional constants, kernels of vkchi's own,
    whose errors show the line of the call, and arrays that are gradients. Lost derivatives must
    raise errors rather than warn.
    """
    is_known = bound.made is not None and bound.made is known.made and call.missing == "error"
    has_losses = known.losses or any(constant.values())
    if not is_known or has_losses or call.kernel.is_ours:
        return
    if call.repeated is not None and not any(a.is_gradient for a in call.arrays.values()):
        names = [name for name in call.arrays if name in constant]
        key = (call.repeated.key_of(call.args), *names)
        insert_bounded(call.repeated.known, key, known, MOST_CASES)
