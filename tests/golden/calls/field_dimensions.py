import vkchi as ti

ti.root.dense(ti.ij, (4, 5, 6))
