"""Raw functions, structs and constants of the `vulkan` package, and the check of every VkResult.

Importing this module does not load Vulkan; `load_vulkan` does. It loads only the file that declares
the raw functions, if it exists: the package's wrappers are slow. Structs are created by their
Vulkan name; the sType is derived from it:

    vk = load_vulkan()
    info = vk.new("VkFenceCreateInfo", flags=0)
    vk.check(vk.lib.vkCreateFence(device, info, vk.NULL, out), "making a fence")
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import Any

from vkchi import platform
from vkchi.errors import DeviceError
from vkchi.interrupts.local import is_file, local

PACKAGE = "vulkan._vulkan"
DECLARATIONS = "vulkan._vulkancache"  # the C declarations for cffi
FORKED = (
    "this process was forked from one that had a device open, which no driver survives: start "
    "processes with multiprocessing's `spawn` method, or call init() in the children alone"
)
SUCCESS, TIMEOUT, INCOMPLETE = 0, 2, 5
OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_LOST = -1, -2, -4
INCOMPATIBLE_DRIVER = -9

SENTENCES: dict[int, str] = {
    -1: "the host ran out of memory while {doing}",
    -2: "the device ran out of memory while {doing}",
    -3: "the Vulkan driver could not start while {doing}: is the device in use, its driver broken?",
    -4: "the device was lost while {doing}: a kernel ran too long for the driver, or wrote where "
    "it must not; start again with init()",
    -5: "the driver could not map memory while {doing}",
    -6: "a Vulkan layer is missing while {doing}",
    -7: "a Vulkan extension is missing while {doing}",
    -8: "the device lacks a feature needed for {doing}",
    -9: "no Vulkan driver was found: {hint}",
    -10: "the driver has no room for more objects while {doing}",
}


class OutOfMemory(DeviceError):
    """Error: the host or the device is out of memory. `Device.allocate` catches it, frees garbage,
    and retries."""


class NoDriver(DeviceError):
    """Error: the loader found no driver, or no driver with a device."""


class DeviceLost(DeviceError):
    """Error: the device is lost. The recorder then raises DeviceError for later commands."""


class StructMemory(bytearray):
    """Memory of a struct or an array that keeps the objects it points to alive.

    A destructor (`ffi.gc`) cannot do this: the garbage collector runs all destructors of a cycle
    before it detects a resurrection.
    """

    __slots__ = ("kept",)
    kept: list[Any]


class Vulkan:
    """Functions (`lib`), structs (`ffi`) and constants (`const`) of the Vulkan loader."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi, self.lib, self.const = ffi, lib, lib
        self.NULL = ffi.NULL
        self._types: dict[str, tuple[int | None, dict[str, Any]]] = {}

    def new(self, name: str, **fields: Any) -> Any:
        """Return a pointer to a new struct called `name`, with its sType set; it keeps all that it
        points to alive.

        A `bytes` value becomes a C string, a list an array of the field's item type.
        """
        memory = StructMemory(self.ffi.sizeof(name))
        struct = self.ffi.from_buffer(name + " *", memory)
        structure_type, types = self._types.get(name) or self._describe(name)
        if structure_type is not None:
            struct.sType = structure_type
        memory.kept = kept = []
        for field, value in fields.items():
            if isinstance(value, (bytes, list)):
                value = self._new_array(types[field], value)
            setattr(struct, field, value)
            kept.append(value)
        return struct

    def _describe(self, name: str) -> tuple[int | None, dict[str, Any]]:
        types = {field: row.type for field, row in self.ffi.typeof(name).fields}
        has_type = "sType" in types
        structure_type = getattr(self.const, name_structure_type(name)) if has_type else None
        self._types[name] = structure_type, types
        return self._types[name]

    def _new_array(self, pointer_type: Any, values: bytes | list[Any]) -> Any:
        if isinstance(values, bytes):
            return self.ffi.new("char[]", values)
        if not values:
            return self.NULL
        strings = [self.ffi.new("char[]", v) if isinstance(v, bytes) else v for v in values]
        if pointer_type.item.kind == "struct":
            strings = [value[0] for value in strings]
        kind = f"{pointer_type.item.cname}[]"
        made = self.ffi.new(kind, strings)
        memory = StructMemory(self.ffi.buffer(made))
        memory.kept = [values, strings]
        return self.ffi.from_buffer(kind, memory)

    def create(self, function: Any, owner: Any, info: Any, kind: str, doing: str) -> Any:
        """Call `function(owner, info, NULL, out)`; return the handle of type `kind`. Raises
        DeviceError."""
        out = self.ffi.new(kind + " *")
        return self.take(function(owner, info, self.NULL, out), out, doing)

    def take(self, result: int, out: Any, doing: str) -> Any:
        """Return the handle that a call stored in `out`. Raises as `check`; OutOfMemory without a
        handle."""
        self.check(result, doing)
        if not out[0]:
            self.check(OUT_OF_HOST_MEMORY, doing)
        return out[0]

    def enumerate(self, function: Any, kind: str, *owner: Any) -> list[Any]:
        """Return all items of a call that takes a count and an array, and may return
        VK_INCOMPLETE."""
        count = self.ffi.new("uint32_t *")
        while True:
            self._check_if_result(function(*owner, count, self.NULL), kind)
            items = self.ffi.new(kind + "[]", max(count[0], 1))
            result = function(*owner, count, items)
            if result != INCOMPLETE:
                self._check_if_result(result, kind)
                return [self._copy_item(items[i]) for i in range(count[0])]

    def _copy_item(self, item: Any) -> Any:
        kind = self.ffi.typeof(item)
        return self.ffi.new(kind.cname + " *", item) if kind.kind == "struct" else item

    def _check_if_result(self, result: int | None, kind: str) -> None:
        if result is not None:
            self.check(result, f"listing what there is of {kind}")

    def check(self, result: int, doing: str) -> None:
        """Raise DeviceError or a subclass, with a sentence about `doing`, if `result` is
        negative."""
        if result >= SUCCESS:
            return
        sentence = SENTENCES.get(result, "{doing} failed (" + self.name_result(result) + ")")
        hint = platform.driver_hint() if result == INCOMPATIBLE_DRIVER else ""
        raise EXCEPTIONS.get(result, DeviceError)(sentence.format(doing=doing, hint=hint))

    def name_result(self, result: int) -> str:
        """Return the name `VK_ERROR_...` of a VkResult; "VkResult -99" for an unknown one."""
        names: dict[int, str] = self.ffi.typeof("VkResult").elements
        return names.get(result, f"VkResult {result}")

    def find_function(self, name: str, instance: Any) -> Any:
        """The instance-level extension function `name`. Raises DeviceError if it is absent."""
        address = self.lib.vkGetInstanceProcAddr(instance, name.encode())
        if address == self.NULL:
            raise DeviceError(f"the Vulkan driver has no function {name}")
        return self.ffi.cast("PFN_" + name, address)


EXCEPTIONS: dict[int, type[DeviceError]] = {
    OUT_OF_HOST_MEMORY: OutOfMemory,
    OUT_OF_DEVICE_MEMORY: OutOfMemory,
    DEVICE_LOST: DeviceLost,
    INCOMPATIBLE_DRIVER: NoDriver,
}


class DeviceCalls:
    """Functions of one logical device, loaded at first use: `calls.vkCmdDispatch(...)`. Raises
    DeviceError for a function that the driver lacks."""

    def __init__(self, vk: Vulkan, device: Any) -> None:
        self._vk, self._device = vk, device

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("vk"):
            raise AttributeError(name)
        address = self._vk.lib.vkGetDeviceProcAddr(self._device, name.encode())
        if address == self._vk.NULL:
            raise DeviceError(f"the Vulkan driver has no function {name}")
        function = self._vk.ffi.cast("PFN_" + name, address)
        setattr(self, name, function)
        return function


def name_structure_type(name: str) -> str:
    """Return the `VK_STRUCTURE_TYPE_...` of a struct name.

    >>> name_structure_type("VkPhysicalDeviceVulkan12Features")
    'VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES'
    """
    words = "VK_STRUCTURE_TYPE"
    for last, c, after in zip(name[1:], name[2:], f"{name[3:]} "):  # a regex costs 3 ms
        ends_word = last.islower() or (last.isdigit() and c.isupper())
        begins_word = last.isupper() and c.isupper() and after.islower()
        words += "_" * ((ends_word and not c.islower()) or begins_word) + c.upper()
    return words.replace("VULKAN_1", "VULKAN_1_")


def load_vulkan() -> Vulkan:
    """Load the Vulkan loader of this machine. Raises DeviceError if it or the `vulkan` package is
    missing, and after `forbid_vulkan`."""
    if PACKAGE in sys.modules and sys.modules[PACKAGE] is None:
        raise DeviceError(FORKED)
    try:
        return Vulkan(*load_bindings())
    except ModuleNotFoundError as error:
        raise DeviceError("the Python package `vulkan` is missing: pip install vulkan") from error
    except local(OSError) as error:
        raise DeviceError(
            f"no Vulkan loader (libvulkan) was found: {platform.driver_hint()}"
        ) from error


def load_bindings() -> tuple[Any, Any]:
    """Return the cffi objects of the `vulkan` package: declarations and loader. Raises
    ModuleNotFoundError, OSError."""
    package = find_spec("vulkan")
    folder = next(iter(package.submodule_search_locations or ()), "") if package else ""
    place = os.path.join(folder, "_vulkancache.py")
    if PACKAGE in sys.modules or not is_file(place):
        whole = importlib.import_module(PACKAGE)
        return whole.ffi, whole.lib
    ffi = load_file(DECLARATIONS, place).ffi
    *others, last = platform.loader_paths()
    for path in others:
        try:
            return ffi, ffi.dlopen(path)
        except local(OSError):
            continue
    return ffi, ffi.dlopen(last)


def load_file(name: str, place: str) -> Any:
    """Return module `name`, loaded from its file into `sys.modules` without the package around
    it."""
    if name not in sys.modules:
        spec = spec_from_file_location(name, place)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def forbid_vulkan() -> None:
    """Make every later `load_vulkan` of this process raise DeviceError. Used in a child forked
    while a device was open: drivers keep threads and locks that the child has only in part."""
    modules: dict[str, Any] = sys.modules  # Python raises on import of a None entry
    modules[PACKAGE] = None
