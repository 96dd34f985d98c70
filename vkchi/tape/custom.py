"""Python functions with custom gradients: the decorators `grad_replaced`, `grad_for`, `no_grad`.

A tape records a call of such a function as one step (`CustomGradientCall`).

A custom gradient must not read memory that was overwritten since its call. A tape cannot predict
its reads, so it takes no snapshots for it. Instead it logs the writes after the call
(`MutationLog`). When the gradient runs, a read of overwritten memory raises GradientError. Memory
that the gradient has stored to first is exempt, because it recomputes those values.

Other code writes to host memory without notice. At its end, a call with a custom gradient therefore
saves the contents of the host memory of its kernels.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any

from vkchi.analysis.memory.boxes import (
    Box,
    add_box,
    box_intersection,
    boxes_may_intersect,
    full_box,
    is_covered,
    is_inside,
    with_known_axes,
)
from vkchi.calls.call import LaunchRequest
from vkchi.calls.facts import facts
from vkchi.errors import ArgumentError, GradientError, KernelRuntimeError
from vkchi.fields.elements import ArrayAccess
from vkchi.fields.storage import Storage
from vkchi.hooks import python_scope
from vkchi.interop import host_views
from vkchi.lang.matrix import Matrix, Vector
from vkchi.lang.struct import Struct
from vkchi.runtime import current_runtime
from vkchi.span import Span, user_span
from vkchi.tape import queries
from vkchi.tape.call_facts import covering, first_access
from vkchi.tape.ledger import Account, HostAccount, Ledger, LoggedWrite, MemoryAccount, box_at
from vkchi.tape.log import TapeStep
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.calls.call import KernelCall, Memory, Values

    Left = tuple[Values, Values]  # a numpy array and its saved contents


class Recorded:
    """A Python function that tapes record as one call, or (`is_skipped`) do not differentiate.

    `grad` is its gradient, which takes the same arguments; None before it is defined. A function
    that is skipped has one that does nothing.
    """

    __vkchi_kind__ = "recorded"

    def __init__(self, function: Callable[..., Any], *, is_skipped: bool) -> None:
        update_wrapper(self, function)
        self.is_skipped = is_skipped
        self.grad: Callable[..., Any] | None = do_nothing if is_skipped else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tape = current_runtime().tape
        if tape is None or tape.is_paused:
            return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]
        return tape.call_custom(self, args, kwargs)

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else BoundRecorded(self, obj)


class BoundRecorded(partial[Any]):
    @property
    def grad(self) -> Any:
        gradient = self.func.grad  # type: ignore[attr-defined]
        return None if gradient is None else partial(gradient, *self.args)


def do_nothing(*args: Any, **kwargs: Any) -> None:
    pass


@python_scope
def grad_replaced(function: Callable[..., Any]) -> Recorded:
    """Decorator: mark a Python function whose gradient is defined with `grad_for`.

    A tape records the call as a whole, not the kernels in it.

    Args:
        function: a Python function that calls kernels.

    Returns:
        The marked function, called like `function`.
    """
    return Recorded(function, is_skipped=False)


@python_scope
def no_grad(function: Callable[..., Any]) -> Recorded:
    """Decorator: mark a Python function that tapes do not differentiate.

    Args:
        function: a Python function that calls kernels.

    Returns:
        The marked function, called like `function`.
    """
    return Recorded(function, is_skipped=True)


@python_scope
def grad_for(primal: Recorded) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: define the gradient of `primal`, a function decorated with `grad_replaced`.

    Args:
        primal: the function. The gradient takes the same arguments.

    Returns:
        A decorator that returns the gradient function unchanged.

    Raises:
        KernelRuntimeError: for other functions, including those of `no_grad`, and if `primal` has a
            gradient already.
    """

    name = getattr(primal, "__name__", repr(primal))
    if getattr(primal, "__vkchi_kind__", None) != "recorded":
        raise KernelRuntimeError(
            f"ti.ad.grad_for({name}): {name} is no Python function decorated with "
            "ti.ad.grad_replaced"
        )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if primal.grad is not None:
            why = "is ti.ad.no_grad" if primal.is_skipped else "has a gradient already"
            raise KernelRuntimeError(f"ti.ad.grad_for({name}): {name}() {why}")
        primal.grad = function
        return function

    return decorate


# --- recorded calls ------------------------------------------------------------------------------


def as_it_is(arg: Any) -> Any:
    from vkchi.lang.argpack import ArgPack  # rarely needed

    if isinstance(arg, ArgPack):
        return copy.copy(arg)
    return copy.deepcopy(arg) if type(arg) in (Vector, Matrix, Struct) else arg


class CustomGradientCall(TapeStep):
    """A recorded call of a Python function with a custom gradient.

    - `end`: time at which the call ended (`MutationLog`).
    - `views`, `left`: host arrays of its kernels, and their contents at that time.
    - `steps`: with a memory budget, its kernel calls and writes by Python.
    """

    needs_end = True

    def __init__(
        self, mutation_log: MutationLog, function: Any, args: tuple[Any, ...], kwargs: Any
    ) -> None:
        self.mutation_log, self.function = mutation_log, function
        self.args = tuple(map(as_it_is, args))
        self.kwargs = {name: as_it_is(arg) for name, arg in kwargs.items()}
        self.end = 0
        self.steps: list[TapeStep] = []
        self.views: list[Values] = []
        self.left: list[tuple[Values, Values]] = []

    def end_call(self) -> None:
        self.end = self.mutation_log.end_call()
        self.left = [(view, view.copy()) for view in self.views]

    def call(self) -> None:
        self.function(*self.args, **self.kwargs)

    def repeat(self) -> None:
        """Repeat its kernel calls and writes by Python, without calling the function."""
        for step in self.steps:
            step.repeat()

    def run(self) -> None:
        """Call the function's gradient with the arguments of the call.

        Raises KernelRuntimeError if none is defined, ArgumentError if it takes other arguments, and
        GradientError if it reads memory that was overwritten since the call.
        """
        gradient = self.function.grad
        if gradient is None:
            name = self.function.__name__
            raise KernelRuntimeError(
                f"{name}() is ti.ad.grad_replaced and has no gradient: define one with "
                f"@ti.ad.grad_for({name})"
            )
        self.check_gradient(gradient)
        with self.mutation_log.reading(self.end, self.function.__name__, self.left):
            gradient(*self.args, **self.kwargs)

    def check_gradient(self, gradient: Any) -> None:
        import inspect  # slow import

        try:
            inspect.signature(gradient).bind(*self.args, **self.kwargs)
        except TypeError as e:
            raise ArgumentError(
                f"{gradient.__name__}(), the gradient of {self.function.__name__}(), must take the "
                f"same arguments: {e}"
            ) from None


# --- reads of overwritten memory -----------------------------------------------------------------


class ChangedView(NamedTuple):
    """A numpy array that other code has changed since a call.

    `then` are its contents when the gradient began; `where` is True for changed elements.
    """

    view: Values
    then: Values
    where: Values

    def stands_in(self, memory: Values) -> bool:
        starts = host_views.element_addresses(self.view)[
            self.where & ~host_views.changed_mask(self.then, self.view)
        ]
        start, end = host_views.address_range(memory)
        return bool(((starts < end) & (starts + self.view.itemsize > start)).any())


class MutationLog:
    """Log of writes, with their times.

    `since` is the time after the call whose gradient is running, else None.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.time = ledger, 0
        self.since: int | None = None
        self.reader = ""
        self.restored: dict[MemoryAccount, list[Box]] = {}  # written by the running gradient
        self.left: Sequence[Left] = []  # host memory after the call
        self.stale: list[ChangedView] = []  # changed before the gradient began

    def end_call(self) -> int:
        self.time += 1
        return self.time

    def note(self, memory: Memory, box: Box, who: str, *, is_certain: bool = True) -> None:
        """Record a write to a part of an array, or to a numpy array.

        `is_certain`: all of the part is written. While a custom gradient runs, such parts count as
        restored. Otherwise writes to gradients are ignored, and so are all writes before the first
        call with a custom gradient ends.
        """
        if not self.time:
            return
        account = self.ledger.open(memory)
        if self.since is not None:
            if is_certain:
                self.restore(account, box)
        elif not (isinstance(account, Account) and account.array.is_gradient):
            account.writes[box] = LoggedWrite(self.time, who)

    def note_views(self, launch: KernelCall | LaunchRequest) -> None:
        for name in launch.kernel.written & launch.hosts.keys():
            is_certain = self.is_certain(launch, name, ())
            self.note(launch.hosts[name], (), f"{launch.name}()", is_certain=is_certain)

    def is_certain(self, launch: KernelCall | LaunchRequest, name: str, box: Box) -> bool:
        """True if no gradient runs, or a launch is proved to write all of a box."""
        if self.since is None:
            return True
        call = launch.call if isinstance(launch, LaunchRequest) else launch
        return covering(call, name, box) is not None

    @contextmanager
    def reading(self, since: int, reader: str, left: Sequence[Left]) -> Iterator[None]:
        """Context of a running gradient.

        Its call ended at time `since` and left the contents `left`.
        """
        self.since, self.reader, self.restored = since, reader, {}
        self.left = left
        changed = [(view, host_views.changed_mask(known, view)) for view, known in left]
        self.stale = [
            ChangedView(view, view.copy(), where) for view, where in changed if where.any()
        ]
        try:
            yield
        finally:
            self.since = None

    def check(
        self, name: str, memory: Memory, box: Box,
        span_of: Callable[[], Span | None] = lambda: None,
    ) -> None:  # fmt: skip
        """Raise GradientError if a part that is being read may have been overwritten since the
        call.

        No error outside custom gradients, and for parts that the gradient has stored itself. The
        error points at `span_of()`, or if that is None at the current line of Python.
        """
        found = self.ledger.near(memory)
        if self.since is None or any(self.is_restored(one, memory) for one in found):
            return
        writes = [written for one in found for part, written in one.writes.items()
                  if written.time >= self.since and self.is_left(one, part, box)]  # fmt: skip
        is_gone = bool(writes) if isinstance(memory, Storage) else self.is_stale(memory, writes)
        if is_gone:
            who = writes[0].who if writes else "Python"
            raise queries.overwritten_read_error(self.reader, name, who, span_of() or user_span())

    def restore(self, account: MemoryAccount, box: Box) -> None:
        boxes = self.restored.setdefault(account, [])
        if isinstance(account, Account):
            add_box(boxes, with_known_axes(box, full_of(account.array)))

    def is_restored(self, one: MemoryAccount, memory: Memory) -> bool:
        if one not in self.restored or not isinstance(one, HostAccount):
            return False
        return not isinstance(memory, Storage) and host_views.covers_memory(one.memory, memory)

    def is_left(self, one: MemoryAccount, part: Box, box: Box) -> bool:
        """True if the box may contain overwritten elements that the gradient has not restored."""
        if not boxes_may_intersect(part, box) or not isinstance(one, Account):
            return boxes_may_intersect(part, box)
        full = full_of(one.array)
        read = box_intersection(with_known_axes(part, full), with_known_axes(box, full))
        return read is not None and not is_covered(read, self.restored.get(one, ()), full)

    def is_stale(self, view: Values, writes: Sequence[LoggedWrite]) -> bool:
        """True if host memory may have changed since the call.

        Contents decide for memory that the call left known. For other memory the logged writes
        decide.
        """
        near = [one for one in self.stale if host_views.may_overlap(one.view, view)]
        if any(one.stands_in(view) for one in near):
            return True
        return bool(writes) and not any(
            host_views.is_same_view(view, known) for known, _ in self.left
        )

    def check_launch(self, given: LaunchRequest, arrays: Mapping[str, Storage]) -> dict[str, Box]:
        """Check the reads of an unrecorded launch, and record its writes to host memory.

        Returns the parts of arrays that it writes. Raises GradientError as `check_all`.
        """
        kernel, case = given.kernel, given.case_of(arrays)
        read = facts.touched(kernel, "loads", case) if self.since is not None else {}
        memory: dict[str, Memory] = {**arrays, **given.hosts}
        self.check_all(
            partial(first_access, kernel, "loads"),
            read,
            memory,
            partial(is_redefined, given),
        )
        self.note_views(given)
        return facts.touched(kernel, "writes", case)

    def check_all(
        self,
        span_of: Callable[[str], Span | None],
        boxes: Mapping[str, Box],
        arrays: Mapping[str, Memory],
        is_redefined: Callable[[str], bool],
    ) -> None:
        """Raise GradientError if one of these boxes may have been overwritten since the call.

        Arrays that the reader itself stores first (`is_redefined`) are exempt.
        """
        if self.since is None:
            return
        for name, box in boxes.items():
            if name in arrays:
                try:
                    self.check(f"`{name}`", arrays[name], box, partial(span_of, name))
                except GradientError:
                    if not is_redefined(name):
                        raise

    def note_access(self, array: Storage, access: ArrayAccess) -> None:
        box = box_at(array, access.at)
        if access.kind == "read":
            self.check(repr(array), array, box)
        else:
            self.note(array, box, "Python")


def full_of(array: Storage) -> Box:
    return full_box(array.shape, array.origin)


def is_redefined(given: LaunchRequest, key: str) -> bool:
    """True if a launch is known to read only elements of an array that it has stored itself.

    It may run the kernel on copies.
    """
    from vkchi.calls.variant import find_stale

    call, kernel = given.call, given.kernel
    both = (facts.touched(kernel, kinds, call.case) for kinds in ("loads", "writes"))
    read, written = (boxes.get(key) for boxes in both)
    if kernel.draws or read is None or written is None or not is_inside(read, written):
        return False
    return find_stale(call, None, {key: written}, frozenset()) is None
