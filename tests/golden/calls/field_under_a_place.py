import vkchi as ti

x = ti.field(ti.f32)
ti.root.dense(ti.i, 4).place(x)
x.snode.dense(ti.j, 2)
