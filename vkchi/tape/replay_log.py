"""Calls whose gradient needs what they drew: run so that it is kept.

Owns: `ReplayLog`, made once per gradient. Must not know: tapes, how gradients are built.
"""

from __future__ import annotations

from typing import Any

from vkchi.analysis.host_numbers import host_number
from vkchi.analysis.loop_bounds import sums_under
from vkchi.autodiff.refusals import gone
from vkchi.autodiff.replay import record_draws
from vkchi.fields.storage import Storage
from vkchi.ir.intervals import type_range
from vkchi.launch.executable import Arrays, count_reader
from vkchi.tape.calls import Call
from vkchi.tape.plan import GradientPlan, Room, new_buffer
from vkchi.tape.variants import Variant
from vkchi.target.shader import compile_count
from vkchi.types import Array, Scalar


class ReplayLog:
    """A kernel that records what its gradient needs (`replayed`)."""

    def __init__(self, call: Call, made: GradientPlan) -> None:
        plan = call.plan
        fn = self.func = record_draws(plan.func, made.draws)
        self.variant = Variant(call, fn)
        places = self.variant.executable.places
        self.rooms = [Room(d.save, plan.func, places) for d in made.draws]
        read = count_reader(places)
        self.sums = [
            (draw.op, type_range(v.type), compile_count(number.expr, read))
            for draw in made.draws for loop in draw.save.loops for v in sums_under(loop)
            if isinstance(v.type, Scalar) and (number := host_number(v)) is not None
        ]  # fmt: skip

    def make_room(self, call: Call) -> dict[str, Storage]:
        """Memory for what a call draws. Raises DeviceError if that is too much, GradientError if
        it is not known how much."""
        flat = self.variant.executable.bind(call.args, call.arrays).flat
        for op, (least, most), value in self.sums:
            if not least <= value(flat) <= most:
                raise gone(op)
        made = {}
        for room in self.rooms:
            t = room.save.param.type
            assert isinstance(t, Array) and room.positions and room.invocations
            shape = (max(1, room.positions(flat)), max(1, room.invocations(flat)))
            made[room.save.param.name] = new_buffer(call.plan.runtime, t, shape, call.name)
        return made

    def run(self, call: Call, drawn: Arrays, again: int | None = None) -> Any:
        """Do the call; what the kernel returns. What it draws is in `replayed` then. `again` as in
        `Plan.launch`."""
        return self.variant.run(call, {**call.arrays, **drawn}, again)


def replay_log_of(call: Call, made: GradientPlan) -> ReplayLog | None:
    """The call's drawing; None if its gradient needs nothing."""
    if made.draws and made.replay_log is None:
        made.replay_log = ReplayLog(call, made)
    assert made.replay_log is None or isinstance(made.replay_log, ReplayLog)
    return made.replay_log
