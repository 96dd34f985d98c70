"""`ti.aot.Module`, `ti.load`: saved kernels run elsewhere as here, without a compiler."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.devices import like_gpu
from vkchi.aot.capabilities import missing_features
from vkchi.aot.files import SUMS, read_files, write_folder
from vkchi.aot.json_format import FORMAT, METADATA, read_saved
from vkchi.cache.codec import CLASSES
from vkchi.cache.store import CacheStore
from vkchi.errors import ArgumentError, DeviceError, GradientError, ModuleError, VkchiError
from vkchi.runtime import current_runtime
from vkchi.target.caps import SMALLEST, Caps

F1 = ti.types.ndarray(ti.f32, 1)
Pair = ti.types.struct(a=ti.f32, b=ti.math.vec2)
Pack = ti.types.argpack(scale=ti.f32, x=F1)


@ti.kernel
def push(dt: ti.f32, x: F1, v: ti.types.ndarray(ti.math.vec2, 1)) -> ti.f32:
    total = 0.0
    for i in x:
        x[i] += dt
        v[i] += ti.Vector([x[i], 1.0])
        ti.atomic_add(total, x[i])
    return total


@ti.kernel
def turn(m: ti.math.mat2, n: ti.i32, x: ti.types.ndarray(ti.math.vec2, 1)):
    for i in range(n):
        x[i] = m @ x[i]


@ti.kernel
def of_structs(p: Pair, x: ti.types.ndarray(Pair, 1)) -> Pair:
    for i in x:
        x[i].a += p.a
        x[i].b += p.b
    return Pair(a=p.a + 1, b=p.b * 2)


@ti.kernel
def of_pack(p: Pack):
    for i in p.x:
        p.x[i] *= p.scale


@ti.kernel
def add_into(x: ti.template(), k: ti.template()):
    for i in x:
        x[i] += k


@ti.kernel
def paint(img: ti.types.rw_texture(2, fmt=ti.Format.r32f), seen: ti.types.texture(2), k: ti.f32):
    for i, j in ti.ndrange(4, 4):
        img.store(ti.Vector([i, j]), ti.Vector([k * seen.fetch(ti.Vector([i, j]), 0).x, 0, 0, 0]))


@ti.kernel
def draw(x: F1):
    for i in x:
        x[i] = ti.random()


@ti.kernel
def two() -> ti.i32:
    return 2


def saved(tmp_path: Path, add: Callable[[Any], None], **options: Any) -> Any:
    """Contents of a module, saved and loaded."""
    m = ti.aot.Module(**options)
    add(m)
    m.save(tmp_path / "module")
    return ti.load(tmp_path / "module")


def ndarray(values: Any, dtype: Any = ti.f32) -> Any:
    values = np.asarray(values)
    x = ti.ndarray(dtype, values.shape[: 1 if values.ndim else 0])
    x.from_numpy(values)
    return x


# --- kernels -------------------------------------------------------------------------------------


def test_numbers_arrays_and_returns(tmp_path: Path) -> None:
    m = saved(tmp_path, lambda m: m.add_kernel(push))
    for n in (1, 5, 700):
        x, v = ndarray(np.arange(n, dtype=np.float32)), ti.Vector.ndarray(2, ti.f32, n)
        y, w = ndarray(np.arange(n, dtype=np.float32)), ti.Vector.ndarray(2, ti.f32, n)
        assert m.push(0.5, x, v) == push(0.5, y, w)
        assert np.array_equal(x.to_numpy(), y.to_numpy())
        assert np.array_equal(v.to_numpy(), w.to_numpy())
    host = np.ones(4, np.float32)
    assert m.push(x=host, dt=1, v=np.zeros((4, 2), np.float32)) == 8 and host.tolist() == [2] * 4


def test_arrays_that_are_one_and_of_other_shapes(tmp_path: Path) -> None:
    """Neither equal shapes nor memory of their own are assumed."""

    @ti.kernel
    def shift(x: F1, y: F1):
        for i in x:
            y[0] = x[i]
            x[i] = y[0] + y.shape[0]

    m = saved(tmp_path, lambda m: m.add_kernel(shift))
    x = ndarray([1, 2, 3])
    shift(x, ndarray([0]))
    z = ndarray([1])
    m.shift(z, z)
    m.shift(y := ndarray([1, 2, 3]), ndarray([0]))
    assert y.to_numpy().tolist() == x.to_numpy().tolist() and z[0] == 2


def test_matrices_structs_and_packs(tmp_path: Path) -> None:
    def add(m: Any) -> None:
        for kernel in (turn, of_structs, of_pack):
            m.add_kernel(kernel)

    m = saved(tmp_path, add)
    x = ti.Vector.ndarray(2, ti.f32, 3)
    x.fill(1)
    m.turn(ti.Matrix([[0.0, -2.0], [1.0, 0.0]]), 2, x)
    assert x.to_numpy().tolist() == [[-2, 1], [-2, 1], [1, 1]]
    structs = Pair.ndarray(2)
    got = m.of_structs(Pair(a=3.0, b=ti.Vector([1.0, 2.0])), structs)
    assert (got.a, got.b.to_list()) == (4, [2, 4])
    assert structs.to_numpy()["b"].tolist() == [[1, 2], [1, 2]]
    m.of_pack(Pack(scale=3.0, x=(y := ndarray([1, 2]))))
    assert y.to_numpy().tolist() == [3, 6]


def test_gradients_that_kernels_use(tmp_path: Path) -> None:
    @ti.kernel
    def descend(rate: ti.f32, x: ti.types.ndarray(ti.f32, 1, needs_grad=True)):
        for i in x:
            x[i] -= rate * x.grad[i]

    m = ti.aot.Module()
    m.add_kernel(descend)
    m.save(tmp_path)
    x = ti.ndarray(ti.f32, 3, needs_grad=True)
    x.grad.fill(2)
    ti.load(tmp_path).descend(0.5, x)
    assert x.to_numpy().tolist() == [-1, -1, -1]
    assert "\ngradient x.grad x\n" in (tmp_path / "module.txt").read_text()
    with pytest.raises(ArgumentError, match="an array with a gradient is needed"):
        ti.load(tmp_path).descend(0.5, ndarray([1]))


def test_saved_kernel_takes_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    m = saved(tmp_path, lambda m: m.add_kernel(push))
    x, v = torch.ones(4), torch.zeros(4, 2)
    assert m.push(0.5, x, v) == 6 and x.tolist() == [1.5] * 4 and v[0].tolist() == [1.5, 1]
    with pytest.raises(ti.TaichiRuntimeError, match="leaf|requires"):
        m.push(0.5, torch.ones(4, requires_grad=True)[:], v)


def test_saved_kernel_takes_textures(tmp_path: Path) -> None:
    seen, img = ti.Texture(ti.Format.rg32f, (4, 4)), ti.Texture(ti.Format.r32f, (4, 4))
    seen.storage.fill(2)
    m = saved(tmp_path, lambda m: m.add_kernel(paint, {"img": img, "seen": seen}))
    m.paint(img, seen, 1.5)
    assert (img.storage.to_numpy() == 3).all()
    with pytest.raises(ArgumentError, match=r"saved for textures of ti.Format.rg32f, not of"):
        m.paint(img, img, 1.5)


def test_fields_are_allocated_where_a_module_is_loaded(tmp_path: Path) -> None:
    x, own = ti.field(ti.f32, (3, 2)), ti.field(ti.i32, ())
    a, b = ti.field(ti.f32), ti.Vector.field(2, ti.f32)
    ti.root.dense(ti.i, 4).place(a, b)
    pairs = Pair.field(shape=2)

    @ti.kernel
    def fill(k: ti.f32):
        for i, j in x:
            x[i, j] = k * i + j
        for i in a:
            a[i] = i
            b[i] = ti.Vector([i, k])
        for i in pairs:
            pairs[i].b = ti.Vector([i, k])
        own[None] += 1

    @ti.kernel
    def count() -> ti.i32:
        return own[None]

    def add(m: Any) -> None:
        for name, field in {"x": x, "a": a, "b": b, "pairs": pairs}.items():
            m.add_field(name, field)
        m.add_kernel(fill)
        m.add_kernel(count)

    m = saved(tmp_path, add)
    assert sorted(m.fields) == ["a", "b", "pairs.a", "pairs.b", "x"]
    assert m.fields["x"].shape == (3, 2) and not m.fields["x"].to_numpy().any()
    m.fill(2)
    m.fill(2)
    assert m.fields["x"].to_numpy().tolist() == [[0, 1], [2, 3], [4, 5]]
    assert m.fields["a"].to_numpy().tolist() == [0, 1, 2, 3]
    assert m.fields["b"].to_numpy().tolist() == [[0, 2], [1, 2], [2, 2], [3, 2]]
    assert m.fields["pairs.b"].to_numpy().tolist() == [[0, 2], [1, 2]]
    assert m.count() == 2 and own[None] == 0 and not x.to_numpy().any()
    m.fields["a"][1] = 7
    assert m.fields["a"][1] == 7 and ti.load(tmp_path / "module").count() == 0


def test_templates_and_methods(tmp_path: Path) -> None:
    x, y = ti.field(ti.i32, 2), ti.field(ti.i32, 3)

    @ti.data_oriented
    class Steps:
        n = 5

        @ti.kernel
        def step(self, k: ti.i32) -> ti.i32:
            return self.n * k

    def add(m: Any) -> None:
        m.add_field("x", x)
        m.add_field("y", y)
        with m.add_kernel_template(add_into) as t:
            t.instantiate(x=x, k=3)
            t.instantiate(x=y, k=4)
        m.add_kernel(add_into, {"x": x, "k": 5}, name="five")
        m.add_kernel(Steps().step)
        m.add_kernel(two, name="second")

    m = saved(tmp_path, add)
    m.kernel("add_into", x="x", k=3)()
    m.kernel("add_into", x="y", k=4)()
    m.five()
    assert m.fields["x"].to_numpy().tolist() == [8, 8]
    assert m.fields["y"].to_numpy().tolist() == [4, 4, 4]
    assert (m.step(2), m.second()) == (10, 2)


def test_random_draws_differ_between_launches(tmp_path: Path) -> None:
    m = saved(tmp_path, lambda m: m.add_kernel(draw))
    x, y = ti.ndarray(ti.f32, 100), ti.ndarray(ti.f32, 100)
    m.draw(x)
    m.draw(y)
    assert len({*x.to_numpy(), *y.to_numpy()}) > 190


def test_saved_kernel_prints_and_asserts(
    tmp_path: Path, own_runtime: None, capfd: pytest.CaptureFixture[str]
) -> None:
    ti.init(debug=True)

    @ti.kernel
    def say(x: F1):
        for i in range(3):
            print("element", i, x[i])
            assert x[i] < 2, "too large"

    m = ti.aot.Module()
    m.add_kernel(say)
    m.save(tmp_path)
    ti.init()
    m = ti.load(tmp_path)
    m.say(ndarray([0, 1, 1]))
    assert capfd.readouterr().out.splitlines()[1] == "element 1 1.000000"
    with pytest.raises(
        ti.TaichiAssertionError, match=r"<test_aot.py>:\d+:\d+: assertion failed: too large"
    ):
        m.say(ndarray([0, 5, 1]))
    with pytest.raises(ti.TaichiAssertionError, match="out of bounds"):
        m.say(ndarray([0]))
    assert str(Path(__file__).parent) not in (tmp_path / METADATA).read_text()


# --- graphs --------------------------------------------------------------------------------------


def a_graph(*first: Any) -> Any:
    kind = ti.graph.ArgKind
    dt = ti.graph.Arg(kind.SCALAR, "dt", ti.f32)
    x = ti.graph.Arg(kind.NDARRAY, "x", ti.f32, ndim=1)
    v = ti.graph.Arg(kind.NDARRAY, "v", ti.math.vec2, ndim=1)
    m = ti.graph.Arg(kind.MATRIX, "m", ti.math.mat2)
    builder = ti.graph.GraphBuilder()
    for call in first:
        builder.dispatch(*call)
    builder.dispatch(push, dt, x, v)
    builder.dispatch(turn, m, 2, v)
    builder.dispatch(turn, ti.Matrix([[1.0, 1.0], [0.0, 1.0]]), 3, v)
    builder.dispatch(push, 0.25, x, v)
    return builder.compile()


def test_saved_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = a_graph()
    m = saved(tmp_path, lambda m: m.add_graph("frame", graph))
    arrays = [(ndarray(np.ones(4, np.float32)), ti.Vector.ndarray(2, ti.f32, 4)) for _ in "ab"]
    found: list[Any] = []
    device = current_runtime().device
    run = device.execute
    monkeypatch.setattr(device, "execute", lambda s: (found.append(s.count), run(s))[1])
    for dt in (0.5, 0.5, 2.0):
        for g, (x, v) in zip((graph, m.graphs["frame"]), arrays):
            g.run({"dt": dt, "x": x, "v": v, "m": ti.Matrix([[0.0, 1.0], [1.0, 0.0]])})
    for mine, others in zip(*arrays):
        assert np.array_equal(mine.to_numpy(), others.to_numpy())
    assert len(found) == 12  # both are replayed, but for the call with a matrix of Python's
    assert not m.kernels  # those of a graph are its own


def test_a_graph_with_fields_and_textures(tmp_path: Path) -> None:
    x = ti.field(ti.i32, 3)
    tex = ti.graph.Arg(ti.graph.ArgKind.RWTEXTURE, "tex", ndim=2, fmt=ti.Format.r32f)

    @ti.kernel
    def wash(tex: ti.types.rw_texture(2, fmt=ti.Format.r32f)):
        for i, j in ti.ndrange(2, 2):
            tex.store(ti.Vector([i, j]), ti.Vector([x[i], 0, 0, 0]))

    builder = ti.graph.GraphBuilder()
    builder.dispatch(add_into, x, 2)
    builder.dispatch(wash, tex)

    def add(m: Any) -> None:
        m.add_field("x", x)
        m.add_graph("g", builder.compile())

    m = saved(tmp_path, add)
    texture = ti.Texture(ti.Format.r32f, (2, 2))
    m.graphs["g"].run({"tex": texture})
    m.graphs["g"].run({"tex": texture})
    assert (texture.storage.to_numpy() == 4).all() and x[0] == 0


def test_arrays_given_to_a_graph_cannot_be_saved() -> None:
    builder = ti.graph.GraphBuilder()
    builder.dispatch(draw, ti.ndarray(ti.f32, 3))
    with pytest.raises(ArgumentError, match=r"`x` was given .* in dispatch\(\)"):
        ti.aot.Module().add_graph("g", builder.compile())


@pytest.mark.parametrize("name", ["my rate", "a\nkernel b", ""])
def test_graph_arguments_that_are_no_words_cannot_be_saved(name: str) -> None:
    """They would be something else in module.txt."""
    builder = ti.graph.GraphBuilder()
    builder.dispatch(draw, ti.graph.Arg(ti.graph.ArgKind.NDARRAY, name, ti.f32, ndim=1))
    with pytest.raises(ArgumentError, match="a name without spaces is needed"):
        ti.aot.Module().add_graph("g", builder.compile())


def test_a_graph_with_textures_of_any_format(tmp_path: Path) -> None:
    """As in Taichi's example of graphs with textures."""
    kind = ti.graph.ArgKind

    @ti.kernel
    def look(t: ti.f32, pixels: ti.types.ndarray(ndim=2), tex: ti.types.texture(num_dimensions=2)):
        for i, j in pixels:
            c = tex.fetch(ti.Vector([i, j]), 0)
            pixels[i, j] = [c.r, c.r, t, 1.0]

    t = ti.graph.Arg(kind.SCALAR, "t", ti.f32)
    pixels = ti.graph.Arg(kind.NDARRAY, "pixels", dtype=ti.math.vec4, ndim=2)
    builder = ti.graph.GraphBuilder()
    builder.dispatch(look, t, pixels, ti.graph.Arg(kind.TEXTURE, "tex", ndim=2))
    graph, texture = builder.compile(), ti.Texture(ti.Format.r32f, (4, 4))
    texture.storage.fill(3)
    m = ti.aot.Module(ti.vulkan)
    m.add_graph("any", graph)
    m.add_graph("g", graph, template_args={"tex": texture})
    with pytest.raises(ArgumentError, match="no array or texture is called t: pixels, tex"):
        m.add_graph("h", graph, {"t": 1})
    m.save(tmp_path, "")
    loaded, out = ti.load(tmp_path), ti.Vector.ndarray(4, ti.f32, (4, 4))
    loaded.graphs["g"].run({"t": 0.5, "pixels": out, "tex": texture})
    assert (out.to_numpy() == [3, 3, 0.5, 1]).all()
    with pytest.raises(ArgumentError, match="saved for textures of ti.Format.rgba8.*template_args"):
        loaded.graphs["any"].run({"t": 0.5, "pixels": out, "tex": texture})


def test_the_program_of_taichis_documentation(tmp_path: Path) -> None:
    n = 32
    canvas = ti.ndarray(dtype=ti.f32, shape=(n * 2, n))

    @ti.func
    def complex_sqr(z):  # complex square of a 2D vector
        return ti.Vector([z[0] * z[0] - z[1] * z[1], 2 * z[0] * z[1]])

    @ti.kernel
    def fractal(t: ti.f32, canvas: ti.types.ndarray(dtype=ti.f32, ndim=2)):
        for i, j in canvas:
            c = ti.Vector([-0.8, ti.cos(t) * 0.2])
            z = ti.Vector([i / n - 1, j / n - 0.5]) * 2
            iterations = 0
            while z.norm() < 20 and iterations < 50:
                z = complex_sqr(z) + c
                iterations += 1
            canvas[i, j] = 1 - iterations * 0.02

    mod = ti.aot.Module(ti.vulkan)
    mod.add_kernel(fractal, template_args={"canvas": canvas})
    mod.archive(str(tmp_path / "fractal.tcm"))
    fractal(0.3, canvas)
    again = ti.ndarray(ti.f32, (n * 2, n))
    ti.load(tmp_path / "fractal.tcm").fractal(0.3, again)
    assert np.array_equal(again.to_numpy(), canvas.to_numpy()) and canvas.to_numpy().std() > 0.1


# --- elsewhere -----------------------------------------------------------------------------------

ELSEWHERE = """
import os, sys
import numpy as np
import vkchi as ti
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # nothing is loaded ahead then
ti.init()
m = ti.load(sys.argv[1])
x = ti.ndarray(ti.f32, 4)
x.fill(1)
v = ti.Vector.ndarray(2, ti.f32, 4)
assert m.push(0.5, x, v) == 6
host = np.zeros(4, np.float32)
assert m.push(0.5, host, v) == 2
try:
    host.flags.writeable = False
    m.push(0.5, host, v)
except ti.TaichiRuntimeError as e:
    assert "the kernel writes to it, and this numpy array is read-only" in str(e), e
args = {"dt": 0.5, "x": x, "v": v, "m": ti.Matrix([[0.0, 1.0], [1.0, 0.0]])}
m.graphs["frame"].run(args)
m.graphs["frame"].run(args)
assert x[0] == 3, x[0]
m.add()
assert m.fields["f"].to_numpy().tolist() == [3, 3]
compiler = ("compiler", "opt", "spirv", "autodiff", "analysis", "tape", "cache.content",
            "frontend.lowering", "frontend.calls.intrinsics", "ir.builder", "ir.ops", "ir.text",
            "ir.verify")
print([name for name in compiler if "vkchi." + name in sys.modules])
"""


NO_COMPILER = """
import sys
for name in ("compiler", "opt", "spirv", "autodiff", "tape", "frontend.lowering", "ir.builder"):
    sys.modules["vkchi." + name] = None  # is not to be imported
"""


@pytest.mark.parametrize("form", ["folder", "archive"])
@pytest.mark.parametrize("cache", ["some", "empty"])
def test_no_compiler_is_needed(tmp_path: Path, form: str, cache: str, cache_environment) -> None:
    """Nor is it loaded, but ahead of possible compilations, which finds nothing in a cache."""
    f = ti.field(ti.i32, 2)
    m = ti.aot.Module(ti.vulkan)
    m.add_field("f", f)
    m.add_kernel(push)
    m.add_kernel(add_into, {"x": f, "k": 3}, "add")
    m.add_graph("frame", a_graph())
    path = tmp_path / ("m.tcm" if form == "archive" else "m")
    (m.archive if form == "archive" else m.save)(path)
    if cache == "some":
        CacheStore(tmp_path / "cache").put("0" * 64, {}, b"")
    done = subprocess.run(
        [sys.executable, "-c", (NO_COMPILER if cache == "empty" else "") + ELSEWHERE, path],
        env=cache_environment(tmp_path / "cache"), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert cache == "empty" or done.stdout == "[]\n"


def test_equal_modules_are_equal_files(tmp_path: Path) -> None:
    for name in ("a.tcm", "b.tcm"):
        m = ti.aot.Module()
        m.add_kernel(push)
        m.archive(tmp_path / name)
    assert (tmp_path / "a.tcm").read_bytes() == (tmp_path / "b.tcm").read_bytes()


def test_saving_again_replaces_earlier_files(tmp_path: Path) -> None:
    m = ti.aot.Module()
    m.add_kernel(push)
    m.save(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    m = ti.aot.Module()
    m.add_kernel(two)
    m.save(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {
        "two.0.spv", "module.json", "module.txt", "__content__", SUMS, "notes.txt",
    }  # fmt: skip
    assert (tmp_path / "__content__").read_text() == "kernel:two"


def test_sums_of_other_files_are_left_alone(tmp_path: Path) -> None:
    m = ti.aot.Module()
    m.add_kernel(push)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / SUMS).write_text("0" * 64 + "  notes.txt\n")
    with pytest.raises(
        ModuleError, match="other files, not to a saved module: save into another folder"
    ):
        m.save(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"notes.txt", SUMS}


# --- errors --------------------------------------------------------------------------------------


def test_damaged_files(tmp_path: Path) -> None:
    m = ti.aot.Module()
    m.add_kernel(push)
    m.save(tmp_path / "m")
    m.archive(tmp_path / "m.tcm")
    with pytest.raises(ModuleError, match="there is no module"):
        ti.load(tmp_path / "nothing")
    with pytest.raises(ModuleError, match="is no module: it has no"):
        ti.load(tmp_path)
    for path in sorted((tmp_path / "m").iterdir()):
        whole = path.read_bytes()
        for damage in (whole[:-2], bytes([whole[0] ^ 1]) + whole[1:], b"", None):
            path.unlink() if damage is None else path.write_bytes(damage)
            with pytest.raises(ModuleError):
                ti.load(tmp_path / "m")
        path.write_bytes(whole)
    ti.load(tmp_path / "m")
    whole = (tmp_path / "m.tcm").read_bytes()
    for at in range(0, len(whole), 97):
        (tmp_path / "m.tcm").write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        try:
            ti.load(tmp_path / "m.tcm")  # some bytes of an archive mean nothing
        except ModuleError:
            pass
    (tmp_path / "m.tcm").write_bytes(whole[:100])
    with pytest.raises(ModuleError, match="m.tcm is damaged or is not a module$"):
        ti.load(tmp_path / "m.tcm")


def test_metadata_that_does_not_fit_the_other_files(tmp_path: Path) -> None:
    """Messages name files and fields, and no class of Python."""
    m = ti.aot.Module()
    m.add_kernel(push)
    m.add_field("x", ti.field(ti.f32, 4096))
    m.save(tmp_path)
    files = read_files(tmp_path)
    for old, new, message in (
        ('"push.0.spv"', '"smooth.1.spv"', "names the file 'smooth.1.spv', which the module lacks"),
        ('"blocks"', '"blockz"', "none that vkchi writes: 'blocks' is missing"),
        ("16388", "16", "field 'x' of 16384 bytes at 0 exceeds its memory block of 16"),
    ):
        text = files[METADATA].decode()
        assert old in text
        write_folder(tmp_path, {**files, METADATA: text.replace(old, new).encode()})
        with pytest.raises(ModuleError, match=message) as found:
            ti.load(tmp_path)
        assert "Error(" not in str(found.value)


NO_ARGUMENT = {"tag": "NDARRAY", "dtype": "f32", "ndim": "two", "fmt": None}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", FORMAT + 1, f"of format {FORMAT + 1}, and this vkchi reads format {FORMAT}"),
        ("version", FORMAT - 1, f"of format {FORMAT - 1}, and this vkchi reads format {FORMAT}"),
        ("format", "zip", "that of a 'zip'"),
        ("kernels", {"push": {}}, "none that vkchi writes"),
        ("caps", {}, "none that vkchi writes"),
        ("fields", {"x": {"type": "f32", "block": 0, "start_bytes": 0}}, "no module that"),
        ("blocks", [4], "no module that"),
        ("graphs", {"g": {"arguments": {"a": NO_ARGUMENT}, "nodes": []}}, "no module that"),
    ],
)
def test_metadata_of_others(tmp_path: Path, key: str, value: Any, message: str) -> None:
    m, x = ti.aot.Module(), ti.field(ti.f32, 4)
    m.add_kernel(push)
    m.add_field("x", x)
    m.save(tmp_path)
    files = read_files(tmp_path)
    tree = json.loads(files[METADATA])
    tree[key] = value
    write_folder(tmp_path, {**files, METADATA: json.dumps(tree).encode()})
    with pytest.raises(ModuleError, match=message):
        ti.load(tmp_path)


VALUES = (None, -1, 0, 1, 3, 2**31, -(2**40), 1.5, True, "", "x", "f32", [], {}, [0], {"x": 1})


def mutated(tree: Any, rng: random.Random) -> Any:
    """A tree of JSON with one part exchanged, dropped or doubled."""
    tree = json.loads(json.dumps(tree))
    places = list(places_in(tree))
    holder, key = rng.choice(places)
    what, old = rng.randrange(4), holder[key]
    if what == 0:
        del holder[key]
    elif what == 1 and isinstance(holder, list):
        holder.insert(key, old)
    elif what == 2 and isinstance(old, str) and old:
        at = rng.randrange(len(old))
        holder[key] = old[:at] + rng.choice("0129-%*;,x() ") + old[at + rng.randrange(2) :]
    elif what == 3 and type(old) is int:
        holder[key] = old + rng.choice((-1, 1, 1000, -1000))
    else:
        holder[key] = rng.choice(VALUES)
    return tree


def places_in(tree: Any) -> Iterator[tuple[Any, Any]]:
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(pairs):
        yield tree, key
        if isinstance(value, dict | list):
            yield from places_in(value)


def test_changed_metadata_gives_errors_of_vkchi(tmp_path: Path) -> None:
    """Its sums are right. Fields are read and calls are signed; nothing runs, for shaders are
    code."""
    m, x = ti.aot.Module(), ti.field(ti.f32, 12)
    m.add_kernel(push)
    m.add_kernel(turn)
    m.add_kernel(add_into, template_args={"x": x, "k": 2})
    m.add_field("x", x)
    m.save(tmp_path)
    files = read_files(tmp_path)
    tree, rng = json.loads(files[METADATA]), random.Random(11)
    one, many = ndarray(np.ones(2, np.float32)), ti.Vector.ndarray(2, ti.f32, 2)
    given = {"push": (1.0, one, many), "turn": (np.eye(2), 2, many)}
    refused = 0
    for _ in range(MUTATIONS):
        text = json.dumps(mutated(tree, rng)).encode()
        write_folder(tmp_path, {**files, METADATA: text})
        try:
            module = ti.load(tmp_path)
            for field in module.fields.values():
                field.to_numpy()
            for name, kernel in module.kernels.items():
                kernel.inspect(lambda plan, args: None, *given.get(name, ()))
        except VkchiError as e:
            assert str(e)
            refused += 1
    assert refused > MUTATIONS // 4


MUTATIONS = int(os.environ.get("VKCHI_TEST_MUTATIONS", "200"))
STRIDES = [
    ("1%0*3", "1%0*-1000000"), ("1%0*3", "1%0*1000000"), ("1%0*3", "0%0*3"), ("[4,3", "[400,3"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), STRIDES)
def test_a_field_that_leads_out_of_its_memory(tmp_path: Path, old: str, new: str) -> None:
    m, x = ti.aot.Module(), ti.field(ti.f32, (4, 3))
    m.add_field("x", x)
    m.save(tmp_path)
    files = read_files(tmp_path)
    tree = json.loads(files[METADATA])
    text = tree["fields"]["x"]["type"]
    tree["fields"]["x"]["type"] = text.replace(old, new)
    assert tree["fields"]["x"]["type"] != text, text
    write_folder(tmp_path, {**files, METADATA: json.dumps(tree).encode()})
    with pytest.raises(ModuleError, match="is no module that vkchi writes"):
        ti.load(tmp_path)


@pytest.mark.parametrize("cut", [0, 3, 4, 20, -1, -4])
def test_a_shader_that_is_cut(tmp_path: Path, cut: int) -> None:
    m = ti.aot.Module()
    m.add_kernel(push)
    m.save(tmp_path)
    files = read_files(tmp_path)
    name = next(name for name in files if name.endswith(".spv"))
    write_folder(tmp_path, {**files, name: files[name][:cut]})
    try:
        ti.load(tmp_path)
    except VkchiError as e:
        assert isinstance(e, ModuleError | DeviceError)


def test_wrong_arguments(tmp_path: Path) -> None:
    m = saved(tmp_path, lambda m: m.add_kernel(push))
    x, v = ndarray([1, 2]), ti.Vector.ndarray(2, ti.f32, 2)
    with pytest.raises(ti.TaichiSyntaxError, match=r"push\(dt, x, v\): missing"):
        m.push(1, x)
    with pytest.raises(
        ArgumentError, match=r"push\(\): argument `x`: an array of f32 is needed"
    ) as e:
        m.push(1, ti.ndarray(ti.i32, 2), v)
    assert "help: convert it" in str(e.value) and "annotate" not in str(e.value)
    with pytest.raises(ArgumentError, match=r"pass a ti.ndarray or .to_numpy\(\) of it"):
        m.push(1, ti.field(ti.f32, 2), v)
    with pytest.raises(ArgumentError, match="1 axis is needed, it has 2"):
        m.push(1, ti.ndarray(ti.f32, (2, 2)), v)
    with pytest.raises(ArgumentError, match="an f32 number is needed"):
        m.push("1", x, v)
    with pytest.raises(AttributeError, match="has no kernel 'pull': there are push"):
        m.pull()


def test_gradients_raise(tmp_path: Path) -> None:
    m = saved(tmp_path, lambda m: m.add_kernel(draw))
    x, loss = ti.ndarray(ti.f32, 2), ti.field(ti.f32, (), needs_grad=True)
    with pytest.raises(GradientError, match="of which there is no gradient"), ti.ad.Tape(loss):
        m.draw(x)
    with pytest.raises(GradientError, match="of which there is no gradient"):
        m.draw.grad(x)


def test_a_module_ends_with_its_runtime(tmp_path: Path, own_runtime: None) -> None:
    m = saved(tmp_path, lambda m: m.add_kernel(two))
    assert m.two() == 2
    ti.init()
    with pytest.raises(ti.TaichiRuntimeError, match="was loaded before ti.init: load it again"):
        m.two()


def test_unsupported_module_entries_raise() -> None:
    m = ti.aot.Module()
    with pytest.raises(ArgumentError, match="takes a ti.kernel"):
        m.add_kernel(len)
    with pytest.raises(ArgumentError, match="`x`: its value is needed"):
        m.add_kernel(add_into)

    @ti.kernel
    def any_array(x: ti.types.ndarray()):
        pass

    with pytest.raises(ArgumentError, match="does not say of what type the array is"):
        m.add_kernel(any_array)
    m.add_kernel(any_array, {"x": ti.ndarray(ti.f32, 3)})
    with pytest.raises(ArgumentError, match="has a kernel `any_array` already"):
        m.add_kernel(any_array, {"x": ti.ndarray(ti.f32, 3)})
    with pytest.raises(ArgumentError, match=r"has no parameter y: there are x"):
        m.add_kernel(any_array, {"y": 1}, "other")
    with pytest.raises(ArgumentError, match="takes a field"):
        m.add_field("x", 1)
    unknown = object()
    with pytest.raises(ArgumentError, match="takes a field"):
        m.add_field("unknown", unknown)
    with pytest.raises(ArgumentError, match="numbers and fields of the module"):
        m.word_for(unknown)
    with pytest.raises(ArgumentError, match="without spaces"):
        m.add_field("a b", ti.field(ti.f32, ()))
    structs = ti.Struct.field({"a": ti.f32}, shape=4)
    for first, second in product((structs, ti.field(ti.f32, 4)), repeat=2):
        name = f"{type(first).__name__}{type(second).__name__}"
        m.add_field(name, first)
        with pytest.raises(ArgumentError, match="the module has a field `"):
            m.add_field(name, second)
    with pytest.raises(ArgumentError, match="ends in .tcm|named|in .tcm"):
        m.archive("module.zip")
    with pytest.raises(ArgumentError, match="no capability is called 'spirv_has_int46'"):
        ti.aot.Module(caps=["spirv_has_int46"])


# --- devices -------------------------------------------------------------------------------------


def test_capabilities_that_are_missing(tmp_path: Path, need: Callable[..., None]) -> None:
    need("f64")

    @ti.kernel
    def wide(x: ti.types.ndarray(ti.f64, 1)):
        for i in x:
            x[i] *= 2

    m = ti.aot.Module(caps=[ti.DeviceCapability.spirv_has_float64])
    m.add_kernel(wide)
    m.save(tmp_path)
    saved = read_saved(read_files(tmp_path))
    shader = saved.kernels["wide"].artifact.dispatches[0].shader
    assert missing_features(shader, saved.caps, SMALLEST) == ["float64"]
    with pytest.raises(DeviceError, match="f64 is not available|lacks"):
        ti.aot.Module(caps=["spirv_has_int8"]).add_kernel(wide)


def test_more_workgroups_than_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device with small workgroup counts runs modules made on it, and rejects shaders in which
    one dispatch has all iterations."""
    few, many = tmp_path / "few", tmp_path / "many"

    @ti.kernel
    def columns(w: ti.types.ndarray(ti.f32, 2)):
        for i, j in ti.ndrange(300, 257):
            w[i, j] += i + j

    device = current_runtime().device
    like = like_gpu(device.caps)
    usual = like._replace(workgroup_count=SMALLEST.workgroup_count)
    for path, caps in ((few, like), (many, usual)):
        monkeypatch.setattr(device, "caps", caps)
        m = ti.aot.Module()
        m.add_kernel(columns)
        m.save(path)
    monkeypatch.setattr(device, "caps", like)
    x = ti.ndarray(ti.f32, (300, 257))
    ti.load(few).columns(x)
    want = np.add.outer(np.arange(300), np.arange(257))
    np.testing.assert_array_equal(x.to_numpy(), want)
    with pytest.raises(DeviceError, match="lacks 65535 by 65535 by 65535 workgroups"):
        ti.load(many)
    monkeypatch.setattr(device, "caps", usual)
    for path in (few, many):
        x.fill(0)
        ti.load(path).columns(x)
        np.testing.assert_array_equal(x.to_numpy(), want)


def test_the_form_is_numbered() -> None:
    """A change of the records raises FORMAT (and writes the new digest here)."""
    fields = {
        cls.__name__: cls.__annotations__
        for cls in sorted((*CLASSES, Caps), key=lambda cls: cls.__name__)
    }
    found = hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:8]
    assert (FORMAT, found) == (16, "ac719681")
    header = Path(ti.__file__).parent / "aot" / "c" / "vkchi.h"
    assert f"#define VKCHI_FORMAT {FORMAT}\n" in header.read_text()  # of the C loader
