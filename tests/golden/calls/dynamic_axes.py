import vkchi as ti

ti.root.dynamic(ti.ij, 8)
