import vkchi as ti

ti.array([1, 2])
