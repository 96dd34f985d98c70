"""Memory that Vulkan and CUDA both see: `driver` calls CUDA, `link` puts both in order.

Never run on hardware: tests hold what is called, in which order and with what, against the
specifications of CUDA and Vulkan, on a driver that stands in for CUDA's.
"""
