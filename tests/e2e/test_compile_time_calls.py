"""Calls that vary by themselves and run once, at compile time, warn; so do long unrolled loops."""

from __future__ import annotations

import datetime
import functools
import random
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.compile_state import ArrayGuard
from vkchi.errors import ConstantWarning
from vkchi.frontend.lowering import lower_kernel
from vkchi.target.options import Options

GENERATOR = np.random.default_rng(1)


def noise() -> float:
    return random.uniform(0, 1)


def seeded() -> float:
    random.seed(3)
    return random.random()


def table() -> float:
    generator = np.random.default_rng(0)
    return float(generator.random())


class Drawing:
    def __init__(self) -> None:
        self.rng = random.Random(4)
        self.clock = 1.5

    def draw(self) -> float:
        return self.rng.gauss(0, 1)

    def time(self) -> float:
        return self.clock


@pytest.fixture
def strict() -> Iterator[None]:
    ti.init(strict=True, log_level=ti.ERROR)
    yield
    ti.init(random_seed=7)


def told(run: Callable[[], Any]) -> list[tuple[str, str]]:
    """The source line and the text of each warning."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        run()
    assert all(w.category is ConstantWarning for w in found)
    lines = Path(__file__).read_text().splitlines()
    return [(lines[w.lineno - 1].strip(), str(w.message)) for w in found]


def test_random_numbers_and_clocks_warn_with_a_help() -> None:
    x, drawing = ti.field(ti.f32, 4), Drawing()

    @ti.kernel
    def run():
        x[0] = random.random()
        x[0] = random.randint(1, 3)
        x[0] = np.random.rand()
        x[0] = GENERATOR.normal()
        x[0] = noise()
        x[0] = drawing.draw()
        x[0] = uuid.uuid4().int % 7
        x[1] = time.time()
        x[1] = time.perf_counter()
        x[1] = datetime.datetime.now().timestamp()

    found = told(run)
    assert [line for line, _ in found] == [
        "x[0] = random.random()", "x[0] = random.randint(1, 3)", "x[0] = np.random.rand()",
        "x[0] = GENERATOR.normal()", "x[0] = noise()", "x[0] = drawing.draw()",
        "x[0] = uuid.uuid4().int % 7", "x[1] = time.time()", "x[1] = time.perf_counter()",
        "x[1] = datetime.datetime.now().timestamp()",
    ]  # fmt: skip
    for line, text in found:
        assert text.startswith("`" + line.split(" = ")[1].split("(")[0] + "()` runs once")
        assert ("ti.random()" in text) == line.startswith("x[0]")
        assert "argument of the kernel" in text


def test_static_seeded_and_plain_calls_are_quiet() -> None:
    x, drawing = ti.field(ti.f32, 4), Drawing()

    @ti.kernel
    def run():
        x[0] = ti.static(random.random())
        x[1] = seeded() + table()
        x[2] = drawing.time() + np.sqrt(2.0) + datetime.date(2026, 1, 1).year
        x[3] = ti.random()

    assert told(run) == []


def test_strict_makes_an_error(strict: None) -> None:
    x = ti.field(ti.f32, 4)

    @ti.kernel
    def run():
        x[0] = random.random()

    with pytest.raises(ti.TaichiTypeError, match="runs once, at compile time"):
        run()


def cautions(run: Any) -> list[Any]:
    return [n.caution for n in lower_kernel(run.__vkchi_func__, (), Options()).cautions]


def test_a_loop_unrolled_to_more_than_2000_operations_warns_once() -> None:
    x = ti.field(ti.f32, 1024)

    @ti.kernel
    def short():
        for i in range(4):
            for j in ti.static(range(600)):  # a load, a product, an atomic sum
                x[i] += x[j] * 2.0

    @ti.kernel
    def long():
        for i in range(4):
            for j in ti.static(range(700)):
                x[i] += x[j] * 2.0

    @ti.kernel
    def nested():
        for i in range(4):
            for _ in ti.static(range(2)):
                for j in ti.static(range(700)):
                    x[i] += x[j] * 2.0
            for _ in ti.static(range(2)):
                for j in ti.static(range(600)):
                    x[i] += x[j] * 2.0

    assert cautions(short) == []
    (one,) = cautions(long)
    assert (one.kind, one.sentence.partition(":")[0]) == (
        "unroll", "this loop is unrolled 700 times, to 2100 operations",
    )  # fmt: skip
    assert "leave ti.static out" in one.help
    found = cautions(nested)
    rounds = [c.sentence.split()[4] for c in found]
    assert rounds == ["700", "700", "2"] and len({c.span.line for c in found}) == 2


class Holder:
    def __init__(self, f):
        self.f, self.factor = f, 2

    def doubled(self):
        return self.f[1] * self.factor

    def __call__(self):
        return self.f[1] * 2

    @property
    def twice(self):
        return self.f[1] * 2


class Copied:
    def __init__(self, f):
        self.value = f[1] * 2


def of_argument(f):
    return f[1] * 2


def of_list(fields):
    return fields[0][1] * 2


def of_object(holder):
    return holder.f[1] * 2


@pytest.mark.parametrize(
    "call",
    ["of_argument(y)", "of_argument(f=y)", "of_list([y])", "of_object(holder)", "of_closure()",
     "of_partial()", "holder.doubled()", "holder()", "holder.twice",
     "Inherited(y).twice", "inherited.twice", "inherited()", "of_default()", "Copied(y).value"],
)  # fmt: skip
def test_python_functions_that_reach_a_field_read_it_in_the_kernel(call, tmp_path):
    """Not at compile time, where the element has an old value, or none."""
    y = ti.field(ti.f32, 4)
    holder = Holder(y)

    def of_default(f=y):
        return f[1] * 2

    scope = {**globals(), "y": y, "holder": holder, "inherited": Inherited(y),
             "of_default": of_default, "of_closure": lambda: holder.f[1] * 2,
             "of_partial": functools.partial(of_argument, y)}  # fmt: skip
    path = tmp_path / "program.py"
    path.write_text(f"@ti.kernel\ndef run() -> ti.f32:\n    y[1] += 1.0\n    return {call}\n")
    exec(compile(path.read_text(), str(path), "exec"), scope)
    for value in (1.0, 7.0):
        y[1] = value
        assert scope["run"]() == 2 * (value + 1)


def test_python_functions_may_read_attributes_of_fields_at_compile_time():
    y = ti.field(ti.f32, (4, 6))

    def axes(f):
        return len(f.shape)

    @ti.kernel
    def run() -> ti.i32:
        n = 0
        for _ in ti.static(range(axes(y))):
            n += y.shape[1]
        return n

    assert run() == 12


class Grid:
    def __init__(self):
        self.x = ti.field(ti.f32, (8, 6))
        self.levels, self.memo = [self.x, self.x], {}

    def axes(self) -> int:
        return len(self.x.shape)

    def size(self):
        return sum(x.shape[0] for x in self.levels)

    def remembered(self):
        self.memo["n"] = self.x.shape[1]
        return self.memo["n"]

    @property
    def rows(self):
        try:
            return self.x.shape[0]
        except AttributeError:
            return 0


def test_python_functions_of_shapes_run_at_compile_time():
    grid = Grid()

    @ti.kernel
    def run() -> ti.i32:
        n = 0
        for _ in ti.static(range(grid.axes())):
            n += grid.size() + grid.remembered() + grid.rows
        return n

    assert run() == 2 * (16 + 6 + 8)


class Number(Holder):
    def __add__(self, other):
        return self.f[1] + other

    def __getitem__(self, k):
        return self.f[k]


class Inherited(Holder):
    @property
    def twice(self):
        return super().twice


@pytest.mark.parametrize("code", ["number + 0.0", "number[1]"])
def test_operators_that_read_elements_are_errors(code, tmp_path):
    scope = {**globals(), "number": Number(ti.field(ti.f32, 4))}
    path = tmp_path / "program.py"
    path.write_text(f"@ti.kernel\ndef run() -> ti.f32:\n    return {code}\n")
    exec(compile(path.read_text(), str(path), "exec"), scope)
    with pytest.raises(ti.VkchiError, match="accesses elements of an array, at compile time"):
        scope["run"]()


def test_functions_of_arrays_are_not_passed_to_builtins():
    y = ti.field(ti.f32, 4)

    @ti.kernel
    def run() -> ti.f32:
        return list(map(of_argument, [y]))[0]

    with pytest.raises(ti.VkchiError, match="accesses elements of an array, at compile time"):
        run()


def test_a_guard_with_an_interrupted_exit_is_forgotten():
    y = ti.field(ti.f32, 4)

    def interrupted():
        ArrayGuard().__enter__()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    y[1] = 3.0
    assert y[1] == 3.0
    assert not ArrayGuard.threads
