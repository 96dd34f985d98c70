"""Disk cache of compiled kernels, and the `vkchi cache` tools."""
