"""Thin layer of checked Vulkan calls over the `vulkan` package.

One module each for instances, physical and logical devices, memory, queues, pipelines and query
pools. `vkchi.device` chooses the device; `recorder` decides when to submit and where barriers go.

    >>> from vkchi.vk.raw import load_vulkan
    >>> vk = load_vulkan()
"""
