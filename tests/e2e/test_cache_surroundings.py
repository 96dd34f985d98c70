"""Indirect reads of Python values: cached kernels are right, or compiled anew.

Each case is a program with a value that is `1` when the cache is filled and `2` afterwards.
"""

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
    "enum in a loop": "class E(enum.Enum):\n A = 1\n B = V\n"
    + KERNEL.format("ti.static(sum([m.value for m in E]))"),
    "enum unrolled": "class E(enum.Enum):\n A = 1\n B = V\n@ti.kernel\ndef run():\n for i in x:\n"
    "  for m in ti.static(E):\n   x[i] += m.value",
    "enum as a list": "class E(enum.IntEnum):\n A = 7\n B = V\n"
    + KERNEL.format("list(E)[1].value"),
    "enum's members": "E = enum.Enum('E', 'A B C'[:2 * V])\n"
    + KERNEL.format("ti.static(len(E.__members__))"),
    "enum by a name": "class E(enum.Enum):\n A = 1\n B = V\n" + KERNEL.format("E['B'].value"),
    "enum in a helper": "class E(str, enum.Enum):\n A = 'a'\n B = 'b' * V\n"
    "def pick(): return sum([len(m.value) for m in E])" + KERNEL.format("ti.static(pick())"),
    "enum of a member": "class E(enum.Enum):\n A = 1\n B = V\nclass P: pass\np = P()\np.k = E.A\n"
    + KERNEL.format("ti.static(sum([m.value for m in p.k.__class__]))"),
    "flag": "class E(enum.Flag):\n A = 1\n B = 2 * V\n"
    + KERNEL.format("ti.static(sum([m.value for m in E]))"),
    "function's name": "def f(): pass\nf.__name__ = 'f' * V\n"
    + KERNEL.format("ti.static(len(f.__name__))"),
    "function's doc": "def f(): pass\nf.__doc__ = 'f' * V\n"
    + KERNEL.format("ti.static(len(f.__doc__))"),
    "class's name": "class C: pass\nC.__name__ = 'C' * V\n"
    + KERNEL.format("ti.static(len(C.__name__))"),
    "class's name of an object": "class C: pass\nc = C()\nC.__name__ = 'C' * V\n"
    + KERNEL.format("ti.static(len(c.__class__.__name__))"),
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
    "lambda's attribute": "class S: pass\ns = S()\ns.weight = V\npick = lambda: s.weight"
    + KERNEL.format("ti.static(pick())"),
    "function's attribute": "def pick(): return pick.weight\npick.weight = V"
    + KERNEL.format("ti.static(pick())"),
    "func's attribute": "@ti.func\ndef f(a): return a\nf.weight = V"
    + KERNEL.format("ti.static(f.weight)"),
    "function of our name": "@functools.wraps(ti.math.clamp)\ndef pick(a): return a + V"
    + KERNEL.format("ti.static(pick(3))"),
    "func of our name": "def inner(a): return a + V\ninner.__module__ = 'vkchi.lang.math'\n"
    "pick = ti.func(inner)" + KERNEL.format("pick(i)"),
    "__init__": "class P:\n def __init__(self): self.weight = V\ndef pick(): return P().weight"
    + KERNEL.format("ti.static(pick())"),
    "__init__ in static": "class P:\n def __init__(self): self.weight = V"
    + KERNEL.format("ti.static(P().weight)"),
    "__new__": "class P:\n def __new__(cls): return V\ndef pick(): return P()"
    + KERNEL.format("ti.static(pick())"),
    "__str__": "class P:\n def __str__(self): return 'a' * V\np = P()\n"
    "def pick(): return len(str(p))" + KERNEL.format("ti.static(pick())"),
    "__class_getitem__": "class P:\n def __class_getitem__(cls, n): return V + n\n"
    "def pick(): return P[3]" + KERNEL.format("ti.static(pick())"),
    "metaclass": "class M(type):\n def __getattr__(cls, n): return V\nclass P(metaclass=M): pass\n"
    "def pick(): return P.weight" + KERNEL.format("ti.static(pick())"),
    "special object": "class H:\n def __init__(self, v): self.v = v\n"
    " def __call__(self, n): return self.v + n\nclass P: __call__ = H(V)\np = P()"
    + KERNEL.format("ti.static(p(3))"),
    "enum property": "class E(enum.Enum):\n A = 1\n @property\n def weight(self): return V\n"
    "e = E.A\n"
    "def pick(): return e.weight" + KERNEL.format("ti.static(pick())"),
    "enum attribute": "class E(enum.Enum):\n A = 1\n def __init__(self, n): self.weight = V\n"
    "e = E.A\n"
    "def pick(): return e.weight" + KERNEL.format("ti.static(pick())"),
    "private slot": "class D:\n __slots__ = ('__k',)\n def __init__(self): self.__k = V\n"
    " @property\n"
    " def k(self): return self.__k\nd = D()" + KERNEL.format("d.k"),
    "lru_cache": "@functools.lru_cache\ndef pick(): return V" + KERNEL.format("ti.static(pick())"),
    "deque": "import collections\nd = collections.deque([V])\ndef pick(): return d[0]"
    + KERNEL.format("ti.static(pick())"),
    "attrgetter": "import operator\nclass S: pass\ns = S()\ns.a, s.b = 1, 2\n"
    "pick = operator.attrgetter(['a', 'b'][V - 1])" + KERNEL.format("ti.static(pick(s))"),
    "Decimal": "import decimal\nd = decimal.Decimal(V)\ndef pick(): return int(d)"
    + KERNEL.format("ti.static(pick())"),
    "date": "import datetime\nd = datetime.date(2000 + V, 1, 1)\ndef pick(): return d.year"
    + KERNEL.format("ti.static(pick())"),
    "weak reference": "import weakref\nclass S: pass\ns = S()\ns.weight = V\nr = weakref.ref(s)\n"
    "def pick(): return r().weight" + KERNEL.format("ti.static(pick())"),
    "frompyfunc": "pick = np.frompyfunc(lambda a: a + V, 1, 1)"
    + KERNEL.format("ti.static(int(pick(3)))"),
    "ufunc of one name": "def add(a): return a + V\npick = np.frompyfunc(add, 1, 1)"
    + KERNEL.format("ti.static(int(pick(3)))"),
    "structured": "d = np.array([(1, 2)], dtype=[('a', 'i4'), ('b', 'i4')][:: 3 - 2 * V])\n"
    "def pick(): return int(d['a'][0])" + KERNEL.format("ti.static(pick())"),
    "masked": "d = np.ma.array([5, 6], mask=[0, V - 1])\ndef pick(): return int(d.sum())"
    + KERNEL.format("ti.static(pick())"),
    "array's kind": "class A(np.ndarray):\n def first(self): return V\nd = np.zeros(3).view(A)\n"
    "def pick(): return d.first()" + KERNEL.format("ti.static(pick())"),
    "module's __getattr__": "import types\nm = types.ModuleType('m')\n"
    "exec('def __getattr__(n): return W', m.__dict__)\nm.W = V\n"
    "def pick(): return m.weight" + KERNEL.format("ti.static(pick())"),
    "module's class": "import types\nclass M(types.ModuleType):\n @property\n"
    " def weight(self): return V\nm = M('m')\ndef pick(): return m.weight"
    + KERNEL.format("ti.static(pick())"),
    "class without a module": "scope = {'V': V}\nexec('class S: weight = V', scope)\n"
    "S = scope['S']\n"
    "def pick(): return S.weight" + KERNEL.format("ti.static(pick())"),
    "getenv": "os.environ['K'] = str(V)\ndef pick(): return int(os.getenv('K'))"
    + KERNEL.format("ti.static(pick())"),
    "__getattribute__": "class S: pass\ns = S()\ns.weight = V\n"
    "def pick(): return s.__getattribute__('we' + 'ight')" + KERNEL.format("ti.static(pick())"),
    "__globals__": "def pick(): return pick.__globals__['V' + '']"
    + KERNEL.format("ti.static(pick())"),
    "attribute of numpy": "np.weight = V" + KERNEL.format("ti.static(np.weight)"),
    "attribute of ours": "ti.weight = V" + KERNEL.format("ti.static(ti.weight)"),
    "offset": "a = ti.field(ti.i32, 4, offset=V)\n@ti.kernel\ndef run():\n for i in a: a[i] = i\n"
    " for i in x: x[i] = a[i + ti.static(V)] + 0 * V",
    "exec'd func's annotation": "import linecache\nT = [ti.i32, ti.f32][V - 1]\n"
    "text = '@ti.func\\ndef f(a):\\n v: T = 2.5\\n return v * 2\\n'\n"
    "linecache.cache['<made>'] = (len(text), None, text.splitlines(True), '<made>')\n"
    "exec(compile(text, '<made>', 'exec'))" + KERNEL.format("f(i)"),
    "namedtuple": "import collections\nC = collections.namedtuple('C', 'a b')\nc = C(1, V)\n"
    "def pick(): return c.b" + KERNEL.format("ti.static(pick())"),
    "dtype": "T = np.dtype([np.int32, np.float32][V - 1])\nu = 2.5"
    + KERNEL.format("ti.static(T.kind == 'i') + i"),
    "struct dtype": "T = np.dtype([('a', 'i4'), ('b', 'i4')][:V])\ndef pick(): return len(T.names)"
    + KERNEL.format("ti.static(pick())"),
    "regex": "import re\nr = re.compile('a' * V)\ndef pick(): return len(r.pattern)"
    + KERNEL.format("ti.static(pick())"),
    "simple namespace": "import types\nn = types.SimpleNamespace(weight=V)"
    + KERNEL.format("ti.static(n.weight)"),
    "counter": "c = [0]\ndef count():\n c[0] += 1\n return c[0]\n@ti.kernel\ndef one():\n"
    " for i in x: x[i] = ti.static(count())\n@ti.kernel\ndef two():\n"
    " for i in y: y[i] = ti.static(count()) * VALUE\ndef run():\n one()\n two()",
    "long number": "N = 10 ** 5000 + V\ndef pick(): return N % 10"
    + KERNEL.format("ti.static(pick())"),
    "set": "N = {1, V}\ndef pick(): return len(N)" + KERNEL.format("ti.static(pick())"),
    "range": "R = range(V)\ndef pick(): return len(R)" + KERNEL.format("ti.static(pick())"),
    "bound builtin": "C = {'a': V}\npick = C.get" + KERNEL.format("ti.static(pick('a'))"),
    "descriptor": "class D:\n def __get__(self, o, t): return V\nclass S: weight = D()\ns = S()"
    + KERNEL.format("ti.static(s.weight)"),
    "class's attribute by object": "class S: pass\ns = S()\nS.weight = V"
    + KERNEL.format("ti.static(s.weight)"),
    "ti.Struct": "s = ti.Struct(a=1, b=V)" + KERNEL.format("s.b"),
    "iter": "class S:\n def __iter__(self): return iter(range(V + 2))\ns = S()\n@ti.kernel\n"
    "def run():\n for k in ti.static(s):\n  x[k % 4] += 1",
    "nested class": "class A:\n class B:\n  weight = V" + KERNEL.format("ti.static(A.B.weight)"),
    "nonlocal state": "def make():\n n = [V]\n def pick(): return n[0]\n return pick\npick = make()"
    + KERNEL.format("ti.static(pick())"),
    "closure rebinding": "def make():\n n = V\n def pick(): return n\n def put(k):\n"
    "  nonlocal n\n  n = k\n"
    " return pick, put\npick, put = make()\nput(V + 1)" + KERNEL.format("ti.static(pick())"),
    "vector field": "a = ti.Vector.field([2, 3][V - 1], ti.i32, 4)\n@ti.kernel\ndef run():\n"
    " for i in a: a[i] += 1\n for i in x: x[i] = a[i].sum()",
    "default object": "class S: pass\ns = S()\ns.weight = V\ndef pick(a=s): return a.weight"
    + KERNEL.format("ti.static(pick())"),
    "keyword default": "def pick(*, a=V): return a" + KERNEL.format("ti.static(pick())"),
    "math attribute": "import math\nmath.weight = V" + KERNEL.format("ti.static(math.weight)"),
    "matrix type": "T = ti.types.vector([2, 3][V - 1], ti.i32)" + KERNEL.format("T(1).sum()"),
    "struct type": "T = ti.types.struct(a=ti.i32, b=[ti.i32, ti.f32][V - 1])"
    + KERNEL.format("ti.cast(T(a=1, b=2.5).b * 2, ti.i32)"),
    "code swapped": "def a(): return 1\ndef b(): return 2\nif V == 2: a.__code__ = b.__code__"
    + KERNEL.format("ti.static(a())"),
    "lambda's getattr": "class S: pass\ns = S()\ns.weight = V\n"
    "pick = lambda: getattr(s, 'we' + 'ight')" + KERNEL.format("ti.static(pick())"),
    "class method makes": "class P:\n def __init__(self): self.weight = V\n @classmethod\n"
    " def make(cls): return cls().weight\n def get(self): return self.make()\n"
    "p = object.__new__(P)\ndef pick(): return p.get()" + KERNEL.format("ti.static(pick())"),
    "type makes": "class P:\n def __init__(self): self.weight = V\np = object.__new__(P)\n"
    "def pick(): return type(p)().weight" + KERNEL.format("ti.static(pick())"),
    "dataclass as text": "@dataclasses.dataclass\nclass D:\n weight: int\nd = D('a' * V)\n"
    "def pick(): return len(f'{d}')" + KERNEL.format("ti.static(pick())"),
    "percent": "class P:\n def __repr__(self): return 'a' * V\np = P()\n"
    "def pick(): return len('%s' % p)" + KERNEL.format("ti.static(pick())"),
    "dataclass made": "@dataclasses.dataclass\nclass D:\n weight: int = V\n"
    "def pick(): return D().weight" + KERNEL.format("ti.static(pick())"),
    "typed import": "import sys\nsys.weight = V\n"
    "exec('def pick():\\n import sys as m\\n return m.weight')"
    + KERNEL.format("ti.static(pick())"),
    "instance then class": "class P:\n def __init__(self): self.weight = V\np = object.__new__(P)\n"
    "p.other = P\ndef pick(): return p.other().weight" + KERNEL.format("ti.static(pick())"),
    "field's offset": "f = ti.field(ti.i32, 4, offset=V)\n@ti.kernel\ndef run():\n"
    " for i in f: x[i % 4] = i",
    "attrgetter elsewhere": "import operator\nclass S: pass\ns = S()\ns.key = V\n"
    "pick = operator.attrgetter('k' + 'ey')" + KERNEL.format("ti.static(pick(s))"),
    "descriptor's state": "class D:\n def __init__(self): self.v = V\n"
    " def __get__(self, obj, owner): return self.v\n"
    "class S:\n k = D()\ns = S()" + KERNEL.format("ti.static(s.k)"),
    "super": "class A:\n def pick(self): return V\nclass B(A):\n"
    " def pick(self): return super().pick() + 1\nb = B()" + KERNEL.format("ti.static(b.pick())"),
    "property of a metaclass": "class M(type):\n @property\n def k(cls): return V\n"
    "class S(metaclass=M): pass" + KERNEL.format("ti.static(S.k)"),
    "builtin's name": ("if V == 2:\n def abs(v): return 7" + KERNEL.format("ti.static(abs(-3))")),
    "builtin": "import builtins\nbuiltins.chosen = V" + KERNEL.format("ti.static(chosen)"),
    "item of a name": "names = ['one', 'two']\nclass S: one, two = 1, 2\n"
    "table = {'one': 1, 'two': 2}" + KERNEL.format("ti.static(table[names[V - 1]])"),
    "length": "class S:\n def __len__(self): return V\ns = S()"
    + KERNEL.format("ti.static(len(s))"),
    "truth": "class S:\n def __bool__(self): return V == 1\ns = S()"
    + KERNEL.format("3 if ti.static(s) else 4"),
    "order": "class S:\n def __init__(self, v): self.v = v\n def __lt__(self, o): return V == 1\n"
    "a = [S(1), S(2)]" + KERNEL.format("ti.static(sorted(a)[0].v)"),
    "reduced": "def add(a, b): return a + b + V"
    + KERNEL.format("ti.static(functools.reduce(add, [1, 2]))"),
    "mapped": "def add(a): return a + V" + KERNEL.format("ti.static(sum(map(add, [1, 2])))"),
    "default dict": "import collections\nd = collections.defaultdict(lambda: V)"
    + KERNEL.format("ti.static(d['k'])"),
    "named tuple": "import collections\nT = collections.namedtuple('T', 'a b')\nt = T(1, V)"
    + KERNEL.format("t.b"),
    "weakly held": "import weakref\nclass S: pass\ns = S()\ns.k = V\nw = weakref.ref(s)"
    + KERNEL.format("ti.static(w().k)"),
    "contents of a mapping": "import types\nm = types.MappingProxyType({'k': V})"
    + KERNEL.format("ti.static(m['k'])"),
    "dispatched": "@functools.singledispatch\ndef pick(a): return 5\n"
    "@pick.register\ndef _(a: int): return V" + KERNEL.format("ti.static(pick(3))"),
    "ndrange": "R = ti.ndrange(4, V)\n@ti.kernel\ndef run():\n for i, j in R: x[i] += j + 1",
    "called with a star": "a = [1, V]\n@ti.func\ndef f(p, q): return p + q"
    + KERNEL.format("f(*a)"),
    "sign of zero": "a = [0.0, -0.0][V - 1]\n@ti.kernel\ndef run():\n"
    " for i in x: x[i] = ti.bit_cast(ti.cast(a, ti.f32), ti.i32)",
    "truth or number": "a = [1, True][V - 1]" + KERNEL.format("3 if ti.static(a is True) else 4"),
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
