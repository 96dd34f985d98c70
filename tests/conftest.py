"""Options and session checks of the whole suite.

    pytest --bless            rewrite the expected files of golden tests; review is the diff
    pytest --validation       load the Khronos validation layer; any message of it fails the session
    pytest --no-spirv-val     do not validate the SPIR-V that the tests emit
    pytest --hang-limit 600   end a process whose test does not return in so many seconds
    pytest --like-gpu         map loops as for a GPU with few workgroups
    pytest --like-moltenvk    emit pointers, vectors and scans as for MoltenVK

`--timeout` of pytest-timeout fails a test that takes too long, by a signal, which waits for native
code to return. `--hang-limit` also ends a hanging driver: pytest-xdist then reports a crashed test
and starts a new worker. `VKCHI_DEVICE` chooses the device by a part of its name.

vkchi writes the modules that it emits into `VKCHI_DUMP_SPV`, which is set here before vkchi is
imported. At the end of the session, the controller validates each distinct module by spirv-val.
With `VKCHI_CACHE=1` no module is validated.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

LAYER = "VK_LAYER_KHRONOS_validation"
LAYER_PROPERTIES_BYTES = 520  # sizeof(VkLayerProperties); it begins with the name
SPIRV_VAL = ("spirv-val", "--target-env", "vulkan1.3", "--scalar-block-layout")
VALIDATORS = 2  # processes at once
DEVICE_FOLDERS = ("e2e", "ops", "fuzz")
# Device tests of code that no driver decides, slow ones: documents, windows, processes, interrupts,
# the cache, messages. `scripts/test` runs them on one driver instead of every one.
ONE_DRIVER = """
    distributed/test_groups.py distributed/test_launchers.py distributed/test_torch_modules.py
    e2e/test_member_arrays_on_disk.py e2e/test_other_engines.py e2e/test_pickled_kernels.py
    e2e/gui/test_example_command.py e2e/gui/test_examples.py e2e/gui/test_notebook.py
    e2e/gui/test_scene_examples.py
    e2e/test_cache.py e2e/test_cache_edits.py e2e/test_cache_surroundings.py e2e/test_cuda.py
    e2e/test_documents.py e2e/test_gpu_benchmark.py e2e/test_golden_calls.py
    e2e/test_interrupted_imports.py e2e/test_interrupts.py e2e/test_kernels_without_files.py
    e2e/test_language_documents.py e2e/test_leaks.py e2e/test_lifetime.py e2e/test_python_mode.py
    e2e/test_startup.py e2e/test_systems.py e2e/test_threads.py e2e/test_tracebacks.py
    e2e/ui/test_canvas.py e2e/ui/test_document.py e2e/ui/test_pygfx_coexistence.py
    e2e/ui/test_screen.py
    unit/test_destructors.py unit/test_device_processes.py unit/test_pipeline_cache.py
    unit/test_runtime_lifetime.py
""".split()
END = b"\0"  # written into the layer's FIFO when the session is over
NOTICE_OF_LAYER = r"Validation Layer Info - Logging validation error to [^\n]*\n"
LAYER_SETTINGS = """\
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn,perf
khronos_validation.log_filename = {log}
khronos_validation.message_id_filter = {accepted}
"""
# Messages without a fault of vkchi: of a command that only wgpu, the renderer of `ti.ui`, records;
# and of allocations above a driver's limit, which vkchi tries on purpose.
ACCEPTED = (
    "VUID-vkCmdCopyBufferToImage-pRegions-00173,UNASSIGNED-vkAllocateMemory-maxMemoryAllocationSize"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vkchi")
    group.addoption("--bless", action="store_true", help="rewrite the expected files of goldens")
    group.addoption("--validation", action="store_true", help="run under the validation layer")
    group.addoption("--hang-limit", type=float, default=0, help="seconds until a hang is ended")
    group.addoption("--like-gpu", action="store_true", help="map loops as for a graphics card")
    group.addoption("--like-moltenvk", action="store_true", help="form pointers as for MoltenVK")
    group.addoption("--no-spirv-val", action="store_true", help="do not validate emitted SPIR-V")


def pytest_configure(config: pytest.Config) -> None:
    """Apply the options, and set the environment in the controller.

    The workers of pytest-xdist inherit the environment.
    """
    if config.getoption("--like-gpu"):
        look_like("gpu")
    if config.getoption("--like-moltenvk"):
        look_like("moltenvk")
    if config.getoption("--hang-limit"):
        config.pluginmanager.register(HangGuard(config.getoption("--hang-limit")), "vkchi-hangs")
    if config.getoption("--validation"):
        drop_notices_of_layer()
        allow_many_files()
    if hasattr(config, "workerinput"):
        return
    os.environ.setdefault("VKCHI_VERIFY", "1")
    os.environ.setdefault("VKCHI_CACHE", "0")  # a stored shader is not emitted, so not validated
    is_cached = os.environ["VKCHI_CACHE"] != "0"  # VKCHI_DUMP_SPV omits them
    if not is_cached and not config.getoption("--no-spirv-val"):
        config.pluginmanager.register(SpirvCheck(), "vkchi-spirv-check")
    if config.getoption("--validation"):
        config.pluginmanager.register(LayerCheck(), "vkchi-layer-check")


def allow_many_files() -> None:
    """Raise the limit of open files to its maximum: the layer opens its log for each VkInstance,
    and leaves it open."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def pytest_collection() -> None:
    """On an emulated system (`scripts/as-system`), import vkchi, which begins the emulation.

    Test modules then see that system from their first import on.
    """
    if os.environ.get("EMULATED_SYSTEM"):
        importlib.import_module("vkchi")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the device folders, so that they can be run on every driver, and those that
    need only one."""
    here = Path(__file__).parent
    for item in items:
        place = item.path.relative_to(here)
        if place.parts[0] in DEVICE_FOLDERS:
            item.add_marker("device")
        if place.as_posix() in ONE_DRIVER:
            item.add_marker("one_driver")


def pytest_collection_finish() -> None:
    """Exclude the collected tests from Python's garbage collections.

    They are some 600,000 objects that live to the end, and each collection would scan them.
    """
    gc.collect()
    gc.freeze()


def look_like(name: str) -> None:
    """Change the capabilities of the devices that are read later by `tests.devices.like_{name}`."""
    from tests import devices
    from vkchi.vk import physical

    change, read = getattr(devices, f"like_{name}"), physical.read_physical

    def read_changed(*args: Any) -> physical.Physical:
        row = read(*args)
        return row._replace(caps=change(row.caps))

    physical.read_physical = read_changed


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Close the device in each process before the validation layer's messages are read: it reports
    leaks."""
    vkchi = sys.modules.get("vkchi")
    if vkchi is not None and hasattr(vkchi, "reset"):
        vkchi.reset()


@pytest.fixture(scope="session")
def bless(request: pytest.FixtureRequest) -> bool:
    """True if golden tests rewrite their expected files."""
    return bool(request.config.getoption("--bless"))


@pytest.fixture
def own_collections() -> Iterator[None]:
    """Fixture without garbage collection callbacks.

    Hypothesis has one in Python, in which an interrupt is lost.
    """
    others = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(others)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Fixture in which SIGINT raises KeyboardInterrupt, here and in processes that are started
    here.

    Shells ignore SIGINT in commands that run in the background.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def fail_session(session: pytest.Session, who: str, messages: list[str]) -> None:
    """Make the session fail, with one error in pytest's own summary per message."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    for message in messages:
        report = pytest.TestReport(
            nodeid=f"{who}: {message.splitlines()[0]}",
            location=("", None, who),
            keywords={},
            outcome="failed",
            longrepr=message,
            when="teardown",
        )
        reporter.stats.setdefault("error", []).append(report)
        if session.config.getoption("instafail", False):  # it omits pytest's list of errors
            reporter.write_line(f"{who}: {message}")
    if messages and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class SpirvCheck:
    """Collects the modules that the session emits, and validates each at its end."""

    def __init__(self) -> None:
        self.kept = os.environ.get("VKCHI_DUMP_SPV", "")
        self.folder = Path(self.kept or tempfile.mkdtemp(prefix="vkchi-spv-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        os.environ["VKCHI_DUMP_SPV"] = str(self.folder)
        self.validated = 0

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        modules = sorted(self.folder.glob("*.spv"))
        if modules and shutil.which(SPIRV_VAL[0]) is None:
            fail_session(
                session, SPIRV_VAL[0], ["not on PATH: run `scripts/vulkan-driver --tests`"]
            )
            return
        with ThreadPoolExecutor(VALIDATORS) as pool:
            messages = [text for text in pool.map(validate_module, modules) if text]
        self.validated = len(modules)
        fail_session(session, SPIRV_VAL[0], messages)
        if not self.kept and not messages:
            shutil.rmtree(self.folder, ignore_errors=True)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.write_line(f"spirv-val: {self.validated} distinct modules checked")


class HangGuard:
    """Ends the process if a test does not return, after printing its name and the stack traces."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.stderr = os.dup(2)  # the terminal; tests run with another in its place

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        timer = threading.Timer(self.limit_s, self.end, (item.nodeid,))
        timer.daemon = True
        timer.start()
        yield
        timer.cancel()

    def end(self, name: str) -> None:
        text = (
            f"\n{name} did not return in {self.limit_s:.0f} s; its process is ended. It stands:\n"
        )
        os.write(self.stderr, text.encode())
        faulthandler.dump_traceback(self.stderr)
        os._exit(1)


def validate_module(path: Path) -> str:
    """Errors of spirv-val for one module; empty if there are none."""
    run = subprocess.run([*SPIRV_VAL, str(path)], capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return ""
    return f"{path}\n{run.stdout}{run.stderr}".rstrip()


def drop_notices_of_layer() -> None:
    """Remove the line with which newer layers name their log from captured output."""
    usual = subprocess.Popen.communicate

    def without(text: Any) -> Any:
        if isinstance(text, bytes):
            return re.sub(NOTICE_OF_LAYER.encode(), b"", text)
        return re.sub(NOTICE_OF_LAYER, "", text) if isinstance(text, str) else text

    def communicate(self: Any, *args: Any, **kwargs: Any) -> Any:
        return tuple(map(without, usual(self, *args, **kwargs)))

    subprocess.Popen.communicate = communicate  # type: ignore[method-assign]
    captured = pytest.CaptureFixture.readouterr

    def readouterr(self: Any) -> Any:
        found = captured(self)
        return type(found)(without(found.out), found.err)

    pytest.CaptureFixture.readouterr = readouterr  # type: ignore[method-assign]


class LayerCheck:
    """Loads the validation layer into the processes of the session, and collects its messages, with
    the names of the tests that began last: reports of workers may be late.

    The layers of all processes write to one FIFO. With a plain file, the layer of each process
    would replace its contents.
    """

    def __init__(self) -> None:
        if LAYER not in list_layers():
            raise pytest.UsageError(f"no {LAYER} here: run `scripts/vulkan-driver --tests`")
        self.folder = Path(tempfile.mkdtemp(prefix="vkchi-layer-"))
        fifo = self.folder / "log"
        os.mkfifo(fifo)
        self.pipe = os.open(fifo, os.O_RDWR)  # both ends, so that it never closes on a writer
        settings = LAYER_SETTINGS.format(log=fifo, accepted=ACCEPTED)
        (self.folder / "vk_layer_settings.txt").write_text(settings)
        os.environ["VK_LAYER_SETTINGS_PATH"] = str(self.folder)
        layers = [*filter(None, [os.environ.get("VK_INSTANCE_LAYERS")]), LAYER]
        os.environ["VK_INSTANCE_LAYERS"] = os.pathsep.join(layers)
        self.text = b""
        self.latest: deque[str] = deque(maxlen=6)  # names of tests
        self.complete = threading.Event()
        threading.Thread(target=self.read, daemon=True).start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.latest.append(nodeid)

    def read(self) -> None:
        """Collect output in an endless loop: a process that still ends must not block on a full
        pipe."""
        while True:
            found = os.read(self.pipe, 65536)
            self.text += found
            if found != END:
                self.text += f"(began last: {', '.join(tuple(self.latest))})\n".encode()
            if found.endswith(END):
                self.complete.set()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        os.write(self.pipe, END)
        self.complete.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)
        text = self.text.replace(END, b"").decode(errors="replace").strip()
        fail_session(session, "validation layer", [text] if text else [])


def list_layers() -> list[str]:
    """Names of the Vulkan layers that the loader knows."""
    try:
        enumerate_layers = ctypes.CDLL("libvulkan.so.1").vkEnumerateInstanceLayerProperties
    except OSError:
        return []
    count = ctypes.c_uint32()
    enumerate_layers(ctypes.byref(count), None)
    raw = ctypes.create_string_buffer(LAYER_PROPERTIES_BYTES * max(count.value, 1))
    enumerate_layers(ctypes.byref(count), raw)
    starts = range(0, LAYER_PROPERTIES_BYTES * count.value, LAYER_PROPERTIES_BYTES)
    return [ctypes.string_at(ctypes.addressof(raw) + start).decode() for start in starts]
