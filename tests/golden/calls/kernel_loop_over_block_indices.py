import vkchi as ti

x = ti.field(ti.f32)
block = ti.root.dense(ti.i, 4)
block.dense(ti.j, 2).place(x)


@ti.kernel
def k():
    for i, j in block:
        x[i, j] = 1.0


k()
