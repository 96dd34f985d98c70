import vkchi as ti

ti.Vector([1, 2]) + ti.Vector([1, 2, 3])
