"""`with ti.device(name)`: several devices in one process."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import DeviceError, KernelRuntimeError
from vkchi.runtime import current_runtime

ROOT = Path(__file__).parents[2]

TWO = """
import threading

import numpy as np
import vkchi as ti
from vkchi.runtime import current_runtime

ti.init(device="llvmpipe")


@ti.kernel
def step(x: ti.types.ndarray()):
    for i in x:
        x[i] += 1


def refused(call, *words):
    try:
        call()
    except ti.TaichiRuntimeError as e:
        assert all(word in str(e) for word in words), str(e)
        return
    raise AssertionError("nothing was raised")


x = ti.ndarray(ti.f32, 8)
step(x)
with ti.device("SwiftShader"):
    assert "SwiftShader" in current_runtime().device.info.name
    y, f = ti.ndarray(ti.f32, 8), ti.field(ti.f32, 8, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    step(y)
    step(y)
    given = np.zeros(4, np.float32)
    step(given)
    assert given.tolist() == [1] * 4
    refused(lambda: step(x), "`x`", "on llvmpipe", "runs on SwiftShader", "with ti.device")
    with ti.device("llvmpipe"):
        step(x)
step(x)
assert x.to_numpy().tolist() == [3] * 8
assert y.to_numpy().tolist() == [2] * 8


@ti.kernel
def add_up():
    for i in f:
        loss[None] += f[i] * f[i]


@ti.kernel
def touch(g: ti.template()):
    for i in g:
        g[i] = 3


refused(add_up, "field `", "on SwiftShader", "runs on llvmpipe")
late = ti.field(ti.f32)
with ti.device("SwiftShader"):
    refused(lambda: ti.root.dense(ti.i, 4).place(late), "field is on llvmpipe", "SwiftShader")
with ti.record() as graph:
    step(x)
with ti.device("SwiftShader"):
    refused(graph.run, "graph is on llvmpipe", "this is SwiftShader")
ti.root.dense(ti.i, 4).place(late)
refused(lambda: touch(f), "on SwiftShader")
f.fill(2)
with ti.device("SwiftShader"):
    touch(f)
    with ti.ad.Tape(loss):
        add_up()
        refused(lambda: ti.device("llvmpipe").__enter__(), "inside a tape")
assert f.grad.to_numpy().tolist() == [6] * 8
refused(lambda: ti.ad.Tape(loss).__enter__(), "the loss is on SwiftShader")

y.copy_from(x)
assert y.to_numpy().tolist() == [3] * 8

seen = []


def work(name):
    with ti.device(name):
        z = ti.ndarray(ti.f32, 1000)
        for _ in range(50):
            step(z)
        is_right = z.to_numpy().tolist() == [50] * 1000
        seen.append((name, current_runtime().device.info.name, is_right))


threads = [threading.Thread(target=work, args=(n,)) for n in ("llvmpipe", "SwiftShader") * 2]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(seen) == 4 and all(name in found and right for name, found, right in seen), seen


@ti.kernel
def take_long(x: ti.types.ndarray(ndim=1)):
    for i in x:
        v = x[i]
        for _ in range(200):
            v = v * 1.0000001
        x[i] = v - v + 7


ours = ti.ndarray(ti.f32, 1 << 18)
view = np.from_dlpack(ours)
for _ in range(2):  # a view of what one device works on, given to another
    ours.fill(1)
    take_long(ours)
    with ti.device("SwiftShader"):
        there = ti.ndarray(ti.f32, 1 << 18)
        if _:
            there.from_numpy(view)
        else:
            step(view)
        found = there.to_numpy() if _ else view - 1
    assert (found == 7).all(), found
ti.init(device="llvmpipe", host_arrays="deferred")
for _ in range(2):
    given = np.ones(1 << 18, np.float32)
    take_long(given)
    with ti.device("SwiftShader"):
        step(given)
    ti.sync()
    assert (given == 8).all(), given
y = ti.ndarray(ti.f32, 8)
ti.sync()
ti.reset()
refused(lambda: y[0], "reset")
ti.init(device="SwiftShader")
with ti.device("llvmpipe"):
    assert "llvmpipe" in current_runtime().device.info.name
print("all right")
"""


def driver_files(name):
    """The manifest of a driver, where it is installed."""
    script = ROOT / "scripts" / "vulkan-driver"
    done = subprocess.run([script, "--env", name], capture_output=True, text=True, check=False)
    pairs = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    path = pairs.get("VK_DRIVER_FILES", "")
    return path if Path(path).is_file() else ""


def test_two_devices_in_one_process(tmp_path):
    files = [driver_files(name) for name in ("lavapipe", "swiftshader")]
    if not all(files):
        pytest.skip("two drivers are needed")
    program = tmp_path / "two.py"
    program.write_text(TWO)
    both = os.pathsep.join(files)
    environment = {**os.environ, "VK_DRIVER_FILES": both, "VK_ICD_FILENAMES": both,
                   "PYTHONPATH": str(ROOT)}  # fmt: skip
    environment.pop("VKCHI_DEVICE", None)
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout == "all right\n", done.stderr


def test_the_device_of_init_is_the_same_everywhere():
    runtime = current_runtime()
    with ti.device(runtime.device.info.name) as block:
        assert block.runtime is current_runtime() is runtime
        assert ti.cfg.arch is runtime.config.arch
    with pytest.raises(DeviceError, match="no Vulkan device matches 'nowhere'"):
        ti.device("nowhere").__enter__()
    assert current_runtime() is runtime


def test_a_block_is_of_its_thread():
    found = []
    with ti.device(current_runtime().device.info.name) as block:
        thread = threading.Thread(target=lambda: found.append(current_runtime()))
        thread.start()
        thread.join()
        assert found == [block.runtime]


def test_no_other_device_inside_a_tape():
    loss = ti.field(ti.f32, (), needs_grad=True)
    with ti.ad.Tape(loss):
        with pytest.raises(KernelRuntimeError, match="inside a tape"):
            ti.device(0).__enter__()


def test_a_block_is_entered_once_at_a_time():
    block, runtime = ti.device(0), current_runtime()
    for _ in range(3):  # again, once it is left
        with block:
            pass
    with block:
        with pytest.raises(KernelRuntimeError, match="entered already"), block:
            pass
        refused = []
        thread = threading.Thread(target=lambda: refused.append(enters(block)))
        thread.start()
        thread.join()
        assert refused == [False]
        assert current_runtime() is block.runtime
    assert current_runtime() is runtime


def enters(block):
    try:
        with block:
            return True
    except KernelRuntimeError:
        return False


def test_devices_stay_open_inside_a_block():
    x = ti.ndarray(ti.f32, 4)
    with ti.device(current_runtime().device.info.name):
        for call in (ti.init, ti.reset):
            with pytest.raises(KernelRuntimeError, match="outside of it"):
                call()
        x.fill(2)
    assert x[3] == 2


@pytest.mark.parametrize("name", [None, 1.5, -1, "", True])
def test_invalid_device_name_raises(name):
    with pytest.raises(DeviceError, match="no Vulkan device matches"):
        ti.device(name).__enter__()


def test_an_index_of_numpy():
    runtime = current_runtime()
    with ti.device(np.int64(runtime.device.info.index)):
        assert current_runtime() is runtime
