import vkchi as ti

x = ti.field(ti.f32)
ti.root.dense(ti.i, 4).place(x)
ti.root.dense(ti.i, 8).place(x)
