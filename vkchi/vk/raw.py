"""The `vulkan` package's raw functions, structs and constants, and the check of every result.

Owns: finding the loader, making structs, turning a VkResult into a `DeviceError`. Must not know:
what is called or why. Importing this module does not load Vulkan; `load_vulkan` does.

The package's own wrappers build structs and raise their own exceptions; the raw functions under
them cost a third as much, and the wrappers' 22,000 lines take 15 ms to load: all of vkchi uses the
functions, and of the package only the file that declares them is loaded. A struct is made by its
Vulkan name, its sType is derived from the name:

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

from vkchi.errors import DeviceError
from vkchi.interrupts.local import is_file, local

PACKAGE = "vulkan._vulkan"
DECLARATIONS = "vulkan._vulkancache"  # what C declares, as cffi reads it
LOADERS = ("libvulkan.so.1", "vulkan-1.dll", "libvulkan.dylib")
FORKED = (
    "this process was forked from one that had a device open, which no driver survives: start "
    "processes with multiprocessing's `spawn` method, or call init() in the children alone"
)
INSTALL_HINT = (
    "install one for your GPU, or a software one: `apt-get install mesa-vulkan-drivers` on "
    "Debian and Ubuntu, or `scripts/vulkan-driver` in a source checkout of vkchi"
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
    -9: "no Vulkan driver was found: " + INSTALL_HINT,
    -10: "the driver has no room for more objects while {doing}",
}


class OutOfMemory(DeviceError):
    """An allocation failed; caught by the heap, which frees what it can and tries again."""


class NoDriver(DeviceError):
    """The loader found no driver, or none that has a device."""


class DeviceLost(DeviceError):
    """The device is gone; the recorder refuses everything after it."""


class Memory(bytearray):
    """Memory of a struct or an array, which keeps what is pointed to from there alive.

    Not a destructor's business (`ffi.gc`): the collector runs those of a whole circle of garbage
    before it sees that some object of it, a device that nobody closed, comes back to life.
    """

    __slots__ = ("kept",)
    kept: list[Any]


class Vulkan:
    """Functions, structs and constants of the Vulkan loader.

    `ffi` and `lib` are cffi's; `const` holds every VK_ constant.
    """

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi, self.lib, self.const = ffi, lib, lib
        self.NULL = ffi.NULL
        self._types: dict[str, tuple[int | None, dict[str, Any]]] = {}

    def new(self, name: str, **fields: Any) -> Any:
        """Pointer to a new struct called `name`, its sType set, keeping what it points to alive.

        A `bytes` value becomes a C string, a list an array of the field's item type.
        """
        memory = Memory(self.ffi.sizeof(name))
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
        """(sType or None, type of each field) of a struct."""
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
        memory = Memory(self.ffi.buffer(made))
        memory.kept = [values, strings]
        return self.ffi.from_buffer(kind, memory)

    def create(self, function: Any, owner: Any, info: Any, kind: str, doing: str) -> Any:
        """The handle of type `kind` that `function(owner, info, NULL, out)` makes."""
        out = self.ffi.new(kind + " *")
        return self.take(function(owner, info, self.NULL, out), out, doing)

    def take(self, result: int, out: Any, doing: str) -> Any:
        """The handle that a call put into `out`. A success without one is a lack of memory."""
        self.check(result, doing)
        if not out[0]:
            self.check(OUT_OF_HOST_MEMORY, doing)
        return out[0]

    def enumerate(self, function: Any, kind: str, *owner: Any) -> list[Any]:
        """All items of a call that takes a count and an array, and may return VK_INCOMPLETE."""
        count = self.ffi.new("uint32_t *")
        while True:
            self._check_if_result(function(*owner, count, self.NULL), kind)
            items = self.ffi.new(kind + "[]", max(count[0], 1))
            result = function(*owner, count, items)
            if result != INCOMPLETE:
                self._check_if_result(result, kind)
                return [self._copy_item(items[i]) for i in range(count[0])]

    def _copy_item(self, item: Any) -> Any:
        """A handle itself; a struct as a pointer that owns its bytes (an array's item does not)."""
        kind = self.ffi.typeof(item)
        return self.ffi.new(kind.cname + " *", item) if kind.kind == "struct" else item

    def _check_if_result(self, result: int | None, kind: str) -> None:
        if result is not None:
            self.check(result, f"listing what there is of {kind}")

    def check(self, result: int, doing: str) -> None:
        """Raise DeviceError, with one sentence about `doing`, unless the result is a success."""
        if result >= SUCCESS:
            return
        sentence = SENTENCES.get(result, "{doing} failed (" + self.name_result(result) + ")")
        raise EXCEPTIONS.get(result, DeviceError)(sentence.format(doing=doing))

    def name_result(self, result: int) -> str:
        """`VK_ERROR_...` for a VkResult."""
        names: dict[int, str] = self.ffi.typeof("VkResult").elements
        return names.get(result, f"VkResult {result}")

    def find_function(self, name: str, instance: Any) -> Any:
        """Instance-level extension function `name`. Raises DeviceError where it is absent."""
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
    """Functions of one logical device, found when first used: `calls.vkCmdDispatch(...)`.

    Pointers from vkGetDeviceProcAddr skip the loader's trampoline.
    """

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
    """`VK_STRUCTURE_TYPE_...` of a struct name.

    >>> name_structure_type("VkPhysicalDeviceVulkan12Features")
    'VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES'
    """
    words = "VK_STRUCTURE_TYPE"
    for last, c, after in zip(name[1:], name[2:], f"{name[3:]} "):  # no pattern: 3 ms
        ends_word = last.islower() or (last.isdigit() and c.isupper())
        begins_word = last.isupper() and c.isupper() and after.islower()
        words += "_" * ((ends_word and not c.islower()) or begins_word) + c.upper()
    return words.replace("VULKAN_1", "VULKAN_1_")


def load_vulkan() -> Vulkan:
    """The Vulkan loader of this machine. Raises DeviceError where there is none."""
    if PACKAGE in sys.modules and sys.modules[PACKAGE] is None:
        raise DeviceError(FORKED)
    try:
        return Vulkan(*load_bindings())
    except ModuleNotFoundError as error:
        raise DeviceError("the Python package `vulkan` is missing: pip install vulkan") from error
    except local(OSError) as error:
        raise DeviceError(
            "no Vulkan loader (libvulkan) was found: `apt-get install libvulkan1 "
            "mesa-vulkan-drivers` on Debian and Ubuntu, or the Vulkan SDK elsewhere"
        ) from error


def load_bindings() -> tuple[Any, Any]:
    """cffi's objects of the package: what is declared, and the loader. Raises ModuleNotFoundError,
    OSError."""
    package = find_spec("vulkan")
    folder = next(iter(package.submodule_search_locations or ()), "") if package else ""
    place = os.path.join(folder, "_vulkancache.py")
    if PACKAGE in sys.modules or not is_file(place):
        whole = importlib.import_module(PACKAGE)
        return whole.ffi, whole.lib
    ffi = load_file(DECLARATIONS, place).ffi
    for name in LOADERS[:-1]:
        try:
            return ffi, ffi.dlopen(name)
        except local(OSError):
            continue
    return ffi, ffi.dlopen(LOADERS[-1])


def load_file(name: str, place: str) -> Any:
    """The module called `name`, from its file: without the package that it is in."""
    if name not in sys.modules:
        spec = spec_from_file_location(name, place)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def forbid_vulkan() -> None:
    """Make `load_vulkan` refuse from now on, in a child forked while a device was open.

    Drivers keep threads and locks that the child has only in part: SwiftShader hangs there,
    lavapipe dies at the end.
    """
    modules: dict[str, Any] = sys.modules  # None is Python's own mark for what may not be imported
    modules[PACKAGE] = None
