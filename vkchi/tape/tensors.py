"""Host arrays in a tape: copies of them, and tensors that others than kernels changed.

Owns: `Copies`, of what calls only read; `Tensors`, those that hold derivatives. What a kernel left
in a tensor is remembered, with torch's count of its changes; where a later kernel finds something
else, nobody knows whether it still depends on what stood there. The same numbers written again
through numpy or `tensor.data` are not noticed.

Must not know: tapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from vkchi.analysis.alias import kinds_of_writes
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.launch import Plan
from vkchi.span import Span
from vkchi.tape.calls import Call, keep_arguments, leaves_of
from vkchi.tape.clobbers import Held, Loss, refuse
from vkchi.tape.escapes import covering, flow_from

WHO = "torch or numpy"


class Copies:
    """The device's copies of host arrays that calls only read: one for calls that find the same
    contents."""

    def __init__(self) -> None:
        self.found: dict[tuple[Any, ...], Storage] = {}

    def share(self, call: Call) -> Call:
        """The call with copies that were made before, where they are the same."""
        found = {}
        for name, view in call.hosts.items():
            if name not in call.plan.written:
                made = call.arrays[name]
                key = (view.ctypes.data, view.strides, made.elem, made.shape)
                old = self.found.setdefault(key, made)
                if old is not made and not is_equal(old, made):
                    old = self.found[key] = made
                found[name] = old
        args = keep_arguments(call.plan, call.args, found)
        return call._replace(arrays={**call.arrays, **found}, args=args)


def is_equal(a: Storage, b: Storage) -> bool:
    """Whether two arrays of one type are known to hold the same bits."""
    if a.host is None or b.host is None:
        return False
    bits = f"u{a.host.itemsize}"
    return np.array_equal(a.host.view(bits), b.host.view(bits))


class Left:
    """What a kernel left in a tensor that holds a derivative; `held` says who put it there."""

    def __init__(self, tensor: Any, held: Held) -> None:
        self.tensor, self.held, self.who = tensor, held, WHO
        self.view = host.array_of_torch(tensor)
        self.is_changed = False
        self.take()

    def take(self) -> None:
        """Remember what is there now."""
        self.version, self.contents = self.tensor._version, self.view.copy()

    def compare(self) -> None:
        """Note if something else is there."""
        is_same = self.tensor._version == self.version
        if not (is_same and np.array_equal(self.view, self.contents, equal_nan=True)):
            self.is_changed = True


class Tensors:
    """All of a tape."""

    def __init__(self) -> None:
        self.left: list[Left] = []

    def check_call(self, call: Call, names: frozenset[str]) -> None:
        """Raises GradientError if a derivative would flow through what others changed; `names` are
        the call's arrays with gradients. What the call overwrites is known again."""
        for left in self.left if call.hosts else ():
            near = [n for n, view in call.hosts.items() if host.may_overlap(view, left.view)]
            if near:
                left.compare()
            for name in near if left.is_changed else ():
                flow = flow_from(call, name) if name in names else {}
                for target in flow:
                    if target in names:
                        raise refuse(Loss(left.held, left.who, None), flow[target])
                if call.tensors.get(name) is left.tensor and covering(call, name) is not None:
                    left.is_changed = False

    def origins(self, view: Any) -> list[tuple[str, Span | None]]:
        """Who put values with a derivative into the memory of a numpy array, and where."""
        held = [left.held for left in self.left if host.may_overlap(left.view, view)]
        return [(f"{h.who} puts a value with a derivative there", h.span) for h in held]

    def note_call(self, call: Call, stores: Mapping[str, Any]) -> None:
        """Remember what a call left where it wrote; `stores` are the ops that put values with a
        derivative into arrays with gradients."""
        for name, tensor in call.tensors.items():
            found = next((left for left in self.left if left.tensor is tensor), None)
            if found is not None and name in call.plan.written:
                found.take()
            elif found is None and name in stores:
                who, span = f"{call.name}()", stores[name].span
                self.left.append(Left(tensor, Held(call.arrays[name], name, who, span, ())))

    def hold(self, tensor: Any, held: Held) -> None:
        """Remember what a function with a gradient of its own left in a tensor."""
        if not any(left.tensor is tensor for left in self.left):
            self.left.append(Left(tensor, held))

    def written_by(self, plan: Plan, args: tuple[Any, ...]) -> list[tuple[Left, str]]:
        """What is known of the tensors that a launch writes, with the names of its parameters."""
        names = {id(arg): p.name for p, arg in leaves_of(plan, args) if p.name in plan.written}
        return [(left, names[id(left.tensor)]) for left in self.left if id(left.tensor) in names]

    @contextmanager
    def skipping(self, plan: Plan, args: tuple[Any, ...], who: str) -> Iterator[None]:
        """While a kernel runs that is not differentiated. What it adds is constant."""
        found = self.written_by(plan, args)
        for left, _ in found:
            left.compare()
        yield
        kinds = {root.name: kinds for root, kinds in kinds_of_writes(plan.func.body.ops).items()}
        for left, name in found:
            if kinds.get(name, set()) != {"atomic_add"}:
                left.is_changed, left.who = True, who
            left.take()

    @contextmanager
    def ignoring(self) -> Iterator[None]:
        """While a function runs that has a gradient of its own: what it changes, that knows of."""
        for left in self.left:
            left.compare()
        yield
        for left in self.left:
            left.take()

    def check_loss(self, loss: Any) -> None:
        """Raises GradientError if others changed the loss."""
        for left in self.left:
            if left.tensor is loss:
                left.compare()
                if left.is_changed:
                    raise refuse(Loss(left.held, left.who, None), None)
