"""What kernels read in Python by ways that are not plain: cached kernels are right, or made anew.

Each case is a program with a value that is `1` when the cache is filled and `2` afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HEAD = """
import dataclasses, enum, functools, os, random, time
import numpy as np
import vkchi as ti
x = ti.field(ti.i32, 4)
y = ti.field(ti.i32, 4)
z = ti.field(ti.i32, (2, 4))
V = VALUE
"""
TAIL = """
run()
result = [x.to_numpy().tolist(), y.to_numpy().tolist(), z.to_numpy().tolist()]
"""

KERNEL = """
@ti.kernel
def run():
    for i in x:
        x[i] = {}
"""
CASES = {
    "property": "class P:\n @property\n def k(self): return V\np = P()" + KERNEL.format("p.k"),
    "__getattr__": "class P:\n def __getattr__(self, n): return V\np = P()" + KERNEL.format("p.k"),
    "__getitem__": "class P:\n def __getitem__(self, n): return V + n\np = P()"
    + KERNEL.format("p[3]"),
    "__call__": "class P:\n def __call__(self, n): return V + n\np = P()"
    + KERNEL.format("ti.static(p(3))"),
    "__add__": "class P:\n def __add__(self, n): return V + n\np = P()"
    + KERNEL.format("ti.static(p + 3)"),
    "helper": "def pick(): return V" + KERNEL.format("ti.static(pick())"),
    "helper's dict": "C = {'n': V, 'm': [1, {'k': V}]}\ndef pick(): return C['m'][1]['k']"
    + KERNEL.format("ti.static(pick())"),
    "dict": "C = {'n': V}" + KERNEL.format("C['n']"),
    "enum": "class E(enum.Enum):\n A = V" + KERNEL.format("ti.static(E.A.value)"),
    "int enum": "class E(enum.IntEnum):\n A = V" + KERNEL.format("E.A"),
    "default": "@ti.func\ndef h(a, s=V): return a + s" + KERNEL.format("h(i)"),
    "wrapped": "def d(f):\n @functools.wraps(f)\n def g(): return f() + V\n return g\n"
    "@d\ndef pick(): return 3" + KERNEL.format("ti.static(pick())"),
    "partial": "def add(a, b): return a + b\npick = functools.partial(add, V)"
    + KERNEL.format("ti.static(pick(3))"),
    "lambda": "pick = lambda: V" + KERNEL.format("ti.static(pick())"),
    "lambda's text": "pick = lambda: VALUE" + KERNEL.format("ti.static(pick())"),
    "inherited": "class A:\n k = V\nclass B(A): pass\nb = B()" + KERNEL.format("b.k"),
    "dataclass": "@dataclasses.dataclass\nclass D:\n k: int\nd = D(V)" + KERNEL.format("d.k"),
    "slots": "class D:\n __slots__ = ('k',)\nd = D()\nd.k = V" + KERNEL.format("d.k"),
    "numpy": "a = np.array([[0, V]])" + KERNEL.format("ti.static(int(a[0, 1]))"),
    "numpy scalar": "a = np.int32(V)" + KERNEL.format("a"),
    "vector": "a = ti.Vector([0, V])" + KERNEL.format("a[1]"),
    "matrix": "a = ti.Matrix([[0, V], [1, 1]])" + KERNEL.format("a[0, 1] + a[1, 0]"),
    "string": "s = 'a' * V" + KERNEL.format("ti.static(len(s))"),
    "class": "class S:\n k = V" + KERNEL.format("S.k"),
    "getattr": "class S: pass\ns = S()\ns.key = V"
    + KERNEL.format("ti.static(getattr(s, 'k' + 'ey'))"),
    "vars": "class S: pass\ns = S()\ns.key = V" + KERNEL.format("ti.static(vars(s)['k' + 'ey'])"),
    "environment": "os.environ['K'] = str(V)\ndef pick(): return int(os.environ['K'])"
    + KERNEL.format("ti.static(pick())"),
    "import": "import sys\nsys.k = V\ndef pick():\n import sys as m\n return m.k"
    + KERNEL.format("ti.static(pick())"),
    "file": "open('v.txt', 'w').write(str(V))\ndef pick(): return int(open('v.txt').read())"
    + KERNEL.format("ti.static(pick())"),
    "bound method": "class S:\n def __init__(self): self.k = V\n def pick(self): return self.k\n"
    "pick = S().pick" + KERNEL.format("ti.static(pick())"),
    "static method": "class S:\n @staticmethod\n def pick(): return V"
    + KERNEL.format("ti.static(S.pick())"),
    "class method": "class S:\n k = V\n @classmethod\n def pick(cls): return cls.k"
    + KERNEL.format("ti.static(S.pick())"),
    "cached property": "class S:\n @functools.cached_property\n def k(self): return V\ns = S()"
    + KERNEL.format("s.k"),
    "generator": "def several():\n yield from range(V)"
    + KERNEL.format("ti.static(sum(several()))"),
    "struct method": "@ti.dataclass\nclass S:\n a: ti.i32\n @ti.func\n def get(self):\n"
    "  return self.a + V" + KERNEL.format("S(3).get()"),
    "other function": "@ti.func\ndef f(a): return a + 1\n@ti.func\ndef g(a): return a + 2\n"
    "h = [f, g][V - 1]" + KERNEL.format("h(i)"),
    "other field": "f = [x, y][V - 1]\n@ti.kernel\ndef run():\n for i in f: f[i] = i + 1",
    "fields in turn": "a, b = (x, y) if V == 1 else (y, x)\n@ti.kernel\ndef run():\n"
    " for i in a:\n  a[i] = i + 1\n  b[i] = 7",
    "one field twice": "a, b = (x, y) if V == 1 else (x, x)\n@ti.kernel\ndef run():\n"
    " for i in a: a[i] = i + 1\n for i in b: b[i] += 1",
    "fields in a list": "fs = [x, y][:: 1 if V == 1 else -1]\n@ti.kernel\ndef run():\n"
    " for k in ti.static(range(2)):\n  for i in fs[k]: fs[k][i] = i + k",
    "fields in an object": "class S: pass\ns = S()\ns.a, s.b = (x, y)[::3 - 2 * V]\n"
    "@ti.kernel\ndef run():\n for i in s.b:\n  s.b[i] = i + 1\n  s.a[i] = 9",
    "field's shape": "f = [x, z][V - 1]\n@ti.kernel\ndef run():\n for I in ti.grouped(f): f[I] = 5",
    "loop config": KERNEL.format("ti.static(V) + i"),
    "annotation": "T = [ti.i32, ti.f32][V - 1]\n@ti.kernel\ndef run():\n for i in x:\n"
    "  v: T = 2.5\n  x[i] = v * 2",
    "return type": "T = [ti.i32, ti.f32][V - 1]\n@ti.func\ndef f() -> T: return 2.5"
    + KERNEL.format("f() * 2"),
    "type in a call": "T = [ti.i32, ti.f32][V - 1]\nu = 2.5"
    + KERNEL.format("ti.cast(i * 0.5, T) * 2"),
    "nested": "def outer(k):\n def inner():\n  @ti.func\n  def f(a): return a + k\n  return f\n"
    " return inner()\nf = outer(V)" + KERNEL.format("f(i)"),
    "two closures": "def make(k):\n @ti.func\n def f(a): return a + k\n return f\n"
    "f, g = make(5), make(V)" + KERNEL.format("f(i) * g(i)"),
    "two of one name": "@ti.func\ndef f(a): return a + 5\ng = f\n"
    "if V == 1:\n @ti.func\n def f(a): return a + 1\nelse:\n @ti.func\n def f(a): return a + 2"
    + KERNEL.format("f(i) * g(i)"),
    "two objects": "class S: pass\ns, t = S(), S()\ns.k, t.k = 3, V" + KERNEL.format("s.k * t.k"),
    "two scopes": "a, b = ({'V': k, 'ti': ti, '__name__': 'same'} for k in (5, V))\n"
    "text = 'def pick(): return V'\nexec(text, a)\nexec(text, b)\np, q = a['pick'], b['pick']"
    + KERNEL.format("ti.static(p() * q())"),
    "template list": "@ti.kernel\ndef go(k: ti.template()):\n for i in x: x[i] = k[1]\n"
    "def run(): go([0, V])",
    "template object": "class S: pass\ns = S()\ns.k = V\n@ti.kernel\ndef go(s: ti.template()):\n"
    " for i in x: x[i] = s.k\ndef run(): go(s)",
    "template field": "@ti.kernel\ndef go(f: ti.template()):\n for i in f: f[i] = 3\n"
    "def run(): go([x, y][V - 1])",
    "global of a loop variable's name": "i = V\nj = V" + KERNEL.format("i + j"),
    "clock": KERNEL.format("ti.static(int(time.time() * 0)) + V"),
    "random": KERNEL.format("ti.static(int(random.random() * 0)) + V"),
}

DRIVER = """
import json, os, runpy, sys, warnings
warnings.simplefilter("ignore")
import vkchi as ti
programs = json.load(sys.stdin)
results = [[] for _ in programs]

def run(k, value):
    with open("program.py", "w") as file:
        file.write(programs[k].replace("VALUE", str(value)))
    try:
        results[k].append(runpy.run_path("program.py", run_name="__main__")["result"])
    except Exception as e:
        results[k].append(f"{type(e).__name__}: {e}")

for cached, values in ((1, (1, 2)), (0, (2,))):
    os.environ["VKCHI_CACHE"] = str(cached)
    ti.init(arch=ti.vulkan, log_level="error")
    for k in range(len(programs)):
        for value in values:
            run(k, value)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(
    tmp_path_factory: pytest.TempPathFactory, cache_environment: Callable[[Path], dict[str, str]]
) -> dict[str, list[object]]:
    """Of each case: with 1, which fills the cache, with 2, and with 2 without a cache."""
    folder = tmp_path_factory.mktemp("surroundings")
    programs = [HEAD + body + TAIL for body in CASES.values()]
    done = subprocess.run(
        [sys.executable, "-B", "-c", DRIVER], input=json.dumps(programs), text=True, cwd=folder,
        env=cache_environment(folder / "cache"), capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout)))


@pytest.mark.parametrize("case", CASES)
def test_is_right(case: str, results: dict[str, list[object]]) -> None:
    first, second, right = results[case]
    assert second == right
    assert first != second and "Error" not in f"{first}{second}"
