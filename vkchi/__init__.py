"""vkchi: kernels in Python, on any vendor's GPU. `import vkchi as ti`."""
