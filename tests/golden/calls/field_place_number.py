import vkchi as ti

ti.root.dense(ti.i, 4).place(3)
