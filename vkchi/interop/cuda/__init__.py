"""Memory shared between Vulkan and CUDA: `driver` calls CUDA, `link` synchronizes both.

Never run on hardware. The tests check the calls, their order and their arguments against the
specifications of CUDA and Vulkan, with a stand-in for CUDA's driver.
"""
