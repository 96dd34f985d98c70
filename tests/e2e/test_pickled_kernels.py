"""Kernels and funcs pickled by name and by value, in one process and between several."""

from __future__ import annotations

import copy
import linecache
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import KernelFieldError, KernelSyntaxError
from vkchi.runtime import RuntimeState
from vkchi.span import MARK, Span

cloudpickle = pytest.importorskip("cloudpickle")
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if k not in ("VKCHI_VERIFY", "VKCHI_CACHE")},
    "PYTHONPATH": str(ROOT), "VKCHI_DUMP_SPV": "",
}  # fmt: skip
RECEIVER = """
import pickle, sys
import vkchi.compiler
outcome_of, kernels = pickle.load(open(sys.argv[1], "rb"))
kernel_module = sys.modules["vkchi.kernel"]
compile_anew = kernel_module.compile_anew
def compiled(fn, *more):
    print("compiled", fn.__qualname__, file=sys.stderr)
    return compile_anew(fn, *more)
kernel_module.compile_anew = compiled
print("\\n".join(outcome_of(kernels)))
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, text=True, capture_output=True, check=False,
        env={**ENVIRONMENT, "VKCHI_CACHE_DIR": str(folder / "cache")}, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def by_value(thing: Any) -> Any:
    return pickle.loads(cloudpickle.dumps(thing))


def test_another_process_gives_the_same_results_and_finds_the_kernels_on_disk(
    tmp_path: Path,
) -> None:
    program, pickled = tmp_path / "program.py", tmp_path / "kernels.pkl"
    shutil.copy(HERE / "pickled_program.py", program)
    (tmp_path / "receiver.py").write_text(RECEIVER, encoding="utf-8")
    expected = run(tmp_path, "program.py", str(pickled)).stdout
    program.unlink()
    found = run(tmp_path, "receiver.py", str(pickled))
    assert found.stdout == expected
    uncached = {"everything", "look"}  # it inlines lambdas; a kernel of vkchi
    compiled = {line.split()[1] for line in found.stderr.splitlines() if "compiled" in line}
    assert compiled <= uncached, found.stderr


def make_step(n: int) -> Any:
    add = lambda v: v + n  # noqa: E731

    @ti.kernel
    def step(x: ti.types.ndarray()):
        for i in x:
            x[i] = add(x[i]) * n

    return step


def make_wrong() -> Any:
    @ti.kernel
    def wrong(x: ti.types.ndarray()):
        for i in x:
            x[i] = ti.Vector([1, 2])

    return wrong


def applied(kernel: Any) -> list[float]:
    x = np.arange(3, dtype=np.float32)
    kernel(x)
    return x.tolist()


@ti.kernel
def at_top(x: ti.types.ndarray()):
    for i in x:
        x[i] += 1


@ti.data_oriented
class Shifts:
    def __init__(self, n: int) -> None:
        self.n = n

    @ti.kernel
    def run(self, x: ti.types.ndarray()):
        for i in x:
            x[i] += self.n


def test_importable_kernels_are_pickled_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or module_of(at_top))
    for dumps in (pickle.dumps, cloudpickle.dumps):
        assert pickle.loads(dumps(at_top)) is at_top
        assert len(dumps(at_top)) < 200
        assert pickle.loads(dumps(Shifts.run)) is Shifts.run
        assert applied(pickle.loads(dumps(Shifts(3).run))) == [3, 4, 5]
    assert all(pickle.loads(pickle.dumps(at_top, k)) is at_top for k in range(2, 6))


def module_of(kernel: Any) -> Any:
    import types

    made = types.ModuleType(__name__)
    vars(made).update(kernel.__vkchi_func__.__globals__)
    return made


def test_copies_are_the_kernel_itself() -> None:
    step = make_step(2)
    assert copy.copy(step) is step and copy.deepcopy(step) is step


def test_closures_are_pickled_by_value() -> None:
    step = make_step(2)
    made = by_value(by_value(step))
    assert made is not step and applied(made) == applied(step) == [4, 6, 8]
    assert vars(made)["__name__"] == "step" and made.__qualname__ == step.__qualname__
    name = made.__vkchi_func__.__code__.co_filename
    assert name.count(MARK) == 1 and repr(made) == repr(step)
    same = by_value((step, step, {"again": step}))
    assert same[0] is same[1] is same[2]["again"]


def test_repeated_unpickling_keeps_one_text() -> None:
    data = cloudpickle.dumps(make_step(3))
    pickle.loads(data)
    count = len(linecache.cache)
    for _ in range(5):
        pickle.loads(data)
    assert len(linecache.cache) == count


def test_pickle_without_a_name_is_an_error() -> None:
    with pytest.raises((AttributeError, pickle.PicklingError), match="step.pickled_function"):
        pickle.dumps(make_step(1))


def test_messages_name_the_line_of_the_user() -> None:
    wrong = make_wrong()
    texts = []
    for kernel in (wrong, by_value(wrong)):
        with pytest.raises(ti.TaichiCompilationError) as caught:
            applied(kernel)
        texts.append(str(caught.value))
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value)
    assert texts[0] == texts[1] and "test_pickled_kernels.py:" in texts[0]


def test_cells_of_notebooks_keep_their_names() -> None:
    assert Span(f"Cell In[2]{MARK}12345678", 3, 1, 3, 2).place == "Cell In[2], line 3"
    assert Span(f"a.py{MARK}12345678", 3, 1, 3, 2).place == "a.py:3:1"


def test_a_file_that_was_changed_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    text = "import vkchi as ti\n@ti.kernel\ndef k(x: ti.types.ndarray()):\n    x[0] = 1\n"
    path.write_text(text, encoding="utf-8")
    scope: dict[str, Any] = {"__name__": "changing"}
    exec(compile(text, str(path), "exec"), scope)
    path.write_text(text.replace("= 1", "= 22"), encoding="utf-8")
    with pytest.raises(KernelSyntaxError, match="not what stands in its file now"):
        cloudpickle.dumps(scope["k"])


def capturing(thing: Any) -> Any:
    @ti.kernel
    def k():
        for i in range(3):
            ti.static(len([thing]))

    return k


def test_captured_fields_are_errors() -> None:
    s = ti.types.struct(a=ti.f32)
    x, v = ti.field(ti.f32, 3, needs_grad=True), ti.Vector.field(2, ti.f32, 3)
    block = ti.root.dense(ti.i, 4)
    block.place(ti.field(ti.i32))
    for thing, path in (
        (x, "thing"), (x.grad, "thing"), (v, "thing"), (s.field(3), "thing.a"), (block, "thing"),
        ([1, {"k": (x,)}], "thing[1]['k'][0]"),
    ):  # fmt: skip
        with pytest.raises(KernelFieldError) as caught:
            cloudpickle.dumps(capturing(thing))
        assert f"k() captures the field `{path}`" in str(caught.value)
        assert "pass the data as an ndarray argument" in str(caught.value)
    with pytest.raises(TypeError, match=r"pickle x.to_numpy\(\)"):
        cloudpickle.dumps(Shifts(x).run)


def test_captured_arrays_are_copied() -> None:
    x = ti.ndarray(ti.f32, 4, needs_grad=True)
    x.from_numpy(np.arange(4, dtype=np.float32))
    made = by_value(capturing([x, x[1:3]]))
    a, b = made.__vkchi_func__.__closure__[0].cell_contents
    assert a.to_numpy().tolist() == [0, 1, 2, 3] and a.grad is not None
    assert b.to_numpy().tolist() == [1, 2]


def test_functions_in_arguments_need_ti_func() -> None:
    @ti.data_oriented
    class Ruled:
        def __init__(self, rule: Any) -> None:
            self.rule = rule

        @ti.kernel
        def run(self, x: ti.types.ndarray()):
            for i in x:
                x[i] = self.rule(x[i])

    rule = lambda a: a + 7  # noqa: E731
    assert applied(by_value(Ruled(ti.func(rule))).run) == [7, 8, 9]
    with pytest.raises(KernelSyntaxError, match=r"put ti.func\(\) around one"):
        applied(by_value(Ruled(rule)).run)


def test_operators_are_not_pickled() -> None:
    pytest.importorskip("torch", "2.4")

    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def twice(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] * 2

    assert copy.deepcopy([twice])[0] is twice and copy.copy(twice) is twice
    with pytest.raises(TypeError, match=r"twice\(\) is an operator .* define it in a module"):
        cloudpickle.dumps(lambda x: twice(x))


def test_every_public_name_is_pickled() -> None:
    unlike = []
    for name in ti.__all__:
        value = getattr(ti, name, None)
        found = by_value(value)
        if found is not value and repr(found) != repr(value):
            unlike.append(name)
    assert unlike == []


def test_struct_types_with_methods() -> None:
    @ti.dataclass
    class Disk:
        r: ti.f32

        @ti.func
        def twin(self):
            return Disk(r=self.r * 2)

    made = by_value(Disk)
    assert made.is_like(Disk) and "twin" in made.methods
    assert made.twin.__vkchi_func__.__closure__[0].cell_contents is made
    cast = pickle.loads(pickle.dumps(ti.types.struct(a=ti.i32).cast))
    assert cast(a=2.5).a == 2


NAMED = """
import multiprocessing, pickle
import vkchi as ti
@ti.kernel
def k(x: ti.types.ndarray()):
    x[0] = 1
def check(kernel):
    return kernel is k
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(check, (k,)), pickle.loads(pickle.dumps(k)) is k)
"""


def test_multiprocessing_pickles_kernels_of_main_by_name(tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text(NAMED, encoding="utf-8")
    assert run(tmp_path, "named.py").stdout.split() == ["True", "True"]


THREADS = """
import pickle, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
kernel = pickle.load(open(sys.argv[1], "rb"))
def call(k):
    x = np.full(100, k, np.float32)
    kernel(x)
    return x
with ThreadPoolExecutor(4) as pool:
    for k, x in enumerate(pool.map(call, range(16))):
        assert (x == (k + 3) * 3).all()
"""


def test_the_first_calls_of_a_process_may_be_in_several_threads(tmp_path: Path) -> None:
    (tmp_path / "kernel.pkl").write_bytes(cloudpickle.dumps(make_step(3)))
    (tmp_path / "threads.py").write_text(THREADS, encoding="utf-8")
    run(tmp_path, "threads.py", "kernel.pkl")


def test_reset_forgets_received_options() -> None:
    data = cloudpickle.dumps(make_step(1))
    ti.reset()
    with pytest.raises(RuntimeError, match=r"call ti.init\(\) first"):
        applied(make_step(1))
    step = pickle.loads(data)
    assert RuntimeState.received is not None and RuntimeState.runtime is None
    ti.reset()
    with pytest.raises(RuntimeError, match=r"call ti.init\(\) first"):
        applied(step)
    step = pickle.loads(data)
    assert applied(step) == [1, 2, 3]  # opens the device
