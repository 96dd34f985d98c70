import vkchi as ti

ti.root.dense("ij", 4)
