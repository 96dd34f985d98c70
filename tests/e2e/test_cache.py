"""Compiled kernels last: another process finds them, and broken entries are made anew."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import vkchi as ti
from vkchi import platform
from vkchi.cache import store
from vkchi.cache.store import CacheStore, Limits
from vkchi.errors import CacheWarning
from vkchi.runtime import current_runtime

# Kernels, a gradient that saves, one that counts, a trial for races, copies, validation, reports,
# random numbers, returned values: prints one line of results.
PROGRAM = """
import sys, warnings
import numpy as np
import vkchi as ti
if "strict" in sys.argv:
    import vkchi.compiler
    def refuse(fn, *rest):
        raise SystemExit(f"{getattr(fn, 'name', fn)} was compiled anew")
    import vkchi.kernel
    vkchi.compiler._build = sys.modules["vkchi.kernel"].compile_anew = refuse
ti.init(arch=ti.vulkan, random_seed=3, log_level="error")
n = 64
x = ti.field(ti.f32, n, needs_grad=True)
y = ti.field(ti.f32, n, needs_grad=True, needs_dual=True)
loss = ti.field(ti.f32, (), needs_grad=True, needs_dual=True)
at = ti.field(ti.i32, n)

@ti.kernel
def fill(a: ti.f32, out: ti.types.ndarray()) -> ti.f32:
    s = 0.0
    for i in x:
        x[i] = a * i / n
        at[i] = (i * 7) % n
        out[i] = ti.cast(i, ti.f32) * a
    for i in range(n):
        s += out[i]
    return s

@ti.kernel
def chain(steps: ti.i32):
    for i in x:
        v = x[i]
        k = 0
        while k < at[i] % 4 + steps:
            v = ti.sin(v) + v * v * 0.1
            k += 1
        y[i] += v

@ti.kernel
def scatter():
    for i in x:
        y[at[i]] = x[i] * x[i]

@ti.kernel
def total():
    for i in y:
        loss[None] += y[i]

@ti.kernel
def draw() -> ti.f32:
    s = 0.0
    for i in range(n):
        s += ti.random()
    return s

@ti.kernel
def tell(k: ti.i32):
    for i in range(k):
        if i == 1:
            print("iteration", i, x[i])

out = np.zeros(n, np.float32)
results = [fill(0.5, out), float(out.sum()), draw()]
for validation in (False, True):
    y.fill(0)
    with ti.ad.Tape(loss, validation=validation):
        chain(2)
        total()
    results += [loss[None], float(x.grad.to_numpy().sum())]
with ti.ad.Tape(loss):
    scatter()
    total()
results.append(float(x.grad.to_numpy().sum()))
with ti.ad.FwdMode(loss=loss, param=y, seed=[1.0] * n):
    total()
results.append(loss.dual[None])
tell(2)
ti.sync()
print(results)
if "strict" in sys.argv:  # nor is what compiles read
    slow = {"vkchi.frontend.lowering", "vkchi.spirv.dispatch", "vkchi.opt.mapping.map_grid"}
    slow &= set(sys.modules)
    assert not slow, slow
"""


# Kernels of many kinds, by result, argument and effect. `a` and `v` are names of attributes too.
KINDS = """
import sys
import numpy as np
import vkchi as ti
if "strict" in sys.argv:
    import vkchi.kernel
    def refuse(fn, *rest):
        raise SystemExit(f"{fn.__name__} was lowered anew")
    sys.modules["vkchi.kernel"].compile_anew = refuse
ti.init(arch=ti.vulkan, log_level="error", random_seed=1)
S = ti.types.struct(a=ti.f32, v=ti.math.vec3)

@ti.dataclass
class Part:
    m: ti.f32
    inner: S

    @ti.func
    def twice(self):
        return 2 * self.m

x, s = ti.field(ti.f32, 16), S.field(shape=4)
picture = ti.Texture(ti.Format.r32f, (8, 8))
a, v = ti.ndarray(ti.f32, 5), ti.ndarray(ti.f32, 3)

@ti.kernel
def struct() -> S:
    return S(a=1.0, v=ti.math.vec3(1, 2, 3))

@ti.kernel
def with_method() -> Part:
    return Part(m=3.0, inner=S(a=1.0, v=ti.math.vec3(1, 2, 3)))

@ti.kernel
def several() -> (ti.i32, ti.math.vec2):
    return 1, ti.math.vec2(2, 3)

@ti.kernel
def takes(p: S, m: ti.types.matrix(2, 2, ti.f32), b: ti.types.ndarray()):
    for i in b:
        b[i] = p.a + p.v[1] * m[0, 1] * i

@ti.kernel
def texels(t: ti.types.rw_texture(num_dimensions=2, fmt=ti.Format.r32f)):
    for i, j in ti.ndrange(8, 8):
        t.store(ti.Vector([i, j]), ti.Vector([i + 10.0 * j, 0, 0, 0]))

@ti.kernel
def drawn():
    for i in x:
        x[i] = ti.random()

@ti.kernel
def says(k: ti.i32):
    assert k < 5, "large"
    print(f"{x[k]:.3f}", s[1].a)

@ti.real_func
def real(b: ti.f32) -> ti.f32:
    if b > 0.5:
        return 1.0
    return b

@ti.kernel
def calls():
    for i in x:
        x[i] = real(x[i])

@ti.kernel
def shares():
    ti.loop_config(block_dim=16)
    for i in range(16):
        t = ti.simt.block.SharedArray(16, ti.f32)
        t[i % 16] = x[i]
        ti.simt.block.sync()
        x[i] = t[15 - i % 16]

@ti.kernel
def decomposes():
    for i in range(4):
        A = ti.Matrix([[2.0, 1.0], [1.0, 3.0]])
        U, E, W = ti.svd(A)
        s[i].a = E[0, 0] + (A.inverse() @ A).trace()

r, w = struct(), with_method()
print(r.a, r.v, w.m, w.inner.v, several())
takes(S(a=1, v=[1, 2, 3]), ti.Matrix([[1.0, 2], [3, 4]]), a)
texels(picture)
drawn()
decomposes()
says(1)
calls()
shares()
ti.algorithms.PrefixSumExecutor(16).run(ti.field(ti.i32, 16))
print(a.to_numpy().tolist(), x.to_numpy().tolist(), s.a.to_numpy().tolist())
"""


def test_kernels_of_all_kinds_are_found(run, tmp_path):
    """A second process lowers none of them, and gives the same."""
    path, cache = tmp_path / "kinds.py", tmp_path / "cache"
    path.write_text(KINDS)
    first = run(path, cache)[0]
    assert run(path, cache, "strict")[0] == first and "[1. 2. 3.]" in first


COMMENTED = """
import sys
import vkchi as ti
if "strict" in sys.argv:
    import vkchi.kernel
    def refuse(fn, *rest):
        raise SystemExit(f"{fn.__name__} was lowered anew")
    sys.modules["vkchi.kernel"].compile_anew = refuse
ti.init(arch=ti.vulkan, debug=True, log_level="error")

@ti.func
def checked(v):
    # before
    assert v < 3, "it's # large"  # behind
    return v

@ti.kernel
def fill(n: ti.i32):
    for i in range(n):
        # above
        checked(i)

fill(2)
try:
    fill(5)
except AssertionError as e:
    print(e)
"""


def test_comments_move_lines_and_nothing_else(run, tmp_path):
    """A kernel whose comments changed is found, and its messages name lines as they are now."""
    path, cache = tmp_path / "commented.py", tmp_path / "cache"

    def said(text, *words):
        path.write_text(text)
        return run(path, cache, *words)[0]

    def line_of(text):
        return next(k for k, line in enumerate(text.splitlines(), 1) if "assert v" in line)

    assert f"commented.py:{line_of(COMMENTED)}:" in said(COMMENTED)
    for old, new in (
        ("# before", "# before, in\n    # two lines\n# or three"),
        ("    # before\n", ""),
        ("  # behind", ""),
        ("        # above\n", "\n".join(["# %"] * 9) + "\n"),
        ("n: ti.i32):", "n: ti.i32):  # eval('n')"),
    ):
        text = COMMENTED.replace(old, new)
        told = said(text, "strict")
        assert f"commented.py:{line_of(text)}:" in told and "it's # large" in told


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def run(cache_environment):
    """Run a program with a cache; return stdout and stderr."""

    def run_one(path: Path, cache: Path, *args: str) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, str(path), *args], capture_output=True, text=True, check=False,
            env=cache_environment(cache),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, done.stderr

    return run_one


def test_another_process_compiles_nothing(program, run, tmp_path):
    first, _ = run(program, tmp_path / "cache")
    store = CacheStore(str(tmp_path / "cache"))
    names = {entry.header["name"] for entry in store.entries()}
    assert len(names) > 8, names
    second, said = run(program, tmp_path / "cache", "strict")
    assert second == first and "CacheWarning" not in said
    assert "iteration 1" in second


def test_broken_entries_are_made_anew(program, run, tmp_path):
    """Every entry in another way, each time; and then all is whole again."""
    first, _ = run(program, tmp_path / "cache")
    store, rng = CacheStore(str(tmp_path / "cache")), random.Random(1)
    keys = store.keys()
    for number, key in enumerate(keys):
        path = Path(store.path_of(key))
        data = bytearray(path.read_bytes())
        if number % 3 == 0:
            data = data[: rng.randrange(len(data))]
        elif number % 3 == 1:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        else:
            data = bytearray(Path(store.path_of(keys[number - 1])).read_bytes())
        path.write_bytes(data)
    again, said = run(program, tmp_path / "cache")
    assert again == first
    assert said.count("CacheWarning") == 1
    assert run(program, tmp_path / "cache", "strict")[0] == first


def test_a_cache_that_is_no_folder(program, run, tmp_path):
    (tmp_path / "cache").write_text("")
    _, said = run(program, tmp_path / "cache")
    assert said.count("CacheWarning") == 1


MANY = """
import sys, json
import vkchi as ti
ti.init(arch=ti.vulkan, log_level="error")
x = ti.field(ti.i32, 8)
wrong = 0
for k in range(int(sys.argv[1])):
    scope = {"ti": ti, "x": x}
    @ti.kernel
    def one(a: ti.template()):
        for i in x:
            x[i] = i * a + 1
    one(k + 2)
    wrong += x.to_numpy().tolist() != [i * (k + 2) + 1 for i in range(8)]
print(wrong)
"""


def test_many_processes_on_one_folder(cache_environment, tmp_path):
    """While they write and read, files are broken, and one writer after the other is killed."""
    script = Path(__file__).parents[2] / "scripts" / "cache-torture"
    words = ("--processes", "3", "--kernels", "20", "--victims", "1", "--seed", "5")
    done = subprocess.run(
        [sys.executable, str(script), *words], capture_output=True, text=True, check=False,
        env=cache_environment(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 processes of 20 kernels: 0 went wrong" in done.stdout and "bit " in done.stdout


def test_no_cache_where_it_is_switched_off(run, tmp_path):
    path = tmp_path / "off.py"
    path.write_text(MANY.replace('log_level="error"', 'log_level="error", offline_cache=False'))
    run(path, tmp_path / "cache", "1")
    assert not (tmp_path / "cache").exists()


def test_the_folder_is_chosen(run, tmp_path):
    path = tmp_path / "chosen.py"
    path.write_text(MANY.replace('log_level="error"', f"cache_dir={str(tmp_path / 'mine')!r}"))
    run(path, tmp_path / "cache", "1")
    assert CacheStore(str(tmp_path / "mine")).keys() and not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("own_runtime")
def test_taichis_options(tmp_path, monkeypatch):
    """Options for the cache's location, size and eviction."""
    monkeypatch.setenv("VKCHI_CACHE", "1")
    ti.init(
        offline_cache=True, offline_cache_file_path=str(tmp_path / "mine"), log_level="error",
        offline_cache_cleaning_policy="fifo", offline_cache_max_size_of_files=12345,
        offline_cache_cleaning_factor=0.5,
    )  # fmt: skip
    shelf = current_runtime().options.cache
    assert (
        shelf.root == str(tmp_path / "mine") and shelf.device == current_runtime().device.info.name
    )
    assert shelf.limits == Limits("fifo", 12345, 0.5)
    monkeypatch.setenv("TI_OFFLINE_CACHE", "0")
    ti.init(log_level="error")
    assert current_runtime().options.cache is None


@pytest.mark.parametrize("call", ["open", "lstat", "read", "write", "fsync", "listdir", "fdopen"])
@pytest.mark.parametrize("fault", [AttributeError, NotImplementedError, PermissionError, TypeError])
def test_no_fault_of_the_system_stops_a_program(call, fault, own_runtime, tmp_path, monkeypatch):
    """The store fails at one function of `os`: a warning at most, and the kernel is compiled."""

    class FaultyOs:
        def __getattr__(self, name):
            return fail if name == call else getattr(os, name)

    def fail(*args, **options):
        raise fault("this system lacks it")

    monkeypatch.setenv("VKCHI_CACHE", "1")
    monkeypatch.setattr(store, "os", FaultyOs())
    if call == "open":
        monkeypatch.setattr(platform, "os", FaultyOs())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ti.init(cache_dir=str(tmp_path), log_level="error")
        x = ti.field(ti.i32, 4)

        @ti.kernel
        def fill():
            for i in x:
                x[i] = 3 * i + 1

        fill()
        assert x.to_numpy().tolist() == [1, 4, 7, 10]
    assert [w.category for w in told] in ([], [CacheWarning])
