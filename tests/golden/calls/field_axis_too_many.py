import vkchi as ti

ti.root.dense(ti.axes(8), 4)
