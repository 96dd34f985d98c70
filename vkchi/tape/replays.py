"""Replay logs: kernels that log their random numbers and the results of atomics, for gradients."""

from __future__ import annotations

from vkchi.analysis.values.host_numbers import host_number
from vkchi.analysis.values.loop_bounds import sums_under
from vkchi.autodiff.buffers import save_buffer_size
from vkchi.autodiff.gradient_checks import nondeterminism_error
from vkchi.autodiff.replay_log import record_draws
from vkchi.calls.call import KernelCall
from vkchi.calls.variant import Variant
from vkchi.fields.storage import Storage
from vkchi.ir.op_table.interval_rules import type_range
from vkchi.launch.executable import count_reader
from vkchi.tape.plan import BufferShape, GradientPlan, new_buffer
from vkchi.target.shader import compile_count
from vkchi.types import Scalar


class ReplayLog(Variant):
    """A kernel instrumented to log the values it draws; built once per gradient."""

    def __init__(self, call: KernelCall, made: GradientPlan) -> None:
        plan = call.plan
        super().__init__(call, record_draws(plan.func, made.draws))
        places = self.executable.places
        self.rooms = [BufferShape(save_buffer_size(d.save, plan.func), places) for d in made.draws]
        read = count_reader(places)
        self.sums = [
            (draw.op, type_range(v.type), compile_count(number.expr, read))
            for draw in made.draws for loop in draw.save.loops for v in sums_under(loop)
            if isinstance(v.type, Scalar) and (number := host_number(v)) is not None
        ]  # fmt: skip

    def bind(self, call: KernelCall) -> dict[str, Storage]:
        """Allocate the buffers of a call's draws.

        Raises DeviceError if they do not fit into memory, and GradientError if a loop bound
        overflows its type.
        """
        flat = self.executable.bind(call.args, call.arrays).flat
        for op, (least, most), value in self.sums:
            if not least <= value(flat) <= most:
                raise nondeterminism_error(op)
        made = {}
        for room in self.rooms:
            size, shape = room.size, room.shape(flat)
            made[size.name] = new_buffer(call.plan.runtime, size.type, shape, call.name)
        return made


def replay_log_of(call: KernelCall, made: GradientPlan) -> ReplayLog:
    if made.replay_log is None:
        made.replay_log = ReplayLog(call, made)
    return made.replay_log
