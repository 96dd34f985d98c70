"""A Vulkan instance, optionally with the validation layer and its messages.

instance = open_instance(load_vulkan())
handles = instance.list_handles()
instance.close()

Also diagnoses the loader's environment variables and the driver manifests they name, JSON files
that name a driver's library. Source: Vulkan-Loader, docs/LoaderDriverInterface.md, "Driver
Discovery".
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

from vkchi import env, platform
from vkchi.errors import DeviceError
from vkchi.interrupts.local import local
from vkchi.interrupts.weak import interrupt_again, run_each_once
from vkchi.vk.physical import Physical, read_all
from vkchi.vk.raw import INCOMPATIBLE_DRIVER, NoDriver, OutOfMemory, Vulkan, load_vulkan

API_VERSION = (1 << 22) | (3 << 12)
VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"
PORTABILITY = "VK_KHR_portability_enumeration"
DEBUG_UTILS = "VK_EXT_debug_utils"
VALIDATION_FEATURES = "VK_EXT_validation_features"
WARNING_AND_ERROR = 0x1100
GENERAL_VALIDATION_PERFORMANCE = 0x7


class Instance:
    """A VkInstance with an optional debug messenger.

    `messages` collects the validation layer's messages. `ending` is an iterator that destroys the
    instance step by step; its devices must be destroyed before.
    """

    def __init__(self, vk: Vulkan) -> None:
        self.vk = vk
        self.messages: list[str] = []
        self.has_validation = env.is_on("VKCHI_VALIDATE")
        self._callback = self._new_callback() if self.has_validation else None
        self.handle = handle = self._create()
        self.ending: Iterator[None] = run_each_once(
            partial(vk.lib.vkDestroyInstance, handle, vk.NULL)
        )
        if self.has_validation:
            self.ending = chain(run_each_once(self._listen(handle)), self.ending)

    def _listen(self, handle: Any) -> partial[None]:
        vk = self.vk
        create = vk.find_function("vkCreateDebugUtilsMessengerEXT", handle)
        destroy = vk.find_function("vkDestroyDebugUtilsMessengerEXT", handle)
        messenger = vk.create(
            create, handle, self._messenger_info(), "VkDebugUtilsMessengerEXT",
            "listening to the validation layer",
        )  # fmt: skip
        return partial(destroy, handle, messenger, vk.NULL)

    def _create(self) -> Any:
        vk, const = self.vk, self.vk.const
        layers, extensions, chain, flags = [], [], vk.NULL, 0
        if self.has_validation:
            if VALIDATION_LAYER not in list_layers(vk):
                raise DeviceError(
                    f"VKCHI_VALIDATE is set but {VALIDATION_LAYER} is not installed: "
                    f"{platform.layer_hint()}, or unset VKCHI_VALIDATE"
                )
            layers, extensions = [VALIDATION_LAYER.encode()], [DEBUG_UTILS.encode()]
            chain = self._messenger_info()
            if env.flag("VKCHI_VALIDATE") == "sync":
                extensions.append(VALIDATION_FEATURES.encode())
                chain = self._synchronization_info(chain)
        if PORTABILITY in list_extensions(vk):
            extensions.append(PORTABILITY.encode())
            flags = const.VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR
        application = vk.new("VkApplicationInfo", pEngineName=b"vkchi", apiVersion=API_VERSION)
        info = vk.new(
            "VkInstanceCreateInfo", pNext=chain, flags=flags, pApplicationInfo=application,
            enabledLayerCount=len(layers), ppEnabledLayerNames=layers,
            enabledExtensionCount=len(extensions), ppEnabledExtensionNames=extensions,
        )  # fmt: skip
        out = vk.ffi.new("VkInstance *")
        return vk.take(vk.lib.vkCreateInstance(info, vk.NULL, out), out, "starting Vulkan")

    def _messenger_info(self) -> Any:
        return self.vk.new(
            "VkDebugUtilsMessengerCreateInfoEXT",
            messageSeverity=WARNING_AND_ERROR,
            messageType=GENERAL_VALIDATION_PERFORMANCE,
            pfnUserCallback=self._callback,
        )

    def _synchronization_info(self, chain: Any) -> Any:
        sync = self.vk.const.VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
        return self.vk.new(
            "VkValidationFeaturesEXT", pNext=chain, enabledValidationFeatureCount=1,
            pEnabledValidationFeatures=self.vk.ffi.new("VkValidationFeatureEnableEXT[]", [sync]),
        )  # fmt: skip

    def _new_callback(self) -> Any:
        messages, ffi = self.messages, self.vk.ffi

        def keep(_severity: int, _types: int, data: Any, _user: Any) -> int:
            messages.append(ffi.string(data.pMessage).decode(errors="replace"))
            return 0

        # Only an interrupt can end `keep` early: it loses the message, and is raised again.
        name = "PFN_vkDebugUtilsMessengerCallbackEXT"
        return ffi.callback(name, keep, onerror=interrupt_again)

    def list_handles(self) -> list[Any]:
        """Return the VkPhysicalDevice handles, in the loader's order. Raises NoDriver if there is
        no driver or no device."""
        vk = self.vk
        count = vk.ffi.new("uint32_t *")
        result = vk.lib.vkEnumeratePhysicalDevices(self.handle, count, vk.NULL)
        if result == INCOMPATIBLE_DRIVER or (result >= 0 and not count[0]):
            why = explain_broken_files() or explain_choice() or platform.driver_hint()
            raise NoDriver("no Vulkan device was found: " + why)
        return vk.enumerate(vk.lib.vkEnumeratePhysicalDevices, "VkPhysicalDevice", self.handle)

    def close(self) -> None:
        """Destroy the instance; its devices must be destroyed already. Idempotent."""
        for _ in self.ending:
            pass
        self.handle = None


def open_instance(vk: Vulkan) -> Instance:
    """Create a Vulkan 1.3 instance. Raises NoDriver, a DeviceError, without a driver; DeviceError
    if VKCHI_VALIDATE is set and the validation layer is missing."""
    try:
        return Instance(vk)
    except (NoDriver, OutOfMemory) as e:  # loaders report invalid manifests as out of memory
        why = explain_broken_files()
        if not why and isinstance(e, NoDriver):
            why = explain_choice()
        if why:
            raise NoDriver("no Vulkan driver was found: " + why) from None
        raise


def physical_devices() -> list[Physical]:
    """Return the properties of each physical device. Raises DeviceError if there is no Vulkan
    loader, no driver or no device."""
    instance = open_instance(load_vulkan())
    try:
        return read_all(instance.vk, instance.list_handles())
    finally:
        instance.close()


def list_layers(vk: Vulkan) -> frozenset[str]:
    found = vk.enumerate(vk.lib.vkEnumerateInstanceLayerProperties, "VkLayerProperties")
    return frozenset(vk.ffi.string(layer.layerName).decode() for layer in found)


def list_extensions(vk: Vulkan) -> frozenset[str]:
    call = vk.lib.vkEnumerateInstanceExtensionProperties
    found = vk.enumerate(call, "VkExtensionProperties", vk.NULL)
    return frozenset(vk.ffi.string(extension.extensionName).decode() for extension in found)


# --- the loader's environment --------------------------------------------------------------------


DRIVER_FILES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")  # the first that is set takes effect
DRIVER_FILTERS = ("VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE")


def explain_broken_files() -> str:
    """Return a sentence with the faults of the manifests in VK_DRIVER_FILES or VK_ICD_FILENAMES.

    Only the first of these variables that is set counts. "" if neither is set, or if all manifests
    are valid; a variable that names no file is a fault.
    """
    name = next((name for name in DRIVER_FILES if name in os.environ), None)
    if name is None:
        return ""
    files = [file for file in os.environ[name].split(os.pathsep) if file]
    problems = [f"{file} {problem}" for file in files if (problem := find_problem(file))]
    if files and not problems:
        return ""
    found = "; ".join(problems) or "it names none"
    return f"{name} chooses the drivers here, and {found}; correct or unset it"


def explain_choice() -> str:
    """A sentence with the variables that choose drivers and their values; "" if none is set."""
    chosen = [
        f"{name}={os.environ[name]}"
        for name in (*DRIVER_FILES, *DRIVER_FILTERS)
        if name in os.environ
    ]
    return f"{' and '.join(chosen)} leave none; correct or unset them" if chosen else ""


def find_problem(file: str) -> str:
    """Return the fault of a driver's manifest, as the end of a sentence; "" if it is valid. It is
    valid if it names a library that can be loaded, which is tried."""
    try:
        with open(file, "rb") as opened:
            manifest = json.load(opened)
        library = manifest["ICD"]["library_path"]
    except local(FileNotFoundError):
        return "does not exist"
    except local(OSError) as e:
        return f"cannot be read ({e.strerror})"
    except local(ValueError, KeyError, TypeError, RecursionError):
        return "is no manifest of a Vulkan driver (JSON with an ICD and its library_path)"
    if not isinstance(library, str):
        return "has a library_path that is no text"
    if platform.has_folder(library) and not os.path.isabs(library):
        library = os.path.join(os.path.dirname(os.path.abspath(file)), library)
    try:
        ctypes.CDLL(library)
    except local(OSError, ValueError) as e:
        return f"names a library that cannot be loaded ({e})"
    return ""
