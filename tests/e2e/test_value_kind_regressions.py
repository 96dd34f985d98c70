"""Kinds of compile-time values that the frontend's operations once took for another kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti

UNUSABLE = [
    "x[0]",
    "1.0 if x else 2.0",
    "1.0 if not x else 2.0",
    "1.0 if x == x else 2.0",
    "len(x)",
]


def refused(text: str, words: str, **names: Any) -> None:
    """Check that a kernel that evaluates `text` for an i32 n is refused with a help."""
    import linecache

    source = f"@ti.kernel\ndef k(n: ti.i32) -> ti.f32:\n    return {text}\n"
    if text.startswith(("for", "print", "a,", "ti.")):
        source = f"@ti.kernel\ndef k(n: ti.i32):\n    {text}\n"
    file = f"<refused {len(linecache.cache)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    scope = {"ti": ti, "np": np, **names}
    exec(compile(source, file, "exec"), scope)
    with pytest.raises(ti.TaichiCompilationError) as error:
        scope["k"](3)
    assert words in error.value.help, str(error.value)
    assert source.splitlines()[2].strip() in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("len(range(n))", "ti.max(end - begin, 0)"),
        ("sum(range(n))", "for i in range(n)"),
        ("max(range(n))", "for i in range(n)"),
        ("min(range(n))", "for i in range(n)"),
        ("1.0 if 3 in range(n) else 2.0", "begin <= x"),
        ("range(n)[1]", "begin + k * step"),
        ("a, b, c = range(n)", "for i in range(n)"),
        ("1.0 if range(n) else 2.0", "begin < end"),
        ("1.0 if not range(n) else 2.0", "begin < end"),
        ("range(n) * 2", "for i in range(n)"),
        ("print(range(n))", "for i in range(n)"),
        *[
            (f"for i in ti.static({f}(range(n))): print(i)", "for i in range(n)")
            for f in ("list", "tuple", "enumerate", "zip", "reversed")
        ],
    ],
)
def test_a_range_of_kernel_values_is_only_looped_over(text: str, words: str) -> None:
    refused(text, words)


@pytest.mark.parametrize(
    "text",
    [
        '1.0 if f"{n}" == "3" else 2.0', '1.0 if "3" != f"{n}" else 2.0',
        '1.0 if f"{n}" in ["3", "4"] else 2.0', '1.0 if [f"{n}"] == ["3"] else 2.0',
    ],
)  # fmt: skip
def test_strings_with_kernel_values_are_not_compared(text: str) -> None:
    refused(text, "")


@pytest.mark.parametrize("text", ['1.0 if f"{n}" else 2.0', '1.0 if not f"{n}" else 2.0'])
def test_strings_with_kernel_values_have_no_truth(text: str) -> None:
    refused(text, "only print it")


def test_dicts_of_kernel_values_are_not_compared_by_identity() -> None:
    refused('1.0 if {"a": n} == {"a": n + 0} else 2.0', "use a number")


@pytest.mark.parametrize("text", UNUSABLE)
def test_an_ndarray_without_a_name_raises_in_every_use(text: str) -> None:
    held = {"x": ti.ndarray(ti.f32, 4)}
    refused(text.replace("x", 'held.get("x")'), "pass it to the kernel as an argument", held=held)


@pytest.mark.parametrize("text", UNUSABLE)
def test_a_texture_that_is_no_argument_raises_in_every_use(text: str) -> None:
    refused(text, "pass it as an argument", x=ti.Texture(ti.Format.r32f, (4,)))


@pytest.mark.parametrize("text", ["1.0 if x == x else 2.0", "1.0 if x != y else 2.0"])
def test_whole_arrays_are_not_compared(text: str) -> None:
    refused(text, "x is y", x=ti.field(ti.f32, 4), y=ti.field(ti.f32, 4))


def test_arrays_are_compared_with_none_and_by_identity() -> None:
    x, y = ti.field(ti.f32, 4), ti.field(ti.f32, 4)

    @ti.kernel
    def k() -> ti.i32:
        return int(x is x) + 2 * int(x is y) + 4 * int(x is not None) + 8 * int(x == None)  # noqa: E711

    assert k() == 5


def test_arrays_are_not_printed() -> None:
    structs = ti.Struct.field({"a": ti.f32}, shape=4)
    refused("print(x)", "index it: x[i], or print it", x=structs)
    refused("print(x)", "index it: x[i], or print it", x=ti.ndarray(ti.f32, 4))
    refused("print(x)", "pass it", x=ti.Texture(ti.Format.r32f, (4,)))
    refused('print(f"{x}")', "index it: x[i], or print it", x=structs)


class Shelf:
    """Methods with the names of assignable things in kernels."""

    def __init__(self) -> None:
        self.held = 3

    def load(self) -> int:
        return self.held

    def store(self, x: Any) -> Any:
        return self.held + x

    def atomic(self, x: Any) -> Any:
        return x * 2


def test_classes_with_load_store_and_atomic_are_objects() -> None:
    shelf = Shelf()

    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        return shelf.load() * 100 + shelf.store(n) * 10 + shelf.atomic(n)

    assert k(2) == 354


class Config(dict):
    __getattr__ = dict.get


class StrictConfig(dict):
    __getattr__ = dict.__getitem__


@pytest.mark.parametrize("cls", [Config, StrictConfig])
def test_dicts_that_answer_attributes(cls: type) -> None:
    cfg = cls(dt=0.5, n=3)

    @ti.kernel
    def k() -> ti.f32:
        s = 0.0
        for key in ti.static(cfg):
            s += cfg[key]
        return cfg.dt * cfg.n + s

    assert k() == 5.0


@pytest.mark.parametrize("cls", [Config, StrictConfig])
def test_dicts_that_answer_attributes_keep_their_class(cls: type) -> None:
    @ti.func
    def scaled(c, x):
        return c.dt * x

    def added(c: Any, x: Any) -> Any:
        return c.dt + x

    @ti.kernel
    def k(cfg: ti.template(), x: ti.f32) -> ti.f32:
        held = cfg
        return scaled(cfg, x) + added(cfg, x) + held.dt

    assert k(cls(dt=0.5, n=3), 2.0) == 0.5 * 2 + 2.5 + 0.5


class Everything:
    """An object that answers every attribute."""

    def __init__(self) -> None:
        self.held = 2

    def __getattr__(self, name: str) -> Any:
        return lambda *args: 5


def test_objects_that_answer_every_attribute() -> None:
    x = Everything()

    @ti.kernel
    def k(y: ti.template()) -> ti.i32:
        return x.held + y.held * 10 + y.anything() * 100

    assert k(x) == 522


def test_an_attribute_that_a_strict_dict_lacks() -> None:
    refused("x.mass", "it has", x=StrictConfig(dt=1))


def test_len_of_struct_fields() -> None:
    structs = ti.Struct.field({"a": ti.f32}, shape=(5, 4))

    @ti.kernel
    def k(x: ti.template()) -> ti.i32:
        return len(structs) * 10 + len(x)

    assert k(structs) == 55


def test_ndim_counts_axes() -> None:
    pair = ti.types.struct(a=ti.f32)
    x, y, z = ti.field(ti.f32, (2, 3)), pair.field(shape=(2, 2, 2)), ti.ndarray(ti.f32, (4, 4))

    @ti.kernel
    def k(a: ti.types.ndarray(), f: ti.template()) -> ti.i32:
        return x.ndim * 1000 + y.ndim * 100 + a.ndim * 10 + f.ndim

    assert k(z, x) == 2322 == x.ndim * 1000 + y.ndim * 100 + z.ndim * 10 + x.ndim


@pytest.mark.parametrize("c", [1, -1])
def test_captured_structs_join_on_two_branches(c: int) -> None:
    one, two = ti.Struct(a=1, b=2.5), ti.Struct(a=3, b=4.5)

    @ti.func
    def chosen(c):
        result = one
        if c <= 0:
            result = two
        return result

    @ti.kernel
    def k(c: ti.i32) -> ti.f32:
        s = one if c > 0 else two
        return s.a * 10 + s.b + chosen(c).b

    expected = one if c > 0 else two
    assert k(c) == expected.a * 10 + 2 * expected.b


@pytest.mark.parametrize(
    "text", ["ti.ad.clear_all_gradients()", "ti.sync()", "ti.init()", "ti.reset()", "ti.ad.Tape(x)"]
)
def test_host_functions_raise_in_kernels(text: str) -> None:
    refused(text, "call it outside the kernel", x=ti.field(ti.f32, ()))


def test_kernel_vectors_are_iterated_over_in_all_forms() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        v = ti.Vector([n, n + 1, n + 2])
        s = 0
        for i, c in ti.static(enumerate(v)):
            s += i * c
        for c in ti.static(v):
            s += 10 * c
        for c, d in ti.static(zip(v, [1, 2, 3])):
            s += 100 * c * d
        for c in ti.static(reversed(v)):
            s = 2 * s + c
        p, q, r = v
        listed = list(v)
        t = tuple(v)
        s += sum([c for c in v]) + max(*v) + p * q - r + listed[1] * t[2]
        return s

    v = [5, 6, 7]
    s = sum(i * c for i, c in enumerate(v)) + 10 * sum(v)
    s += 100 * sum(c * d for c, d in zip(v, [1, 2, 3]))
    for c in reversed(v):
        s = 2 * s + c
    assert k(5) == s + sum(v) + 7 + 5 * 6 - 7 + 6 * 7


def test_kernel_matrices_are_iterated_over_by_rows() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        m = ti.Matrix([[n, 2], [3, 4]])
        a, b = m
        s = 0
        for row in ti.static(m):
            s = 10 * s + row[0] * row[1]
        return 10 * s + a[0] - b[1]

    assert k(1) == 317


def test_structs_are_iterated_over_by_members() -> None:
    captured = ti.Struct(a=1, b=2)

    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        made = ti.Struct(a=n, b=n + 1)
        a, b = made
        c, d = captured
        return a * 1000 + b * 100 + c * 10 + d + sum([x for x in made])

    assert k(3) == 3412 + 7


def test_a_string_is_no_sum() -> None:
    refused('sum("abc")', "join")
    refused('sum({"a": n})', "join")


def test_not_of_a_captured_vector_is_that_of_a_kernel_vector() -> None:
    captured = ti.Vector([0, 2, 0])

    @ti.kernel
    def k() -> ti.math.ivec3:
        return ti.cast(not captured, ti.i32)

    assert k().to_list() == [1, 0, 1]


STEP = np.float32(1.0)


class Limits:
    high = np.float32(2.0)


def test_numpy_computes_constants_in_its_own_types() -> None:
    limits = Limits()

    @ti.kernel
    def k() -> ti.types.vector(5, ti.f32):
        return ti.Vector([
            np.nextafter(np.float32(1.0), np.float32(2)),
            np.nextafter(STEP, limits.high),
            np.nextafter(np.nextafter(STEP, np.float32(2)), limits.high),
            np.nextafter(np.float32(1), -np.float32(2)),
            -np.nextafter(-STEP, -limits.high),
        ])  # fmt: skip

    up = float(np.nextafter(np.float32(1), np.float32(2)))
    twice = float(np.nextafter(np.float32(up), np.float32(2)))
    down = float(np.nextafter(np.float32(1), np.float32(-2)))
    assert [float(x) for x in k().to_list()] == [up, up, twice, down, up]


def test_numpy_computes_arrays_that_are_constants() -> None:
    table = np.array([1.0, 4.0])

    @ti.kernel
    def k() -> ti.f32:
        s = np.sqrt(table)[1] + np.maximum(table, 2)[0] + np.dot(table, table)
        return s + np.linalg.norm(np.array([3.0, 4.0])) + np.sum(np.arange(4)) + np.sin(0.0)

    assert k() == 2 + 2 + 17 + 5 + 6


def test_numpy_scalars_of_the_default_types_are_constants() -> None:
    @ti.kernel
    def k() -> ti.f32:
        s = 0.0
        for i in ti.static(range(np.int32(3))):
            s += i * ti.static(np.float32(0.5))
        return s

    assert k() == 1.5


def test_numpy_scalars_of_other_types_keep_them(need: Any) -> None:
    need("i64")

    @ti.kernel
    def k() -> ti.i32:
        return (np.int64(2**40) >> 20) + ti.cast(np.uint8(200) + np.uint8(100), ti.i32)

    assert k() == 2**20 + 44


def test_numpy_functions_of_kernel_values_raise() -> None:
    refused("np.nextafter(np.float32(n), np.float32(2))", "constants")
    refused("np.int32(2**40)", "")


def test_a_sum_of_a_vector_has_a_start() -> None:
    @ti.kernel
    def total(x: ti.f32) -> ti.f32:
        v = ti.Vector([1.0, 2.0, x])
        return sum(v, 10.0) + sum(v, start=0) + sum(v)

    assert total(3.0) == 28.0


@pytest.mark.parametrize("text", ["round(x, n)", "round(3.14159, n)", "round(x, 1.5)"])
def test_digits_of_round_are_constant_integers(text: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"def rounded(x: ti.f32, n: ti.i32) -> ti.f32:\n    return {text}\n")
    held = {"ti": ti}
    exec(compile(path.read_text(), str(path), "exec"), held)
    with pytest.raises(ti.TaichiTypeError, match="digits of `round` must be a compile-time"):
        ti.kernel(held["rounded"])(3.14159, 2)


def test_round_to_digits() -> None:
    @ti.kernel
    def rounded(x: ti.f32) -> ti.f32:
        return round(x, 2) + round(2.71828, 1)

    assert rounded(3.14159) == pytest.approx(3.14 + 2.7)
