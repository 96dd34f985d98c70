"""Results of a user's type checker on the public names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import vkchi as ti
from vkchi import public_names

api = pytest.importorskip("mypy.api")

ROOT = Path(__file__).parents[2]
SEES = """\
import vkchi as ti

ti.init(arch=ti.vulkan, default_fp=ti.f32)
reveal_type(ti.field(ti.f32, shape=(2, 3)))
reveal_type(ti.field(float, 4))
reveal_type(ti.Vector.field(2, ti.f32, shape=3))
reveal_type(ti.ndarray(ti.i32, shape=4))
reveal_type(ti.Vector([1.0, 2.0]).dot([1, 2]))
reveal_type(ti.field(ti.f32, 4).to_numpy())
ti.field("f32", 4)
ti.field(ti.f32, shape="many")
reveal_type(2.0 * ti.Vector([1.0, 2.0]) - 1)
reveal_type(ti.field(ti.math.vec3, 4))
reveal_type(ti.hex_to_rgb(0xFF8800))
reveal_type(ti.linalg.SparseSolver().solve(ti.ndarray(ti.f32, 4)))


@ti.kernel
def scale(x: ti.template, factor: ti.f32, *, times: ti.i32 = 1) -> ti.f32:
    return factor


@ti.data_oriented
class Sim:
    @ti.kernel
    def step(self, dt: ti.f32) -> ti.i32:
        return 1


reveal_type(scale(ti.field(int, 4), 2.0))
scale(ti.field(int, 4), "2")
scale(ti.field(int, 4), 2.0, often=3)
scale.grad(ti.field(int, 4))
reveal_type(Sim().step(0.1))
Sim().step()
Sim().step.grad("a")
"""
SEEN = [
    (4, "vkchi.fields.field.ScalarField"),
    (5, "vkchi.fields.field.ScalarField"),
    (6, "vkchi.fields.field.MatrixField"),
    (7, "vkchi.ndarray.ScalarNdarray"),
    (8, "float"),
    (9, "numpy.ndarray"),
    (10, "No overload"),
    (11, "incompatible type"),
    (12, "vkchi.lang.matrix.Vector"),
    (13, "vkchi.fields.field.MatrixField"),
    (14, "tuple[float, float, float]"),
    (15, "vkchi.ndarray.Ndarray"),
    (30, "float"),
    (31, "incompatible type"),
    (32, "Unexpected keyword argument"),
    (33, "Missing positional argument"),
    (34, "int"),
    (35, "Missing positional argument"),
    (36, "incompatible type"),
]
WRONG = """\
ti.field(ti.f32, 3, needs_gradd=True)
ti.Vector.field(2, ti.f32, shape="x")
ti.Matrix.field(2, ti.f32, 3)
ti.Vector([1.0, 2.0]) + "a"
ti.field(ti.f32, 3)["a"]
ti.field(ti.f32, 3).fill("x")
ti.root.dense("i", 4)
ti.sqrt()
ti.sqrt(1, 2)
ti.sqrt("x")
ti.max()
ti.cast(1.0)
ti.select(1, 2)
ti.random(3.0)
ti.atomic_add(1)
ti.svd("x")
ti.loop_config(block_dimm=3)
ti.math.clamp(1.0)
ti.math.vec3("a")
text: str = ti.sqrt(2.0)
ti.Matrix.identity("a", "b")
ti.GUI("x").circle("a")
ti.data_oriented(3)
"""
# Errors for any call or variable in an annotation, and for functions without types: no
# library can tell them otherwise.
PROGRAM = """\
# mypy: disable-error-code="valid-type, no-untyped-def"
import numpy as np

import vkchi as ti
import vkchi.math as tm

ti.init(arch=ti.vulkan, default_fp=ti.f32, random_seed=3)
n = 16
x = ti.field(ti.f32, shape=(n, n), needs_grad=True)
loss = ti.field(dtype=ti.f32, shape=(), needs_grad=True)
v = ti.Vector.field(2, dtype=ti.f32, shape=n)
w = ti.Vector.field(2, float, (n, n), layout=ti.Layout.SOA, needs_grad=True)
m = ti.Matrix.field(2, 2, ti.f32, shape=n)
a = ti.ndarray(ti.f32, shape=(4, 4))
vec2 = ti.types.vector(2, ti.f32)
Particle = ti.types.struct(pos=vec2, mass=ti.f32)
particles = Particle.field(shape=(8,))
y = ti.field(ti.i32)
ti.root.dense(ti.i, 8).place(y)


@ti.func
def square(z):
    return z * z


@ti.kernel
def fill(c: ti.f32, arr: ti.types.ndarray(dtype=ti.f32, ndim=2)) -> ti.f32:
    s = 0.0
    for i, j in x:
        x[i, j] += c * ti.sin(ti.cast(i, ti.f32))
        ti.atomic_add(loss[None], square(x[i, j]))
    for i in range(10):
        v[i % n] = ti.Vector([1.0, 2.0]) * c
        v[i % n].x = ti.max(1.0, ti.random())
    for k in ti.static(range(3)):
        s += k
    for I in ti.grouped(x):
        s += x[I]
    for i, j in ti.ndrange(4, (1, 3)):
        arr[i, j] = ti.select(i > j, 1.0, 2.0)
    return s


@ti.kernel
def total(t: ti.template, u: tm.vec3) -> ti.f32:
    w = u.normalized() + tm.vec3(1, 2, 3)
    return w.x


@ti.kernel
def sample(picture: ti.types.texture(2), out: ti.types.rw_texture(2, 0, ti.Format.r32f)) -> ti.f32:
    texel = picture.fetch(tm.ivec2(0, 0), 0)
    out.store(tm.ivec2(0, 0), texel)
    return ti.sqrt(2.0)


@ti.dataclass
class Sphere:
    center: tm.vec3
    radius: ti.f32

    @ti.func
    def size(self) -> ti.f32:
        return ti.abs(self.radius) * ti.max(self.radius, 0.0) * ti.random()


@ti.data_oriented
class Sim:
    def __init__(self, n: int) -> None:
        self.n = n
        self.f = ti.field(ti.f32, n)

    @staticmethod
    @ti.func
    def double(a: ti.f32) -> ti.f32:
        return 2 * a

    @ti.func
    def half(self, a: ti.f32) -> ti.f32:
        return ti.floor(a / 2)

    @ti.kernel
    def step(self, dt: ti.f32):
        for i in self.f:
            self.f[i] += self.double(dt) + self.half(dt)


x[0, 0] += 1.5
x[0, 0] = x[0, 1] + 2
loss[None] = 0
v[3] = [1.0, 2.0]
print(v[3].x + 1, v[3][0], v[3].norm())
x.from_numpy(np.zeros((n, n), np.float32))
s: float = fill(2.0, a)
sim = Sim(4)
sim.step(0.1)
with ti.ad.Tape(loss):
    fill(2.0, a)
fill.grad(2.0, a)
print(x.grad[0, 0] + 1, x.grad.to_numpy(), x.shape, a.to_numpy().sum())
particle = Particle(pos=vec2(1, 2), mass=2.0)
print(particle.mass, particle.pos.norm(), particles[0].mass)
particles[0] = particle
s = total(y, tm.vec3(1, 2, 3))
print(ti.Vector([1.0, 2.0]) @ ti.Vector([3.0, 4.0]))
print(Sphere(center=tm.vec3(1), radius=2.0).radius)
rows = ti.Matrix([[1, 2], [3, 4]])
print(rows[0, :], ti.svd(rows)[1].norm(), tm.mix(0.0, 1.0, 0.5), ti.cast(1.5, ti.i32) + 1)
ti.aot.Module(ti.vulkan)
print(fill.__name__, ti.Matrix.identity(ti.f32, 3).trace(), ti.Vector.zero(float, 3).x)
gui = ti.GUI("x", res=(320, 320))
gui.set_image(x)
gui.circles(x.to_numpy(), radius=2, color=0xFFFFFF)
builder = ti.linalg.SparseMatrixBuilder(4, 4, max_num_triplets=10)
solver = ti.linalg.SparseSolver(solver_type="LLT")
solver.analyze_pattern(builder.build())
ti.sync()
"""
MODULES = ("math", "linalg", "ad", "algorithms", "tools", "simt", "ui", "aot", "graph")
TYPES = """
    argpack matrix ndarray ref rw_texture sparse_matrix_builder struct template texture vector
    f16 f32 f64 i8 i16 i32 i64 u1 u8 u16 u32 u64
"""


def check(program: Path) -> list[str]:
    """Messages of mypy about a program, with the project's options: those of `make check`, which
    fills the same cache. Other options would check all of vkchi anew."""
    options = [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={ROOT / '.mypy_cache'}"]
    said, _, _ = api.run([*options, str(program)])
    return [line for line in said.splitlines() if f"{program.name}:" in line]


@pytest.fixture(autouse=True)
def finds_vkchi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYPYPATH", str(ROOT))


def test_results_have_types_and_wrong_arguments_are_found(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SEES, encoding="utf-8")
    lines = check(program)
    for number, text in SEEN:
        assert any(f"program.py:{number}:" in line and text in line for line in lines), lines


def test_wrong_calls_are_found(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import vkchi as ti\n{WRONG}", encoding="utf-8")
    lines = check(program)
    for number, text in enumerate(WRONG.splitlines(), 2):
        assert any(f"program.py:{number}: error" in line for line in lines), text


def test_valid_program_type_checks(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    assert check(program) == []


def test_checkers_see_every_public_name(tmp_path: Path) -> None:
    names = [f"ti.{name}" for name in ti.__all__]
    names += [f"ti.types.{name}" for name in TYPES.split()]
    for module in MODULES:
        found = getattr(ti, module)
        names += [f"ti.{module}.{name}" for name in getattr(found, "__all__", ())]
    program = tmp_path / "program.py"
    program.write_text(
        "import vkchi as ti\n" + "".join(f"print({name})\n" for name in names), encoding="utf-8"
    )
    assert check(program) == []


def test_overloads_of_vectors_are_first() -> None:
    """Pyright takes the first overload for an argument of type Any: its result must be Any too."""
    tree = ast.parse((ROOT / "vkchi" / "protocols.pyi").read_text(encoding="utf-8"))
    seen = []
    for cls in (n for n in tree.body if isinstance(n, ast.ClassDef)):
        calls = [n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__call__"]
        results = [ast.unparse(n.returns) for n in calls if n.returns is not None]
        if "M" in results:
            seen.append(cls.name)
            assert results == sorted(results, key=lambda one: one != "M"), cls.name
    assert {"Unary", "Cast", "Folding"} <= set(seen)


UNTYPED = {"ti.template", "ti.Template"}  # annotations of any type


def test_every_public_name_has_a_type(tmp_path: Path) -> None:
    """Those of `vkchi`, and those in `__all__` of its public modules."""
    names = [f"ti.{name}" for name in public_names.read_names()]
    for module in MODULES:
        inner = getattr(getattr(ti, module), "__all__", ())
        names += [f"ti.{module}.{name}" for name in inner]
    assert len(names) > 300 and UNTYPED <= set(names)
    program = tmp_path / "program.py"
    program.write_text(
        "import vkchi as ti\n" + "".join(f"reveal_type({n})\n" for n in names), encoding="utf-8"
    )
    lines = check(program)
    assert [line for line in lines if ": error:" in line] == []
    typed = [re.search(r':(\d+): note: Revealed type is "(.*)"', line) for line in lines]
    found = {names[int(m[1]) - 2]: m[2] for m in typed if m is not None}
    assert set(names) - set(found) == set()
    assert {name for name, kind in found.items() if kind in ("Any", "typing.Any")} == UNTYPED
