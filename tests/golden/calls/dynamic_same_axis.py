import vkchi as ti

ti.root.dense(ti.ij, 4).dynamic(ti.j, 8)
