import vkchi as ti

ti.root.pointer(ti.ij, 4).dense(ti.ij, 8)
