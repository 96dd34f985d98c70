"""The device layer in processes of their own: missing drivers, forks, the end of the interpreter,
the validation layer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.devices import errors_of
from vkchi.vk.instance import explain_broken_files

pytestmark = pytest.mark.device

ROOT = Path(__file__).parents[2]
LAYER_VARIABLES = ("VK_INSTANCE_LAYERS", "VK_LAYER_SETTINGS_PATH", "VKCHI_DEBUG")


def run_python(source: str, *path: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the tests' environment, without the layer of `pytest --validation`."""
    kept = {name: value for name, value in os.environ.items() if name not in LAYER_VARIABLES}
    search = os.pathsep.join([*path, str(ROOT), str(Path(__file__).parent)])
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-c", source],
        env={**kept, "PYTHONPATH": search, **variables},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def check_output(source: str, *path: str, **variables: str) -> str:
    """Standard output of a program that ends well and says nothing on standard error."""
    run = run_python(source, *path, **variables)
    assert (run.returncode, errors_of(run.stderr)) == (0, ""), run.stdout + run.stderr
    return run.stdout.strip()


OPEN = """
from vkchi.device import list_devices, open_device
from vkchi.errors import DeviceError
for call in (open_device, list_devices):
    try:
        call()
    except DeviceError as error:
        print(error)
"""


def test_no_driver() -> None:
    lines = check_output(OPEN, VK_LOADER_DRIVERS_SELECT="nothing").splitlines()
    assert len(lines) == 2
    assert lines[0] == lines[1]
    assert lines[0].startswith("no Vulkan driver was found: ")
    assert "VK_LOADER_DRIVERS_SELECT=nothing leave none; correct or unset them" in lines[0]


LIBRARY = '{"file_format_version": "1.0.0", "ICD": {"api_version": "1.3.0", "library_path": "%s"}}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "does not exist"),
        ("{", "is no manifest of a Vulkan driver"),
        ("", "is no manifest of a Vulkan driver"),
        ("[" * 9000, "is no manifest of a Vulkan driver"),
        ("[]", "is no manifest of a Vulkan driver"),
        (LIBRARY % "/nonexistent/lib.so", "names a library that cannot be loaded (/nonexistent"),
        (LIBRARY % "./driver.json", "names a library that cannot be loaded ("),
    ],
)
@pytest.mark.parametrize("variable", ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"])
def test_a_driver_file_that_cannot_be_used_is_named(
    variable: str, text: str | None, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "driver.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    monkeypatch.delenv("VK_DRIVER_FILES", raising=False)
    monkeypatch.setenv(variable, f"{path}{os.pathsep}")
    why = explain_broken_files()
    assert why.startswith(f"{variable} chooses the drivers here, and {path} {problem}")
    assert why.endswith("; correct or unset it")


@pytest.mark.parametrize("text", ["{", "", LIBRARY % "/nonexistent/lib.so"])
def test_no_usable_driver_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "driver.json"
    path.write_text(text, encoding="utf-8")
    lines = check_output(OPEN, VK_DRIVER_FILES=str(path), VK_ICD_FILENAMES=str(path)).splitlines()
    assert len(lines) == 2 and lines[0] == lines[1]
    begin = f"no Vulkan driver was found: VK_DRIVER_FILES chooses the drivers here, and {path} "
    assert lines[0].startswith(begin)


def test_a_device_that_the_environment_asks_for_in_vain() -> None:
    message = check_output(OPEN, VKCHI_DEVICE="abacus")
    assert message.startswith("no Vulkan device matches 'abacus'; there ")
    assert message.endswith(" (VKCHI_DEVICE is set to choose one)")


def test_a_limit_of_memory_is_one_error_and_no_crash() -> None:
    source = """
import gc, resource, sys
import vkchi as ti
ti.init(log_level=ti.ERROR)
x = ti.ndarray(ti.f32, 1000)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), resource.RLIM_INFINITY))
kept = []
try:
    for _ in range(60):
        kept.append(ti.ndarray(ti.f32, 10 << 18))
except RuntimeError as error:
    print(len(kept) < 60, str(error).count("`ulimit -v`"), str(error).splitlines() == [str(error)])
kept.clear()
y = ti.ndarray(ti.f32, 1000)
y.fill(2.0)
x.copy_from(y)
print(x[999])
"""
    assert check_output(source).splitlines() == ["True 1 True", "2.0"]


def test_a_limit_of_files_is_one_error_and_no_crash() -> None:
    source = """
import resource
import vkchi as ti
resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 20, resource.RLIM_INFINITY))
ti.init(log_level=ti.ERROR)
kept = []
try:
    for k in range(4):
        kept.append(ti.field(ti.f32, 10 << 20))
        kept[-1].fill(1.0)
        assert kept[-1][5 << 20] == 1.0
    print("no limit")
except RuntimeError as error:
    print(len(kept), str(error).count("`ulimit -f unlimited`"))
"""
    assert check_output(source).splitlines() in (["no limit"], ["1 1"], ["2 1"])


def test_freed_memory_does_not_count_in_a_limit_of_files() -> None:
    source = """
import resource
import vkchi as ti
resource.setrlimit(resource.RLIMIT_FSIZE, (110 << 20, resource.RLIM_INFINITY))
ti.init(log_level=ti.ERROR)
kept = ti.ndarray(ti.f32, 10 << 20)  # in the first block of 64 MiB
for k in range(12):
    x = ti.ndarray(ti.f32, (33 + k % 3) << 18)
    x.fill(k)
    assert x[(33 << 18) - 1] == k
    del x
kept.fill(1)
assert kept[0] == 1
print("right")
"""
    assert check_output(source) == "right"


END = """
import vkchi as ti
ti.init(log_level=ti.ERROR)
x = ti.field(ti.f32, 8)

@ti.kernel
def step():
    for i in x:
        x[i] += 1

class Late:
    def __del__(self, step=step, print=print, kind=RuntimeError):
        try:
            step()
        except kind as error:
            print(error)

late = Late()
"""


CLOSED = "the device was closed because Python ends: use arrays and kernels before that"


@pytest.mark.parametrize("use", ["x[0]", "x.fill(1)", "x.to_numpy()", "y.to_numpy()"])
def test_an_array_in_a_destructor_when_python_ends(use: str) -> None:
    source = f"""
import builtins
import vkchi as ti
ti.init(log_level=ti.ERROR)
x, y = ti.field(ti.f32, 8), ti.ndarray(ti.f32, 8)
x[0]

class Late:
    def __del__(self, x=x, y=y, print=print, kind=RuntimeError):
        try:
            {use}
        except kind as error:
            print(error)

builtins.late = Late()
"""
    assert check_output(source) == CLOSED


def test_an_array_in_a_destructor_after_a_reset() -> None:
    source = """
import builtins
import vkchi as ti
ti.init(log_level=ti.ERROR)
x = ti.field(ti.f32, 8)
x[0]
ti.reset()

class Late:
    def __del__(self, x=x, print=print, kind=RuntimeError):
        try:
            x[0]
        except kind as error:
            print(error)

builtins.late = Late()
"""
    assert "freed by ti.reset()" in check_output(source)


@pytest.mark.parametrize("cache", ["0", "1"])
def test_a_kernel_that_a_destructor_calls_first_when_python_ends(
    tmp_path: Path, cache: str
) -> None:
    for _ in range(3):
        said = check_output(END, VKCHI_CACHE=cache, VKCHI_CACHE_DIR=str(tmp_path))
        assert said == CLOSED


def test_no_loader(tmp_path: Path) -> None:
    package = tmp_path / "vulkan"
    package.mkdir()
    (package / "__init__.py").write_text("from vulkan._vulkan import *", encoding="utf-8")
    (package / "_vulkan.py").write_text(
        "raise OSError('Cannot find Vulkan SDK version.')", encoding="utf-8"
    )
    lines = check_output(OPEN, str(tmp_path)).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(
        "no Vulkan loader (libvulkan) was found: `apt-get install libvulkan1"
    )


def test_importing_does_not_load_vulkan() -> None:
    source = "import sys, vkchi.device; print('vulkan' in sys.modules)"
    assert check_output(source) == "False"


def test_the_layer_is_missing() -> None:
    message = check_output(OPEN, VKCHI_VALIDATE="1", VK_LAYER_PATH="/nonexistent")
    assert message.startswith("VKCHI_VALIDATE is set but VK_LAYER_KHRONOS_validation is not inst")
    assert "apt-get install vulkan-validationlayers" in message


WORK = """
import numpy as np
from test_device import *
device = open_device(staged={staged})
saxpy, far = device.load(make_shader()), device.load(make_shader(indirect=True))
x, y = make_floats(device, RAMP), make_floats(device, RAMP)
for _ in range(200):
    launch(saxpy, x, y, 1.0)
    launch(far, y, x, 0.0)
device.copy(x, y, 128, 0, 1024)
device.fill(x, 0, 64, 1)
z = device.allocate(20 << 20)
z.write(1, bytes(9 << 20))
z.read(3, 18 << 20)
with device.timing():
    launch(saxpy, x, y, 1.0)
z.free()
"""


@pytest.mark.parametrize("mode", ["1", "sync"])
@pytest.mark.parametrize("staged", [False, True])
def test_the_validation_layer_says_nothing(mode: str, staged: bool) -> None:
    source = WORK.format(staged=staged) + "device.close(); print(device.messages)"
    assert check_output(source, VKCHI_VALIDATE=mode) == "[]"


def test_the_validation_layer_is_listened_to() -> None:
    source = (
        WORK.format(staged=False)
        + "commands = device.begin_command(frozenset(), frozenset())\n"
        + "device._logical.calls.vkCmdFillBuffer(commands, x.locate(0, 4)[0], 1, 4, 0)\n"
        + "print(any('vkCmdFillBuffer' in message for message in device.messages))\n"
    )
    assert check_output(source, VKCHI_VALIDATE="1") == "True"


ENDS = {
    "nothing is recorded": "",
    "commands are recorded": "launch(saxpy, x, y, 1.0)",
    "the device is in a cycle": "import gc; gc.disable(); device.me = device",
    "a view is left": "import builtins; builtins.left = x.view and np.frombuffer(x.view, 'u1')",
    "it was closed": "device.close()",
    "it was closed, a view is left": (
        "import builtins; builtins.left = x.view and np.frombuffer(x.view, 'u1'); device.close()"
    ),
    "everything was deleted": "del device, saxpy, far, x, y, z",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_the_interpreter_ends_well(end: str) -> None:
    check_output(WORK.format(staged=False) + end)


FORK = """
import os, sys
def use_all():
    uses = (
        lambda: device.allocate(4), lambda: device.load(make_shader()), device.wait, device.flush,
        lambda: launch(saxpy, x, y, 1.0), lambda: x.read(0, 4), lambda: x.write(0, b"a"),
        lambda: device.fill(x, 0, 4, 0), lambda: device.copy(x, y, 4), open_device, list_devices,
    )
    for use in uses:
        try:
            use()
            return 1
        except DeviceError as error:
            if "forked" not in str(error):
                return 2
    return 0 if device.closed and device.busy else 3
"""
CHILD = """
before = floats(y).copy()
child = os.fork()
if not child:
    status = use_all()
    x.free()
    y = saxpy = far = z = None
    import gc; gc.collect()
    device.close()
    {leave}(status)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
launch(saxpy, x, y, 1.0)
print(np.allclose(floats(y), before + floats(x)) and bool(floats(x).any()))
"""


@pytest.mark.parametrize("leave", ["os._exit", "sys.exit"])
def test_a_device_raises_in_a_forked_child(leave: str) -> None:
    source = WORK.format(staged=False) + FORK + CHILD.format(leave=leave)
    assert check_output(source).splitlines() == ["0", "True"]


def test_a_child_can_open_a_device_that_its_parent_closed() -> None:
    child = """
device.close()
child = os.fork()
if not child:
    device = open_device()
    saxpy = device.load(make_shader())
    x, y = make_floats(device, RAMP), make_floats(device, RAMP)
    launch(saxpy, x, y, 1.0)
    sys.exit(0 if (floats(y) == 2 * RAMP).all() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert check_output(WORK.format(staged=False) + FORK + child) == "0"


def test_a_fork_while_another_thread_records() -> None:
    """The child does not wait for a lock that a thread of its parent held."""
    thread = """
import threading
stop = threading.Event()
def record():
    while not stop.is_set():
        launch(saxpy, x, y, 0.0)
worker = threading.Thread(target=record)
worker.start()
statuses = []
for _ in range(10):
    child = os.fork()
    if not child:
        os._exit(use_all())
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set()
worker.join()
print(statuses)
"""
    assert check_output(WORK.format(staged=False) + FORK + thread) == str([0] * 10)


def test_a_fork_while_another_thread_launches_kernels(tmp_path: Path) -> None:
    """Nor for the lock that is held while a launch is put together."""
    path = tmp_path / "program.py"
    path.write_text(
        """
import os, threading
import vkchi as ti
ti.init(log_level=ti.ERROR)
x = ti.field(ti.i32, 300)
@ti.kernel
def add():
    for i in x:
        x[i] += 1
def refuses():
    try:
        add()
    except ti.DeviceError as error:
        return "forked" in str(error)
add()
stop = threading.Event()
def launch():
    while not stop.is_set():
        add()
worker = threading.Thread(target=launch)
worker.start()
statuses = []
for _ in range(10):
    child = os.fork()
    if not child:
        os._exit(0 if refuses() else 1)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set()
worker.join()
ti.sync()  # an exit tells when it waits
print(statuses)
""",
        encoding="utf-8",
    )
    run_it = f"import runpy; runpy.run_path({str(path)!r})"
    assert check_output(run_it) == str([0] * 10)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_wait() -> None:
    source = (
        WORK.format(staged=False)
        + """
import _thread, threading
threading.Timer(0.3, _thread.interrupt_main).start()
try:
    device._queue.wait(device._queue.submitted + 1)
except KeyboardInterrupt:
    print("interrupted")
"""
    )
    assert check_output(source) == "interrupted"


HOLDING = """
import vkchi as ti
ti.init()
x = ti.field(ti.f32, 10)
@ti.kernel
def double():
    for i in x:
        x[i] = 2 * x[i] + 1
double()
from vkchi.device import Device
load = Device.load
Device.load = lambda *args: load(*args)
print(x[0])
"""


def test_memory_is_left_to_the_end_of_the_process(tmp_path: Path) -> None:
    """Destructors that run after modules are gone call no driver, whatever a program holds."""
    program = tmp_path / "program.py"
    program.write_text(HOLDING, encoding="utf-8")
    for _ in range(2):  # the second finds the kernel in the cache, and loads fewer modules
        done = subprocess.run(
            [sys.executable, str(program)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "VKCHI_CACHE_DIR": str(tmp_path)},
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout, errors_of(done.stderr)) == (0, "1.0\n", "")
