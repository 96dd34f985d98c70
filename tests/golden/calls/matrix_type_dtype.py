import vkchi as ti

ti.types.matrix(2, 2, "f33")
