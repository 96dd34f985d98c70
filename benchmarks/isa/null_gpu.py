"""A GPU's compiler without a GPU: Mesa's RADV with its null winsys offers a made-up device of a family
(`RADV_FORCE_FAMILY=navi31`), on which pipelines compile and nothing runs.

Owns: the environment of such a process, the device, what its compiler says of a pipeline. MESA_LIBS names the folder of
`libvulkan_radeon.so` where it is not the system's.

    subprocess.run([...], env=environment("navi31"))        # a process whose only Vulkan device is this one
    NullGpu().compile(words, push_bytes)                    # in it: (statistics, machine code)
"""

import json
import os
import tempfile

LIBS = os.environ.get("MESA_LIBS", "/usr/lib/x86_64-linux-gnu")


def environment(family, **more):
    """The environment of a process whose only Vulkan device is a made-up one of this family."""
    path = os.path.join(tempfile.gettempdir(), f"vkchi-null-gpu-{os.getuid()}.json")
    driver = {"api_version": "1.3.0", "library_path": f"{LIBS}/libvulkan_radeon.so"}
    with open(path, "w") as out:
        json.dump({"ICD": driver, "file_format_version": "1.0.0"}, out)
    return {
        **os.environ, "LD_LIBRARY_PATH": LIBS, "VK_DRIVER_FILES": path, "VK_ICD_FILENAMES": path,
        "MESA_SHADER_CACHE_DISABLE": "1", "RADV_FORCE_FAMILY": family, **more,
    }  # fmt: skip


class NullGpu:
    """The device of this process, opened with all that vkchi asks for and with compiler statistics."""

    def __init__(self):
        from vkchi.vk.instance import open_instance
        from vkchi.vk.physical import read_all
        from vkchi.vk.raw import DeviceCalls, load_vulkan

        self.vk = load_vulkan()
        self.physical = read_all(self.vk, open_instance(self.vk).list_handles())[0]
        self.handle = self._open()
        self.calls = DeviceCalls(self.vk, self.handle)

    def _open(self):
        from vkchi.vk.physical import EXTENSIONS, FEATURES, new_feature_chain

        vk, physical = self.vk, self.physical
        brought = [extension for _, extension, _ in FEATURES if extension]
        names = [n for n in (*EXTENSIONS, *brought) if n in physical.extensions]
        names.append("VK_KHR_pipeline_executable_properties")
        head, slots = new_feature_chain(vk, physical.extensions)
        for struct, field in slots:
            setattr(struct, field, field in physical.features)
        kind = "VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR"
        self.asked = vk.new(kind, pipelineExecutableInfo=1)  # kept alive with the chain
        self.asked.pNext = head.pNext
        head.pNext = self.asked
        queue = vk.new(
            "VkDeviceQueueCreateInfo", queueFamilyIndex=physical.queue_family, queueCount=1,
            pQueuePriorities=vk.ffi.new("float[]", [1.0]),
        )  # fmt: skip
        info = vk.new(
            "VkDeviceCreateInfo", pNext=head, queueCreateInfoCount=1, pQueueCreateInfos=queue,
            enabledExtensionCount=len(names), ppEnabledExtensionNames=[n.encode() for n in names],
        )  # fmt: skip
        return vk.create(vk.lib.vkCreateDevice, physical.handle, info, "VkDevice", "opening")

    def compile(self, words, push_bytes):
        """The compiler's statistics by name, and the machine code as text."""
        vk, calls = self.vk, self.calls
        code = vk.ffi.new("uint32_t[]", len(words) // 4)
        vk.ffi.memmove(code, words, len(words))
        info = vk.new("VkShaderModuleCreateInfo", codeSize=len(words), pCode=code)
        module = vk.create(
            calls.vkCreateShaderModule, self.handle, info, "VkShaderModule", "a module"
        )
        stage = vk.new(
            "VkPipelineShaderStageCreateInfo", stage=vk.const.VK_SHADER_STAGE_COMPUTE_BIT, module=module,
            pName=b"main",
        )  # fmt: skip
        flags = vk.const.VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR
        flags |= vk.const.VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR
        layout = self._layout(push_bytes)
        info = vk.new("VkComputePipelineCreateInfo", flags=flags, stage=stage[0], layout=layout)
        out = vk.ffi.new("VkPipeline *")
        made = calls.vkCreateComputePipelines(self.handle, vk.NULL, 1, info, vk.NULL, out)
        vk.check(made, "compiling")
        executable = vk.new("VkPipelineExecutableInfoKHR", pipeline=out[0], executableIndex=0)
        return self._statistics(executable), self._machine_code(executable)

    def _layout(self, push_bytes):
        vk = self.vk
        stage = vk.const.VK_SHADER_STAGE_COMPUTE_BIT
        part = vk.new("VkPushConstantRange", stageFlags=stage, size=max(push_bytes, 4))
        info = vk.new(
            "VkPipelineLayoutCreateInfo", pushConstantRangeCount=1, pPushConstantRanges=part
        )
        make = self.calls.vkCreatePipelineLayout
        return vk.create(make, self.handle, info, "VkPipelineLayout", "a layout")

    def _rows(self, call, kind, executable, fill=None):
        """What a call lists about an executable; asked again after `fill`, if given."""
        vk, count = self.vk, self.vk.ffi.new("uint32_t *")
        vk.check(call(self.handle, executable, count, vk.NULL), kind)
        rows = vk.ffi.new(kind + "[]", max(1, count[0]))
        for k in range(count[0]):
            rows[k].sType = vk.new(kind).sType
        vk.check(call(self.handle, executable, count, rows), kind)
        if fill is not None:
            buffers = [fill(rows[k]) for k in range(count[0])]
            vk.check(call(self.handle, executable, count, rows), kind)
            return [(vk.ffi.string(rows[k].name).decode(), buffers[k]) for k in range(count[0])]
        values = ("b32", "i64", "u64", "f64")
        return [
            (vk.ffi.string(rows[k].name).decode(), getattr(rows[k].value, values[rows[k].format]))
            for k in range(count[0])
        ]

    def _statistics(self, executable):
        call = self.calls.vkGetPipelineExecutableStatisticsKHR
        return dict(self._rows(call, "VkPipelineExecutableStatisticKHR", executable))

    def _machine_code(self, executable):
        def fill(row):
            row.pData = buffer = self.vk.ffi.new("char[]", row.dataSize + 1)
            return buffer

        call = self.calls.vkGetPipelineExecutableInternalRepresentationsKHR
        kind = "VkPipelineExecutableInternalRepresentationKHR"
        texts = dict(self._rows(call, kind, executable, fill))
        return self.vk.ffi.string(texts["Assembly"]).decode(errors="replace")
