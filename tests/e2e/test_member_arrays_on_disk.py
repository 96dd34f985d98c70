"""Kernels with ndarrays of objects in the disk cache: processes whose objects differ share it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.device

PROGRAM = """
import dataclasses, sys
from collections import namedtuple
import vkchi as ti

ti.init(arch=ti.vulkan, log_level="error")
given = dict(one.split("=") for one in sys.argv[1:])
n, how = int(given.get("n", 3)), given.get("how", "")
Pair = namedtuple("Pair", "x y")


@dataclasses.dataclass
class Links:
    mass: object
    force: object


def made(n, dtype=ti.f32):
    return ti.ndarray(dtype, n, needs_grad=how == "grad")


@ti.data_oriented
class S:
    def __init__(self, c):
        self.x = made(n, getattr(ti, given.get("dtype", "f32")))
        self.y = made(int(given.get("m", n)))
        self.x.fill(3)
        if how == "same":
            self.y = self.x
        self.links, self.pair, self.c = Links(self.x, self.y), Pair(self.x, self.y), c
        self.field, self.names = ti.field(ti.f32, 4), {self.x: 1, self.y: 2}
        if how == "extra":
            self.x.extra = n

    @property
    def size(self):
        return self.x.shape[0]

    @ti.kernel
    def scale(self):
        for i in self.x:
            self.y[i] += self.x[i] * self.c

    @ti.kernel
    def of_dataclass(self):
        for i in self.links.mass:
            self.links.force[i] += self.links.mass[i]

    @ti.kernel
    def of_tuple(self):
        for i in self.x:
            self.pair.y[i] += self.pair.x[i]

    @ti.kernel
    def to_field(self):
        for i in self.field:
            self.field[i] += self.x[i % 3]

    @ti.kernel
    def by_property(self) -> ti.i32:
        return self.size + 0 * int(self.x[0])

    @ti.kernel
    def by_attribute(self) -> ti.i32:
        return ti.static(self.x.extra if hasattr(self.x, "extra") else -1) + 0 * int(self.x[0])

    @ti.kernel
    def by_gradient(self) -> ti.i32:
        return ti.static(1 if self.x.grad is not None else 0) + 0 * int(self.x[0])

    @ti.kernel
    def by_key(self) -> ti.i32:
        return self.names[self.x] + 0 * int(self.x[0])

    @ti.kernel
    def in_turn(self, z: ti.types.ndarray()):
        ti.loop_config(serialize=True)
        for i in range(2):
            self.x[i] += 1
            z[i] = z[i] * 2
            self.x[i] += 10


s = S(2.0)
for kernel in (s.scale, s.of_dataclass, s.of_tuple, s.to_field):
    kernel()
found = [s.y[1], s.field[3], s.by_property(), s.by_attribute(), s.by_gradient(), s.by_key()]
s.x.fill(3)
s.in_turn({"held": s.x, "view": s.x[:2]}.get(given.get("z"), ti.ndarray(s.x.dtype, n)))
for c in (2.0, 5.0):
    other = S(c)
    other.scale()
    found.append(other.y[1])
print([int(k) for k in (*found, s.x[1])])
"""


NUMBERS = """
import sys
import vkchi as ti

ti.init()

class S:
    def __init__(self):
        self.x, self.n = ti.ndarray(ti.i32, 2), 1

    @ti.kernel
    def add(self):
        for i in self.x:
            self.x[i] += self.n

S = ti.data_oriented(template_primitives=sys.argv[1] == "constants")(S)
s = S()
for k in range(4):
    s.n = k
    s.add()
print([int(s.x[0])])
"""


def run(folder: Path, *given: str, program: str = PROGRAM) -> tuple[list[int], list[str]]:
    """Return the numbers that the program prints, and the kernels that it compiles."""
    file = folder / "program.py"
    file.write_text(program)
    more = {"VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(folder / "cache"), "VKCHI_TIME": "1"}
    more["VKCHI_DUMP_SPV"] = ""  # would compile all kernels
    done = subprocess.run(
        [sys.executable, str(file), *given],
        env={**os.environ, **more}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line.split(":") for line in done.stderr.splitlines() if line.startswith("vkchi: ")]
    others = [line for line in done.stderr.splitlines() if not line.startswith("vkchi: ")]
    assert done.stdout.startswith("[") and not others, done.stderr
    compiled = [line[1].strip() for line in lines if line[2].strip().startswith("lower")]
    return eval(done.stdout), compiled


def test_processes_whose_objects_differ(tmp_path: Path) -> None:
    plain = [12, 3, 3, -1, 0, 1, 6, 15, 14]
    assert run(tmp_path)[0] == plain
    assert run(tmp_path) == (plain, ["by_key"])  # its code depends on which array `x` is
    other_size = [12, 3, 7, -1, 0, 1, 6, 15, 14]
    numbers, compiled = run(tmp_path, "n=7")
    assert numbers == other_size and "scale" not in compiled and "by_property" in compiled
    for given, want in (
        (("n=5", "m=4"), [12, 3, 5, -1, 0, 1, 6, 15, 14]),
        (("dtype=i32",), plain),
        (("how=same",), [36, 36, 3, -1, 0, 2, 9, 18, 14]),
        (("how=same", "n=4"), [36, 36, 4, -1, 0, 2, 9, 18, 14]),
        (("z=held",), [*plain[:-1], 18]),
        (("z=view",), [*plain[:-1], 18]),
        (("z=view", "n=5"), [*other_size[:2], 5, *other_size[3:-1], 18]),
        (("how=extra",), [12, 3, 3, 3, 0, 1, 6, 15, 14]),
        (("how=extra", "n=6"), [12, 3, 6, 6, 0, 1, 6, 15, 14]),
        (("how=grad",), [12, 3, 3, -1, 1, 1, 6, 15, 14]),
        ((), plain),
    ):
        assert run(tmp_path, *given)[0] == want, given
    assert run(tmp_path, "how=grad", "n=8")[0][4] == 1


def test_numbers_are_constants_or_arguments(tmp_path: Path) -> None:
    for how, count in (("constants", 4), ("arguments", 1), ("constants", 0), ("arguments", 0)):
        assert run(tmp_path, how, program=NUMBERS) == ([6], ["add"] * count), how
