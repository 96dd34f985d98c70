"""Thin layer of checked Vulkan calls over the `vulkan` package.

There are modules for instances, physical and logical devices, queues, pipelines and timestamp
queries. `memory` has allocators. `recorder` decides when to submit and records
barriers.

    >>> from vkchi.vk.raw import load_vulkan
    >>> vk = load_vulkan()
"""
