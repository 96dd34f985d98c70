"""Thin layer of checked Vulkan calls over the `vulkan` package.

One module each for instances, physical and logical devices, memory, queues, pipelines and query
pools. Policy is in `vkchi.device`: the choice of the device, when to flush, where barriers go.

    >>> from vkchi.vk.raw import load_vulkan
    >>> vk = load_vulkan()
"""
