"""Implicit conversions in kernels: lossy ones warn at their line, all others are quiet."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.warm_processes import run_thrice
from vkchi.errors import ConversionWarning

Here = Callable[..., None]


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    ti.init(log_level=ti.ERROR, offline_cache=False)
    yield
    ti.init(random_seed=7)


def told(run: Callable[..., Any], *args: Any) -> list[tuple[str, str]]:
    """The source line and the text of each warning of two calls."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        run(*args)
        run(*args)
    assert all(w.category is ConversionWarning for w in found)
    lines = Path(__file__).read_text().splitlines()
    return [(lines[w.lineno - 1].strip(), str(w.message)) for w in found]


def array(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


# --- a fraction is lost --------------------------------------------------------------------------


def test_a_sum_in_an_integer_variable_explains_its_type() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray()) -> ti.i32:
        s = 0
        for i in range(3):
            s += x[i]
        return s

    ((line, text),) = told(run, array(0.5, 0.5, 0.5))
    assert line == "s += x[i]"
    assert text.startswith("f32 becomes i32 in `s`: the fraction is lost\nhelp: `s` is i32 because")
    assert text.endswith(" assigns 0; write `s = 0.0`")


def test_later_assignments_of_variables_and_their_components() -> None:
    @ti.kernel
    def run(x: ti.f32) -> ti.i32:
        a = 1
        a = x * 0.5
        v = ti.Vector([1, 2])
        v[0] = x
        v = v * x
        a, b = 2, 3
        b = x
        a /= 2
        return a + b + v[0]

    lines = [line for line, _ in told(run, 3.0)]
    assert lines == ["a = x * 0.5", "v[0] = x", "v = v * x", "b = x", "a /= 2"]


def test_stores_to_arrays_members_and_bits(need: Callable[..., None]) -> None:
    need("i64", "u8")
    S = ti.types.struct(n=ti.i32, v=ti.types.vector(2, ti.i32))
    y, s, q = ti.field(ti.i32, 4), S.field(shape=2), ti.field(ti.types.quant.int(8))
    w = ti.Vector.field(2, ti.i64, 2)
    bits = ti.BitpackedFields(max_num_bits=32)
    bits.place(q)
    ti.root.dense(ti.i, 4).place(bits)

    @ti.kernel
    def run(x: ti.f32, z: ti.types.ndarray(ti.u8)):
        y[0] = x
        z[0] = x
        s[0].n = x
        s[1].v[0] = x
        w[0] = ti.Vector([x, x])
        w[1][0] += x
        q[1] = x
        ti.atomic_add(y[1], x)
        ti.atomic_max(y[2], 1.5)
        local = S(x, 2)
        local.n = x
        s[0] = local

    lines = [line for line, _ in told(run, 2.5, np.zeros(1, np.uint8))]
    assert lines == [
        "y[0] = x", "z[0] = x", "s[0].n = x", "s[1].v[0] = x", "w[0] = ti.Vector([x, x])",
        "w[1][0] += x", "q[1] = x", "ti.atomic_add(y[1], x)", "ti.atomic_max(y[2], 1.5)",
        "local = S(x, 2)", "local.n = x",
    ]  # fmt: skip


def test_arguments_and_results_with_annotations() -> None:
    @ti.func
    def half(n: ti.i32) -> ti.i32:
        return n * 0.5

    @ti.real_func
    def third(n: ti.i32) -> ti.i32:
        return n / 3

    @ti.kernel
    def run(x: ti.f32) -> ti.i32:
        a = half(x)
        b = third(a)
        return x + a + b

    found = told(run, 2.5)
    assert [line for line, _ in found] == [
        "a = half(x)", "return n * 0.5", "return n / 3", "return x + a + b",
    ]  # fmt: skip
    assert found[0][1].startswith("f32 becomes i32 in argument `n` of half()")
    assert "in half(), called from run()" in found[1][1]
    assert "the result of run()" in found[3][1]


def test_bounds_of_loops() -> None:
    y = ti.field(ti.i32, 8)

    @ti.kernel
    def run(n: ti.i32):
        for i in range(0.5, 3.9):
            y[i] += 1
        for i in range(n / 2):
            y[i] += 1
        for i in range(4.0):
            y[i] += 1
        for i in range(ti.ceil(n * 0.3)):
            y[i] += 1

    lines = [line for line, _ in told(run, 3)]
    assert lines == [
        "for i in range(0.5, 3.9):", "for i in range(n / 2):",
    ]  # fmt: skip


def test_numbers_that_do_not_fit(need: Callable[..., None]) -> None:
    need("u8", "f16")
    b, h, x = ti.field(ti.u8, 2), ti.field(ti.f16, 2), ti.field(ti.f32, 2)

    @ti.kernel
    def run():
        b[0] = 300
        h[0] = 70000.0
        x[0] = 1e300
        x[1] = -1e300

    texts = [text.partition("\n")[0] for _, text in told(run)]
    assert texts == [
        "300 becomes 44 in `b[0]`, which is u8", "70000.0 becomes inf in `h[0]`, which is f16",
        "1e+300 becomes inf in `x[0]`, which is f32",
        "-1e+300 becomes -inf in `x[1]`, which is f32",
    ]  # fmt: skip


def test_methods_of_arrays_and_vectors() -> None:
    y = ti.field(ti.i32, 4)

    @ti.kernel
    def run(x: ti.f32):
        y.fill(x)
        v = ti.Vector([1, 2])
        v.fill(x)
        y[0] = v.sum()

    assert [line for line, _ in told(run, 2.5)] == ["y.fill(x)", "v.fill(x)"]


# --- lossless conversions ------------------------------------------------------------------------


def test_whole_floats_constants_that_fit_and_casts_are_quiet(need: Callable[..., None]) -> None:
    need("f16")
    y, u, x = ti.field(ti.i32, 8), ti.field(ti.u32, 2), ti.field(ti.f32, 4)
    h = ti.field(ti.f16, 2)

    @ti.kernel
    def run(n: ti.i32, a: ti.f32, flag: ti.u1):
        s = 0
        s += 1.0
        s = 4 / 2
        y[0] = ti.floor(a) + s
        y[1] = ti.round(a * 2) * 3 + n
        y[2] = a // 2
        z = 4.0
        if n > 0:
            z = 2.0
        y[3] = z
        y[4] = ti.math.sign(a)
        y[5] = ti.select(n > 1, 1.0, 2.0)
        y[6] = min(n, 2.0) + ti.abs(ti.ceil(a))
        y[7] = 3.0 if n > 1 else 4.0
        k: ti.i32 = a * 2
        k = int(a) + ti.cast(a, ti.i32) + ti.i32(a)
        v = ti.Vector([0, k])
        v = ti.floor(ti.Vector([a, a]) * 2)
        v += flag
        w = ti.math.ivec2(a, a * 2)
        y[0] += v[0] + w[1] + (a > 1)
        u[0] = -1
        u[1] = 0xFFFFFFFF
        x[0] = 0.1
        x[1] = 3.4028235e38
        x[2] = n
        h[0] = 65504.0
        for i in range(3):
            x[i % 3] = i
            y[i] = i

    assert told(run, 3, 1.5, True) == []


def test_floats_that_loops_and_long_chains_keep_whole_are_quiet() -> None:
    """Also where each float is used twice: the proof looks at each once."""

    @ti.kernel
    def right(x: ti.f32, n: ti.i32) -> ti.i32:
        f, g = ti.floor(x), 2.0
        for i in range(n):
            f, g = g + 1, f * 2
            while g < 10:
                g += f
            if g > 50:
                f -= 3
        for i in ti.static(range(100)):
            f = ti.min(f + f, 64.0)
        s = 0
        s = f + g
        return s

    @ti.kernel
    def wrong(x: ti.f32, n: ti.i32) -> ti.i32:
        f, g = ti.floor(x), 2.0
        for i in range(n):
            f, g = g, f * 0.5
        s = 0
        s = f
        return s

    assert told(right, 2.5, 3) == [] and right(2.5, 3) == 64 + 22
    assert [line for line, _ in told(wrong, 2.5, 3)] == ["s = f"]


def test_narrower_types_are_quiet_outside_debug_mode(need: Here) -> None:
    need("i64", "f64")
    b, x = ti.field(ti.u8, 2), ti.field(ti.f32, 2)

    @ti.kernel
    def run(n: ti.i64, d: ti.f64):
        b[0] = n
        x[0] = d

    assert told(run, 3, 1.5) == []


def test_debug_mode_warns_of_narrower_types_unless_the_value_is_proved_to_fit(need: Here) -> None:
    need("i64", "f64", "u8", "i16")
    ti.init(debug=True, log_level=ti.ERROR, offline_cache=False)
    b, w, x = ti.field(ti.u8, 300), ti.field(ti.i64, 4), ti.field(ti.f32, 2)
    v, c = ti.Vector.field(2, ti.i16, 2), ti.field(ti.i32, 4)

    @ti.kernel
    def run(n: ti.i32, d: ti.f64):
        b[0] = n
        c[0] = w[0]
        x[0] = d
        v[0] = ti.Vector([n, 1])
        b[1] = n & 255
        v[1] = ti.Vector([n % 100, 1])
        x[1] = ti.cast(x[0], ti.f64)
        if 0 <= n < 256:
            b[2] = n
        for i in range(256):
            b[i] = i
        for i in range(300):
            b[i] = i + 0
        for i in range(n):
            b[i] = i
        for i in range(100):
            b[i] = i * 2
            b[i + 100] = i * 3
        k = 0
        while k < 200:
            b[k] = k
            k += 1

    lines = [line for line, _ in told(run, 3, 1.5)]
    assert lines == [
        "b[0] = n", "c[0] = w[0]", "x[0] = d", "v[0] = ti.Vector([n, 1])", "b[i] = i + 0",
        "b[i + 100] = i * 3",
    ]  # fmt: skip


# --- strict, filters, caches ---------------------------------------------------------------------


def test_strict_makes_an_error_at_the_line(need: Callable[..., None]) -> None:
    need("u8")
    ti.init(strict=True, log_level=ti.ERROR, offline_cache=False)
    y, b = ti.field(ti.i32, 2), ti.field(ti.u8, 2)

    @ti.kernel
    def cut(x: ti.f32):
        y[0] = x * 0.5

    @ti.kernel
    def narrow(n: ti.i32):
        b[0] = n

    @ti.kernel
    def turn(n: ti.i32, u: ti.u32):
        y[0] = u

    @ti.kernel
    def right(n: ti.i32):
        b[0] = n & 7
        y[0] = ti.cast(n * 0.5, ti.i32)
        for i in range(2):
            b[i] = i

    for run, args, line in ((cut, (1.0,), "x * 0.5"), (narrow, (1,), "= n"), (turn, (1, 1), "= u")):
        with pytest.raises(ti.TaichiTypeError, match="becomes") as error:
            run(*args)
        assert line in str(error.value) and "test_conversions.py" in str(error.value)
    assert told(right, 3) == []


def test_the_warning_can_be_filtered_and_made_an_error() -> None:
    y = ti.field(ti.i32, 2)

    @ti.kernel
    def run(x: ti.f32):
        y[0] = x

    with warnings.catch_warnings():
        warnings.simplefilter("error", ConversionWarning)
        for _ in range(2):
            with pytest.raises(ConversionWarning):
                run(1.5)
        warnings.simplefilter("ignore", ConversionWarning)
        run(1.5)
    assert y[0] == 1


def test_line_warns_once_across_compiles(need: Callable[..., None]) -> None:
    need("f16")

    @ti.func
    def cut(y: ti.template(), x):
        y = x * 2  # noqa: F841

    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray()):
        cut(y[0], x[0])
        cut(y[1], x[0])

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for t in (np.float32, np.float16):
            run(np.ones(2, t), np.zeros(2, np.int32))
    assert len(found) == 1


PROGRAM = """
import sys
import vkchi as ti
if "warm" in sys.argv:
    import vkchi.kernel
    def refuse(fn, *rest):
        raise SystemExit(str(fn) + " was compiled anew")
    sys.modules["vkchi.kernel"].compile_anew = refuse
ti.init(log_level="error", cache_dir=sys.argv[1])
y = ti.field(ti.i32, 4)
{shift}
@ti.kernel
def run(x: ti.f32):
    s = 0
    s = x * 0.5
    y[0] = s

run(3.0)
"""


def test_a_process_that_finds_the_kernel_in_the_cache_warns_too(tmp_path: Path) -> None:
    """Also where the kernel stands elsewhere in its file by then."""
    cold, warm, moved = run_thrice(PROGRAM, tmp_path, "#\n#\n#\n#")
    assert "program.py:15: ConversionWarning: f32 becomes i32 in `s`" in cold
    assert "because line 14 assigns 0; write `s = 0.0`" in cold
    assert warm == cold
    assert "program.py:18: ConversionWarning" in moved
    assert "because line 17 assigns 0" in moved


def test_saved_modules_warn_when_they_are_made(tmp_path: Path) -> None:
    y = ti.field(ti.i32, 4)

    @ti.kernel
    def run(x: ti.f32):
        y[0] = x * 2

    module = ti.aot.Module(ti.vulkan)
    module.add_field("y", y)
    with pytest.warns(ConversionWarning):
        module.add_kernel(run)
    module.save(str(tmp_path / "module"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ti.load(str(tmp_path / "module")).run(1.5)
