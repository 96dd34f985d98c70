"""Kernels of a program, pickled by cloudpickle: `test_pickled_kernels` runs a copy of this file.

`python pickled_program.py FILE` prints results, and pickles the kernels and the function that calls
them. Another process, without this file, must print the same.
"""

from __future__ import annotations

import enum
import math
import sys
from typing import Any

import cloudpickle
import numpy as np

import vkchi as ti
import vkchi.math as tm
from vkchi import i32
from vkchi import sqrt as root
from vkchi.math import vec3

ARRAY = ti.types.ndarray(dtype=ti.f32, ndim=1)
SHIFT = 4
STEPS = [lambda a: a + 1, lambda a: a * 10]


class Mode(enum.Enum):
    SLOW = 1
    FAST = 2


@ti.dataclass
class Ball:
    at: vec3
    r: ti.f32

    @ti.func
    def twin(self):
        return Ball(at=self.at, r=self.r * 2)  # a cycle

    def grown(self):
        return self.r + 1

    @staticmethod
    def half(a):
        return a * 0.5


@ti.real_func
def factorial(n: ti.i32) -> ti.i32:
    result = 1
    if n > 1:
        result = n * factorial(n - 1)
    return result


@ti.pyfunc
def shifted(a):
    return a + SHIFT


@ti.func
def truncated(a):
    whole: i32 = ti.cast(a, i32)  # the bytecode does not name `i32` in the annotation
    return whole


class Base:
    @ti.func
    def increment(self):
        return 1.0


@ti.data_oriented
class Solver(Base):
    def __init__(self) -> None:
        self.weights = ti.ndarray(ti.f32, 4)
        self.weights.from_numpy(np.arange(4, dtype=np.float32))
        self.mode = Mode.FAST
        self.rule = ti.func(lambda a: a + 100)

    @ti.func
    def increment(self):
        return super().increment() + 2.0

    @property
    def offset(self):
        return 9

    @ti.kernel
    def run(self, x: ti.types.ndarray()):
        for i in x:
            x[i] += self.increment() + self.weights[i] + self.offset + self.rule(x[i])
            if ti.static(self.mode == Mode.FAST):
                x[i] += 1000


@ti.kernel
def total(x: ARRAY, n: ti.i32) -> ti.f32:
    s: ti.f32 = 0
    for i in range(n):
        s += x[i]
    return s


@ti.kernel
def everything(x: ARRAY, k: ti.template(), v: ti.math.vec3):
    """Its text names total() and SHIFT."""
    for i in x:
        b = Ball(at=vec3(1, 2, 3), r=x[i]).twin()
        x[i] = b.r + b.grown() + Ball.half(3.0) + shifted(1) + factorial(4) + truncated(2.7)
        x[i] += root(4.0) + tm.sin(0.0) + ti.cos(0.0) + v.y + k
        for f in ti.static(STEPS):
            x[i] = f(x[i])
        if ti.static(__debug__):
            x[i] += math.pi


def closure(n: int, held: Any) -> Any:
    state = {"n": n}

    @ti.kernel
    def inner(x: ti.types.ndarray()):
        for i in x:
            x[i] += state["n"] + held[1] + n

    return inner


@ti.kernel(graph=True)
def halve(x: ti.types.ndarray(), left: ti.types.ndarray()):
    while ti.graph.do_while(left):
        for i in x:
            x[i] *= 0.5
        for _ in range(1):
            left[None] -= 1


@ti.kernel
def cyclic(x: ti.types.ndarray()):
    for i in x:
        x[i] += registered()


@ti.func
def registered():
    return 1.0 + len(ti.static(REGISTRY))


REGISTRY = [cyclic, registered]


@ti.kernel
def squares(x: ti.types.ndarray(), loss: ti.types.ndarray()):
    for i in x:
        loss[None] += x[i] ** 2  # größer


def outcome_of(kernels: dict[str, Any]) -> list[str]:
    def numbers() -> Any:
        return np.arange(4, dtype=np.float32)

    found = {}
    for name, act in {
        "method": kernels["solver"].run,
        "bound": kernels["bound"],
        "everything": lambda x: kernels["everything"](x, 3, vec3(1, 2, 3)),
        "closure": kernels["closure"],
        "cyclic": kernels["cyclic"],
    }.items():
        found[name] = numbers()
        act(found[name])
    found["total"] = kernels["total"](numbers(), 3)
    found["shifted"] = kernels["shifted"](3)
    x, left = ti.ndarray(ti.f32, 4, needs_grad=True), ti.ndarray(ti.i32, ())
    loss = ti.ndarray(ti.f32, (), needs_grad=True)
    x.from_numpy(numbers())
    left.fill(2)
    kernels["halve"](x, left)
    with ti.ad.Tape(loss):
        kernels["squares"](x, loss)
    found["tape"] = (x.to_numpy(), x.grad.to_numpy())
    kernels["squares"].grad(x, loss)
    found["grad"] = x.grad.to_numpy()
    with ti.record() as recorded:
        kernels["cyclic"](x)
    recorded.run()
    found["record"] = x.to_numpy()
    found["names"] = (kernels["everything"].__doc__, kernels["everything"].__qualname__)
    found["options"] = (ti.cfg.random_seed, str(ti.cfg.default_ip))
    return [f"{name}: {value}" for name, value in found.items()]


def main() -> None:
    ti.init(random_seed=5, default_ip=ti.i32)
    kernels = {
        "solver": Solver(), "bound": Solver().run, "everything": everything, "total": total,
        "shifted": shifted, "closure": closure(5, np.arange(3)), "halve": halve, "cyclic": cyclic,
        "squares": squares,
    }  # fmt: skip
    with open(sys.argv[1], "wb") as file:
        file.write(cloudpickle.dumps((outcome_of, kernels)))
    print("\n".join(outcome_of(kernels)))


if __name__ == "__main__":
    main()
