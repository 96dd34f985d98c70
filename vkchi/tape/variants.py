"""Variants of kernels that tapes run in their place.

`ReplayLog` logs random numbers and the results of atomics, for gradients. `run_watched` detects
overwrites of elements that were read before, for `Tape(validation=True)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vkchi.analysis.values.host_numbers import host_number
from vkchi.analysis.values.iterations import sums_under
from vkchi.autodiff.buffers import save_buffer_size
from vkchi.autodiff.gradient_checks import nondeterminism_error
from vkchi.autodiff.instrument import Instrumented, instrument_reads
from vkchi.autodiff.primal import name_under
from vkchi.autodiff.replay_log import most_of, record_draws
from vkchi.calls.call import KernelCall
from vkchi.calls.variant import Variant
from vkchi.errors import DataAccessError
from vkchi.fields.storage import Storage
from vkchi.ir.core import NOTED, Func, Op, Param
from vkchi.ir.op_table.interval_rules import type_range
from vkchi.launch.executable import Arrays, count_reader
from vkchi.span import Span
from vkchi.tape.ledger import Account, Ledger
from vkchi.tape.plan import BufferShape, GradientPlan, new_buffer
from vkchi.target.shader import compile_count
from vkchi.types import Array, Scalar, i32

Read = tuple[str, Span | None]


class ReplayLog(Variant):
    """A kernel instrumented to log the values it draws; built once per gradient.

    `rooms` are the shapes of the buffers. `uncounted` maps the buffers whose number of rows only a
    run can tell to one of their draws.
    """

    def __init__(self, call: KernelCall, made: GradientPlan) -> None:
        kernel = call.kernel
        super().__init__(call, record_draws(kernel.func, made.draws))
        places = self.executable.places
        saves = {d.save.param.name: d.save for d in made.draws}
        self.rooms = {
            name: BufferShape(save_buffer_size(save, kernel.func), places)
            for name, save in saves.items()
        }
        self.uncounted = {d.save.param: d.op for d in made.draws if not d.is_counted}
        read = count_reader(places)
        self.sums = [
            (draw.op, type_range(v.type), compile_count(number.expr, read))
            for draw in made.draws for loop in draw.save.loops for v in sums_under(loop)
            if isinstance(v.type, Scalar) and (number := host_number(v)) is not None
        ]  # fmt: skip

    def bind(self, call: KernelCall) -> dict[str, Storage]:
        """Allocate the buffers of a call's draws.

        Runs the call on copies if only that tells the number of draws. Raises DeviceError if they
        do not fit into memory, and GradientError if a loop bound overflows its type.
        """
        flat = self.executable.bind(call.args, call.arrays).flat
        for op, (least, most), value in self.sums:
            if not least <= value(flat) <= most:
                raise nondeterminism_error(op)
        shapes = {name: room.shape(flat) for name, room in self.rooms.items()}
        if self.uncounted:
            first = self._allocate(call, shapes)
            self.dry_run(call, first)
            for param in self.uncounted:
                shapes[param.name] = rows_needed(param, first), shapes[param.name][1]
        return self._allocate(call, shapes)

    def _allocate(
        self, call: KernelCall, shapes: Mapping[str, tuple[int, int]]
    ) -> dict[str, Storage]:
        runtime = call.kernel.runtime
        made = {
            name: new_buffer(runtime, room.size.type, shapes[name], call.name)
            for name, room in self.rooms.items()
        }
        return made | {most_of(p).name: Storage(runtime, i32, ()) for p in self.uncounted}

    def check(self, drawn: Mapping[str, Storage]) -> None:
        """Raise GradientError if a call drew more numbers than its run on copies."""
        for param, op in self.uncounted.items():
            if rows_needed(param, drawn) > drawn[param.name].shape[0]:
                raise nondeterminism_error(op)


def rows_needed(param: Param, drawn: Mapping[str, Storage]) -> int:
    return max(1, int(drawn[most_of(param).name].read(())))


def replay_log_of(call: KernelCall, made: GradientPlan) -> ReplayLog:
    if made.replay_log is None:
        made.replay_log = ReplayLog(call, made)
    return made.replay_log


def run_watched(call: KernelCall, ledger: Ledger, func: Func, own: Arrays) -> Any:
    """Run the kernel `func`, instrumented to watch arrays with a gradient; return its result.

    `own` are additional arrays of `func`. Raises DataAccessError, after the run, if the kernel
    overwrote an element that was read before.
    """
    kernel = call.kernel
    names = frozenset(n for n, a in call.arrays.items() if a.companion("grad") is not None)
    reads: list[Read] = kernel.runtime.watched_reads  # numbered from 1

    def make() -> tuple[Instrumented, Variant]:
        made = instrument_reads(func, names, len(reads) + 1)
        reads.extend((call.name, op.span) for op in made.reads)
        return made, Variant(call, made.func)

    made, variant = kernel.derived.find("watched", (names, func), make)
    noted = Storage(kernel.runtime, i32, (max(1, len(made.ops)),))
    watching = {p.name: flags_of(ledger.open(call.arrays[name]), p)
                for name, p in made.shadows.items()}  # fmt: skip
    result = variant.run(call, {**call.arrays, **own, **watching, NOTED: noted})
    for op, number in zip(made.ops, noted.to_numpy()):
        if number:
            raise data_access_error(call, op, reads[number - 1])
    return result


def flags_of(account: Account, shadow: Param) -> Storage:
    """Return an array's shadow: for each scalar the number of a load that read it, or 0.

    Allocated at first use.
    """
    if account.flags is None:
        array, t = account.array, shadow.type
        assert isinstance(t, Array)
        account.flags = Storage(array.runtime, t.elem, array.shape, t.layout)
    return account.flags


def data_access_error(call: KernelCall, op: Op, read: Read) -> DataAccessError:
    reader, span = read
    return DataAccessError(
        f"(kernel={call.name}) breaks the global data access rule: an element of "
        f"`{name_under(op)}` that was read before is overwritten", op.span,
        notes=((f"{reader}() read it here", span),),
        help="leave out validation=True: elements may be overwritten then, and gradients are right",
    )  # fmt: skip
