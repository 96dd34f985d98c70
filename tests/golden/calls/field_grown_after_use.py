import vkchi as ti

x, y = ti.field(ti.f32), ti.field(ti.f32)
block = ti.root.dense(ti.i, 4)
block.place(x)
x[0] = 1.0
block.place(y)
