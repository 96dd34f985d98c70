import vkchi as ti

x = ti.field(ti.f32, shape=4)
ti.root.dense(ti.i, 4).place(x)
