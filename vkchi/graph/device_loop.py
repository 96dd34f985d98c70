"""Loops over recorded launches with the condition evaluated on the device, by indirect dispatch.

Each iteration is a small dispatch that reads the condition, followed by the recorded dispatches.
The first writes the workgroup counts of the others: their own, or zero after the loop has ended. A
chunk has up to 64 iterations and about 256 dispatches, but at least one iteration. The host submits
1, 2, 4, ..., at most 64 chunks, and then waits for the condition.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from vkchi.algorithms.array_kernels import on_arrays
from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.lang.compile_time import loop_config, static
from vkchi.launch.replay import RecordedLaunch, Replay
from vkchi.ndarray import ndarray
from vkchi.runtime import Runtime, require_home
from vkchi.signature.wording import describe_argument
from vkchi.types import i32
from vkchi.types.lazy_numpy import np

CHUNK_DISPATCHES, MOST_ROUNDS, MOST_CHUNKS = 256, 64, 64
MOST = (1 << 31) - 1  # iterations counted between two reads by the host
GOES_ON, DONE, LIMIT = 0, 1, 2  # indices in `state`


@on_arrays(wanted=i32)
def look(field: Any, state: Any, groups: Any, given: Any, wanted: Any) -> None:
    """Evaluate the condition, count the iteration, and set each dispatch's workgroup count
    along x."""
    loop_config(serialize=True)
    for _ in range(1):
        goes_on = 0
        if state[0] != 0 and state[1] < state[2]:
            value = field[None] if static(len(field.shape) == 0) else field[0]
            if (value != 0) == (wanted != 0):
                goes_on = 1
        state[0] = goes_on
        state[1] += goes_on
        for k in range(groups.shape[0]):
            given[3 * k] = groups[k] * goes_on


def cell_of_condition(field: Any, runtime: Runtime) -> tuple[int, ...]:
    """Return the index of a condition's element. Raises ArgumentError unless it is one scalar.
    Raises KernelRuntimeError if it was destroyed, or belongs to another device."""
    if not isinstance(field, Storage):
        raise ArgumentError(
            f"a field or ndarray of one number is needed, not {describe_argument(field)}"
        )
    field.check_alive()
    require_home("the condition", field.runtime, runtime)
    if not field.is_scalar or field.shape not in ((), (1,)) or any(field.origin):
        raise ArgumentError(f"a field or ndarray of one number is needed, not {field!r}")
    return field.index(None if field.shape == () else 0)


def is_true(field: Storage, cell: tuple[int, ...]) -> bool:
    """True if the scalar is nonzero; waits for the device."""
    return bool(field.read(cell))


class DeviceLoop:
    """A loop over a replay's launches while a condition is nonzero (`wanted`) or zero."""

    def __init__(self, runtime: Runtime, replay: Replay, field: Any, *, wanted: bool) -> None:
        self._device, self._replay, self._field = runtime.device, replay, field
        commands = replay.dispatches()
        n = max(1, len(commands))
        self._state, self._given = ndarray(i32, 3), ndarray(i32, 3 * n)
        groups = ndarray(i32, n)
        sizes = np.zeros((n, 3), np.int32)
        sizes[:, 2] = 1
        for k, c in enumerate(commands):
            sizes[k] = c.groups
        groups.from_numpy(sizes[:, 0])
        self._given.from_numpy(sizes.ravel())
        args = (field, self._state, groups, self._given, int(wanted))
        self._look = look.kernel_for(args).inspect(partial(RecordedLaunch, "run_while"), *args)
        given = self._given.buffer
        looped = [
            c._replace(indirect=given.locate(12 * k, 12), reads=c.reads | {given.key})
            for k, c in enumerate(commands)
        ]
        rounds = min(MOST_ROUNDS, max(1, CHUNK_DISPATCHES // (n + 1)))
        self._chunk = self._device.sequence([*self._look.commands, *looped] * rounds)

    def run(self, most: int | None) -> int:
        """Run until the condition ends the loop, at most `most` times (None: without limit), and
        wait.

        Returns the number of runs.
        """
        done, chunks = 0, 1
        while most is None or done < most:
            self._replay.check_alive()
            limit = MOST if most is None else min(MOST, most - done)
            self._state.from_numpy(np.array([1, 0, limit], np.int32))
            for _ in range(chunks):
                self._device.execute(self._chunk)
            goes_on, count, _ = self._state.contents().tolist()
            done += count
            if not goes_on:
                break
            chunks = min(2 * chunks, MOST_CHUNKS)
        return done
