"""No interrupt is lost in destructors, nor in callbacks of drivers: none is Python code."""

from __future__ import annotations

import gc
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import vkchi
from tests.e2e.torture import Trace
from tests.unit.test_device_processes import WORK, check_output, run_python
from vkchi.device import ABANDONED, Device, close_abandoned, open_device
from vkchi.interrupts.weak import (
    finalize_after_all,
    interrupt_again,
    resurrecting_del,
    run_each_once,
)
from vkchi.vk.instance import Instance
from vkchi.vk.raw import load_vulkan

pytestmark = pytest.mark.device


class Thing:
    """Something that can go."""


def test_no_module_uses_weak_collections_of_the_standard_library() -> None:
    names = ("WeakKeyDictionary", "WeakValueDictionary", "WeakSet")
    found = [
        path
        for path in Path(vkchi.__file__).parent.rglob("*.py")
        if any(name in path.read_text(encoding="utf-8") for name in names)
    ]
    assert not found, "their callbacks are Python code: use vkchi.interrupts.weak"


def calls_during(act: Callable[[], object]) -> list[str]:
    """The functions in Python that are called while `act`, C code, runs."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _arg: object) -> None:
        called.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")

    before = sys.gettrace()
    sys.settrace(note)
    try:
        act()
    finally:
        sys.settrace(before)
    return called


def is_over(steps: Iterator[None]) -> bool:
    """True if there is no step left; otherwise takes one."""
    return next(steps, "over") == "over"


@pytest.fixture
def without_collector(own_collections: None) -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# --- the parts ------------------------------------------------------------------------------------


def test_deeds_are_done_when_the_last_is_gone() -> None:
    done: list[int] = []
    things = [Thing() for _ in range(3)]
    kept = finalize_after_all(
        things, run_each_once(partial(done.append, 1), partial(done.append, 2))
    )
    assert calls_during(things.pop) == [] and calls_during(things.pop) == []
    assert done == []
    assert calls_during(things.pop) == [] and done == [1, 2]
    assert all(ref() is None for ref in kept)


def test_no_work_after_references_are_released() -> None:
    done: list[int] = []
    things = [Thing()]
    kept = finalize_after_all(things, run_each_once(partial(done.append, 1)))
    kept.clear()
    things.clear()
    assert done == []


def test_destructor_runs_once() -> None:
    done: list[int] = []
    steps = run_each_once(partial(done.append, 1), partial(done.append, 2))
    next(steps)
    things = [Thing()]
    kept = finalize_after_all(things, steps)
    things.clear()
    assert kept and done == [1, 2] and is_over(steps)


@pytest.mark.parametrize("is_cycle", [False, True])
def test_an_object_is_handed_over(is_cycle: bool, without_collector: None) -> None:
    to: deque[Any] = deque()
    things = [type("Given", (), {"__del__": resurrecting_del(to), "me": None})()]
    known = id(things[0])
    if is_cycle:
        things[0].me = things[0]
    assert calls_during(things.clear) == []
    assert calls_during(gc.collect) == []
    assert [id(thing) for thing in to] == [known]
    to[0].me = None
    to.clear()
    assert not to, "it is handed over once"


# --- a device that nobody closed ------------------------------------------------------------------


def test_a_device_goes_without_python_code(without_collector: None) -> None:
    gc.collect()  # devices of other tests
    close_abandoned()
    devices = [open_device()]
    devices[0].fill(devices[0].allocate(64), 0, 64, 7)  # recorded, and not waited for
    known, instance = id(devices[0]), devices[0]._instance
    assert calls_during(devices.clear) == []
    assert calls_during(gc.collect) == []
    assert known in map(id, ABANDONED) and instance is not None and instance.handle is not None
    close_abandoned()
    assert not ABANDONED and instance.handle is None


def lines_of(act: Callable[[], None]) -> list[int]:
    """When the lines that end devices, memory and drivers are first come to."""
    trace = Trace(0, opcodes=False)
    trace.run(act)
    names = tuple(f"{name}.py" for name in ("device", "heap", "logical", "instance", "callbacks"))
    return [at for (name, _), at in trace.first.items() if name.endswith(names)]


def interrupted_at(at: int, act: Callable[[], None], *, opcodes: bool = False) -> bool:
    """True if `act` was interrupted at the `at`-th line, or bytecode, of ours; it has fewer where
    not."""
    trace = Trace(at, opcodes=opcodes)
    is_interrupted = trace.run(act)
    assert is_interrupted == trace.is_done, "an interrupt was lost"
    return is_interrupted


@pytest.mark.parametrize("has_view", [False, True])
def test_closing_can_be_interrupted_at_every_line_and_repeated(has_view: bool) -> None:
    for at in lines_of(open_used(has_view=has_view)[0].close):
        device, view = open_used(has_view=has_view)
        interrupted_at(at, device.close)
        device.close()
        assert device.closed
        endings = device._logical.ending, device._instance.ending  # type: ignore[union-attr]
        del view
        assert all(map(is_over, endings))


def open_used(*, has_view: bool) -> tuple[Device, Any]:
    device = open_device()
    x = device.allocate(64)
    device.fill(x, 0, 64, 7)
    return device, np.frombuffer(x.view, np.uint8) if has_view and x.view is not None else None


def test_closing_abandoned_devices_can_be_interrupted_at_every_line() -> None:
    gc.collect()
    close_abandoned()
    open_used(has_view=False)
    gc.collect()
    for at in lines_of(close_abandoned)[::4]:
        open_used(has_view=False)
        gc.collect()
        assert ABANDONED
        interrupted_at(at, close_abandoned)
        close_abandoned()
        assert not ABANDONED


# --- views of memory that outlive their device ----------------------------------------------------


def open_viewed(count: int) -> tuple[Device, list[Any]]:
    device = open_device()
    if not device.unified:
        device.close()
        pytest.skip("no views of staged memory")
    sizes = (64, 64, 65 << 20)[:count]  # the last in a block of its own
    return device, [np.frombuffer(device.allocate(size).view or b"", np.uint8) for size in sizes]


def test_the_last_view_goes_without_python_code(without_collector: None) -> None:
    device, views = open_viewed(3)
    views[0][5] = 7
    device.close()
    assert device._instance is not None
    endings = device._logical.ending, device._instance.ending
    devices = [device]
    del device
    assert calls_during(devices.clear) == []
    close_abandoned()
    assert views[0][5] == 7 and views[2].sum() == 0
    for _ in range(3):
        assert calls_during(views.pop) == []
    assert all(map(is_over, endings))


def test_the_layer_finds_nothing_left_when_the_last_view_is_gone() -> None:
    source = WORK.format(staged=False) + (
        "views = [np.frombuffer(b.view, 'u1') for b in (x, y, z) if b.view is not None]\n"
        "far = saxpy = x = y = None\n"
        "device.close()\n"
        "views.pop(); views.clear()\n"
        "print(next(device._instance.ending, 'over'), device.messages)"
    )
    assert check_output(source, VKCHI_VALIDATE="1") == "over []"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_the_last_view_in_a_forked_child_ends_nothing() -> None:
    """The driver's threads are not there: it would hang."""
    source = WORK.format(staged=False) + (
        "import os\n"
        "views = [np.frombuffer(y.view, 'u1')] if y.view is not None else []\n"
        "x = y = z = far = saxpy = None\n"
        "device.close()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    views.clear()\n"
        "    os._exit(0)\n"
        "print(os.waitpid(child, 0)[1])\n"
        "views.clear()\n"
        "print(next(device._instance.ending, 'over'))"
    )
    assert check_output(source) == "0\nover"


# --- calls by the validation layer ----------------------------------------------------------------


def new_callback() -> tuple[Any, Any, list[str]]:
    """The callback, something to call it with, and where it puts messages."""
    instance = Instance.__new__(Instance)
    instance.vk, instance.messages = load_vulkan(), []
    data = instance.vk.new("VkDebugUtilsMessengerCallbackDataEXT", pMessage=b"a message")
    return instance._new_callback(), data, instance.messages


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_at_every_bytecode_of_the_callback_comes(capfd: Any) -> None:
    callback, data, messages = new_callback()
    null = load_vulkan().NULL
    callback(1, 1, data, null)
    assert messages == ["a message"]
    trace = Trace(0, opcodes=True)
    trace.run(partial(callback, 1, 1, data, null))
    assert trace.count > 10
    for at in range(1, trace.count + 1):
        assert interrupted_at(at, partial(callback, 1, 1, data, null), opcodes=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("ctrl_c")
def test_c_code_interrupts_again() -> None:
    with pytest.raises(KeyboardInterrupt):
        assert calls_during(partial(interrupt_again, KeyboardInterrupt, None, None)) == []


# --- the end of the process -----------------------------------------------------------------------


def test_an_interrupt_on_the_threshold_of_the_end_leaves_a_closed_device() -> None:
    """Python swallows exceptions at the first bytecode of a function that it calls at the end: the
    device is closed all the same."""
    source = WORK.format(staged=False) + (
        "import atexit, sys\n"
        "import vkchi.device\n"
        "d = sys.modules['vkchi.device']\n"
        "def trace(frame, event, arg):\n"
        "    if frame.f_code is d.end_all.__code__:\n"
        "        sys.settrace(None)\n"
        "        raise KeyboardInterrupt\n"
        "last = device._instance\n"
        "atexit.unregister(d.end_all)\n"
        "atexit.register(lambda: print(last.handle))\n"
        "atexit.register(d.end_all); atexit.register(d.end_all)\n"
        "atexit.register(sys.settrace, trace)\n"
    )
    done = run_python(source)
    assert done.stdout == "None\n" and "KeyboardInterrupt" in done.stderr


def test_struct_pointees_outlive_resurrected_cycle() -> None:
    vk = load_vulkan()
    came_back: deque[Any] = deque()

    class Owner:
        __del__ = resurrecting_del(came_back)

    owner: Any = Owner()
    owner.me = owner
    barrier = vk.new("VkMemoryBarrier2", srcStageMask=5)
    owner.info = vk.new("VkDependencyInfo", memoryBarrierCount=1, pMemoryBarriers=[barrier])
    owner.one = vk.new("VkSubmitInfo2", pNext=barrier)
    del owner, barrier
    gc.collect()
    others = [vk.new("VkMemoryBarrier2", srcStageMask=9) for _ in range(1000)]  # its old line
    (found,) = came_back
    assert others
    assert found.info.pMemoryBarriers[0].srcStageMask == 5
    assert vk.ffi.cast("VkMemoryBarrier2 *", found.one.pNext).srcStageMask == 5
    assert found.info.pMemoryBarriers[0].sType == vk.const.VK_STRUCTURE_TYPE_MEMORY_BARRIER_2
    found.me = None


def test_a_device_in_a_circle_is_closed() -> None:
    gc.collect()
    close_abandoned()
    for _ in range(5):
        device: Any = open_device()
        buffers = [device.allocate(64) for _ in range(3)]
        device.fill(buffers[0], 0, 64, 7)
        device.wait()
        device.fill(buffers[1], 0, 64, 7)  # recorded, and not waited for
        device.me, device.buffers = device, buffers
        del device, buffers
        gc.collect()
        (found,) = ABANDONED
        close_abandoned()
        assert found.closed and not ABANDONED
        del found
        gc.collect()
        ABANDONED.clear()  # the closed object comes back once more
