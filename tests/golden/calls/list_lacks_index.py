import vkchi as ti

x = ti.field(ti.f32)
ti.root.dense(ti.i, 4).dynamic(ti.j, 8).place(x)


@ti.kernel
def k():
    x[2] += 1.0


k()
