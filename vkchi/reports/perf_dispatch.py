"""`ti.perf_dispatch`: several implementations of one function, of which the fastest is called.

    @ti.perf_dispatch(get_geometry_hash=lambda x: x.shape[0])
    def scale(x: ti.Tensor): ...

    @scale.register
    @ti.kernel
    def by_loop(x: ti.Tensor): ...

Source: Quadrants' user guide, "Performance dispatch".
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable
from time import perf_counter
from typing import Any, overload

from vkchi.errors import ArgumentError, KernelSyntaxError
from vkchi.interrupts.weak import insert_bounded
from vkchi.runtime import sync
from vkchi.tuples import NamedTuple

Test = Callable[..., bool]
USUAL_REPEAT = 300  # calls between two measurements
MOST_GEOMETRIES = 1024


class Implementation(NamedTuple):
    """A registered function, and the test of the arguments that it supports."""

    call: Callable[..., Any]
    is_compatible: Test


class Measurement:
    """The calls of one geometry: `warmup` and then `active` timed ones of each implementation, in
    turn; afterwards those of the fastest."""

    def __init__(self, candidates: list[Implementation], warmup: int) -> None:
        self.candidates, self.warmup = candidates, warmup
        self.seconds = [0.0] * len(candidates)
        self.calls = 0  # since the measurement began
        self.fastest: Implementation | None = None
        self.found_at = 0.0
        self.calls_after = 0  # of the fastest


class PerfDispatch:
    """A function with several implementations; a call runs one of them, and returns its result."""

    def __init__(
        self, fn: Callable[..., Any], geometry: Callable[..., Hashable], warmups: tuple[int, int],
        active: int, repeat_count: int, repeat_seconds: float,
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, fn)
        self.name = fn.__name__
        self.parameters = list(inspect.signature(fn).parameters)
        self.geometry, self.warmups, self.active = geometry, warmups, active
        self.repeat_count, self.repeat_seconds = repeat_count, repeat_seconds
        self.implementations: list[Implementation] = []
        self._measured: dict[Hashable, Measurement] = {}

    def __get__(self, obj: object, owner: object = None) -> Callable[..., Any]:
        return self if obj is None else functools.partial(self, obj)

    def __repr__(self) -> str:
        return f"<ti.perf_dispatch {self.name} of {len(self.implementations)} implementations>"

    @overload
    def register(self, fn: Callable[..., Any], /) -> Callable[..., Any]: ...
    @overload
    def register(
        self, *, is_compatible: Test | None = None
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
    def register(
        self, fn: Callable[..., Any] | None = None, *, is_compatible: Test | None = None
    ) -> Any:
        """Decorator: add a kernel or a Python function as an implementation.

        is_compatible: a function of the same arguments; False for those that the implementation
        does not support. Raises KernelSyntaxError for other parameters than those of the
        dispatched function.
        """

        def add(fn: Callable[..., Any]) -> Callable[..., Any]:
            found = list(inspect.signature(getattr(fn, "__vkchi_func__", fn)).parameters)
            if found != self.parameters:
                raise KernelSyntaxError(
                    f"{getattr(fn, '__name__', fn)}() has the parameters ({', '.join(found)}), and "
                    f"{self.name}() has ({', '.join(self.parameters)})",
                    help="give every implementation the same names of parameters",
                )
            usual: Test = lambda *args, **named: True  # noqa: E731
            self.implementations.append(Implementation(fn, is_compatible or usual))
            self._measured.clear()
            # A decorator above this one, such as @ti.kernel, has no effect on what was added.
            return functools.partial(fn) if inspect.isfunction(fn) else fn

        return add if fn is None else add(fn)

    def __call__(self, *args: Any, **named: Any) -> Any:
        chosen = [one for one in self.implementations if one.is_compatible(*args, **named)]
        if not chosen:
            raise ArgumentError(f"{self.name}(): no implementation supports these arguments")
        if len(chosen) == 1:
            return chosen[0].call(*args, **named)
        key = self.geometry(*args, **named), tuple(map(self.implementations.index, chosen))
        measured = self._measured.get(key)
        if measured is None or self._is_over(measured):
            measured = Measurement(chosen, self.warmups[measured is not None])
            insert_bounded(self._measured, key, measured, MOST_GEOMETRIES)
        if measured.fastest is not None:
            measured.calls_after += 1
            return measured.fastest.call(*args, **named)
        return self._measure(measured, args, named)

    def _is_over(self, measured: Measurement) -> bool:
        if measured.fastest is None:
            return False
        is_long = 0 < self.repeat_seconds < perf_counter() - measured.found_at
        return is_long or 0 < self.repeat_count <= measured.calls_after

    def _measure(self, measured: Measurement, args: Any, named: Any) -> Any:
        """Call the next implementation of a measurement; choose the fastest after the last."""
        n = len(measured.candidates)
        k, turn = measured.calls % n, measured.calls // n
        if turn < measured.warmup:
            result = measured.candidates[k].call(*args, **named)
            measured.calls += 1
            return result
        sync()
        began = perf_counter()
        result = measured.candidates[k].call(*args, **named)
        sync()
        measured.seconds[k] += perf_counter() - began
        measured.calls += 1  # not after an exception
        if measured.calls == n * (measured.warmup + self.active):
            least = min(range(n), key=measured.seconds.__getitem__)
            measured.fastest, measured.found_at = measured.candidates[least], perf_counter()
        return result


def perf_dispatch(
    *,
    get_geometry_hash: Callable[..., Hashable],
    first_warmup: int = 1,
    warmup: int = 0,
    active: int = 1,
    repeat_after_count: int | None = None,
    repeat_after_seconds: float | None = None,
) -> Callable[[Callable[..., Any]], PerfDispatch]:
    """Decorator: make a function of which several implementations are measured.

    Register them by `@name.register`, above `@ti.kernel`. The body of the function is not used.

    Args:
        get_geometry_hash: a function of the same arguments. Calls are measured separately for each
            of its results.
        first_warmup: calls of each implementation before it is timed, in the first measurement.
        warmup: the same, in later measurements.
        active: timed calls of each implementation.
        repeat_after_count: calls of the fastest before a new measurement; 0: no limit. Without
            this and the next argument, 300.
        repeat_after_seconds: seconds before a new measurement; 0: no limit.

    Returns:
        The decorator, which returns the dispatched function.

    Raises:
        ArgumentError: unless the warmups are counts and `active` a positive one.
    """
    warmups = first_warmup, warmup
    if min(warmups) < 0 or active < 1:
        raise ArgumentError(
            f"first_warmup={first_warmup!r} and warmup={warmup!r} are at least 0, and "
            f"active={active!r} at least 1"
        )
    is_open = repeat_after_count is None and repeat_after_seconds is None
    count = USUAL_REPEAT if is_open else repeat_after_count or 0
    seconds = repeat_after_seconds or 0.0

    def make(fn: Callable[..., Any]) -> PerfDispatch:
        return PerfDispatch(fn, get_geometry_hash, warmups, active, count, seconds)

    return make
