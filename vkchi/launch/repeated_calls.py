"""Call cache: a fast path for calls with the same arrays, fields and objects as before.

Only scalars may differ. Objects are compared by identity and not kept alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.fields.storage import Storage
from vkchi.interop.in_place import HostNdarray
from vkchi.interrupts.locks import release_wholly
from vkchi.launch import NOTHING_SHARED, Plan
from vkchi.launch.prepared import Prepared
from vkchi.ndarray import Ndarray
from vkchi.signature.bound import ImportedArray, notify_torch, written_imports
from vkchi.tuples import NamedTuple
from vkchi.types import integer_range

if TYPE_CHECKING:
    from vkchi.signature import Parameter
    from vkchi.types import Scalar

MOST_F32 = 3.4028235677973362e38
OBJECTS = ("array", "template", "self")  # parameter kinds that are compared by identity


class ScalarArgument(NamedTuple):
    """A scalar argument of one of these Python types, within [low, high].

    `argument` is its index among the arguments, `name` that of its parameter.
    """

    argument: int
    name: str
    types: tuple[type, ...]
    low: float
    high: float


class RepeatedCall:
    """The cached launch for calls with these objects."""

    __slots__ = (
        "arrays", "changed", "held", "holding", "numbers", "objects", "plan", "prepared",
    )  # fmt: skip

    def __init__(
        self, plan: Plan, args: tuple[Any, ...], objects: list[tuple[int, weakref.ref[Any]]],
        numbers: list[ScalarArgument],
    ) -> None:  # fmt: skip
        self.plan, self.objects, self.numbers = plan, objects, numbers
        self.arrays = [
            (k, args[k].buffer.address, args[k].grad is None)
            for k, _ in objects
            if isinstance(args[k], Ndarray) and not isinstance(args[k], HostNdarray)
        ]  # they may get a gradient, or other memory
        self._begin_to_hold()
        self.changed: list[int] | None = None  # indices of foreign arrays that are written
        bound = plan.executable.bind_arguments(args)
        self.prepared = Prepared(plan.executable, bound, [(n.argument, n.name) for n in numbers])

    def _begin_to_hold(self) -> None:
        """Start a new list `held`: owners of foreign memory, alive while `launch` blocks.

        The device keeps the owners of an earlier list until it has finished the recorded commands.
        """
        self.held: list[Any] = []
        self.holding = self.plan.runtime.device.heap.hold(self.held)

    def takes(self, args: tuple[Any, ...]) -> bool:
        """True if a call with these arguments can use this entry.

        - The objects are the same.
        - Arrays have their former memory, and a gradient if they had one.
        - Scalars are of the cached types and in range.
        """
        for k, found in self.objects:
            if found() is not args[k]:
                return False
        for k, address, is_alone in self.arrays:
            array = args[k]
            if (array.grad is None) is not is_alone or array.buffer.address != address:
                return False
        for number in self.numbers:
            k, _, types, low, high = number
            arg = args[k]
            if type(arg) not in types or not low <= arg <= high:
                return False
        return True

    def _share(self, shared: Sequence[ImportedArray]) -> object:
        """Notify the owners of foreign arrays of writes, and keep them alive.

        With deferred execution the returned object keeps them alive, else `held` does.
        """
        plan = self.plan
        if self.changed is None:
            self.changed = written_imports(shared, plan)
        notify_torch(shared, self.changed, plan, is_taped=plan.runtime.is_taped)
        owners = [one.owner for one in shared]
        held = plan.runtime.device.heap.hold(owners) if plan.runtime.deferred else None
        self.held.extend(owners if held is None else ())
        return held

    def launch(
        self, args: tuple[Any, ...], shared: Sequence[ImportedArray] = NOTHING_SHARED
    ) -> Any:
        """Launch like `Plan.launch_in_place`, without repeating its checks of foreign arrays.

        With `shared` arrays it waits for the device, unless execution is deferred.
        """
        plan = self.plan
        lock = plan.runtime.lock
        was_held = lock._is_owned()  # type: ignore[attr-defined]
        try:  # inlined `locks.restoring`, for speed
            with lock:
                for life in plan.lives:
                    life.check_alive()
                prepared = self.prepared
                if prepared.met is not None:
                    prepared.count(
                        prepared.met, lambda: plan.executable.bind_arguments(args).arrays
                    )
                prepared.fill(args)
                if shared:
                    _held = self._share(shared)  # kept until the commands are recorded
                prepared.record()
                if shared and not plan.runtime.deferred:
                    plan.runtime.device.wait()
                    self.held.clear()
                return plan.result() if plan.returns else None
        except BaseException:
            if not was_held:
                release_wholly(lock)
            if self.held:
                self._begin_to_hold()
            raise


def cache_call(
    plan: Plan, parameters: Sequence[Parameter], args: tuple[Any, ...]
) -> RepeatedCall | None:
    """Return a cache entry for calls with the same objects.

    None if launches have effects besides recording, may need race detection, or take an argument
    that cannot be cached.
    """
    is_plain = type(plan) is Plan and plan.is_plain and plan.watch is None
    if not is_plain or plan.executable.given:
        return None
    objects: list[tuple[int, weakref.ref[Any]]] = []
    numbers: list[ScalarArgument] = []
    for k, (parameter, arg) in enumerate(zip(parameters, args, strict=True)):
        if parameter.kind in OBJECTS:
            if not is_identified(parameter.kind, arg):
                return None
            try:
                objects.append((k, weakref.ref(arg)))
            except TypeError:
                return None
        elif parameter.kind == "scalar" and parameter.type.kind != "b":
            numbers.append(ScalarArgument(k, parameter.name, *limits_of(parameter.type)))
        else:
            return None
    return RepeatedCall(plan, args, objects, numbers)


def is_identified(kind: str, arg: Any) -> bool:
    """True if the identity of an argument, an array, field or object, determines all that a launch
    needs."""
    if isinstance(arg, HostNdarray):
        return kind == "array"
    if kind == "array":
        return isinstance(arg, Ndarray) and not arg.is_copy
    return kind == "self" or (isinstance(arg, Storage) and not isinstance(arg, Ndarray))


def limits_of(t: Scalar) -> tuple[tuple[type, ...], float, float]:
    """Return the Python types and the range of scalars that are bound without conversion."""
    if t.kind == "f":
        return (float, int), -MOST_F32, MOST_F32
    return (int,), *integer_range(t)
