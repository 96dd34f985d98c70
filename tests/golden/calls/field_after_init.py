import vkchi as ti

x = ti.field(ti.f32)
ti.init()
ti.root.dense(ti.i, 4).place(x)
