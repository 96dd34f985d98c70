"""The thin layer of raw Vulkan calls over the `vulkan` package.

Owns: instances, physical and logical devices, memory, queues, pipelines, query pools: one module
each, every call checked. Must not know: the IR, kernels, and any policy (which device, when to
flush, where a barrier stands); that is `vkchi.device`.

    >>> from vkchi.vk.raw import load_vulkan
    >>> vk = load_vulkan()
"""
