import vkchi as ti

ti.Matrix([[1, 2], [3]])
