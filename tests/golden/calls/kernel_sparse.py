import vkchi as ti

x = ti.field(ti.f32)
block = ti.root.dense(ti.i, 4)
block.place(x)


@ti.kernel
def k():
    for i in block:
        ti.activate(block, [i])


k()
