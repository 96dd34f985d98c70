import vkchi as ti

ti.root.dense(ti.axes(0, 1, 0), 4)
