import vkchi as ti

x = ti.field(ti.f32)
block = ti.root.pointer(ti.i, 4)
block.place(x)


@ti.kernel
def k():
    for i in range(4):
        ti.activate(x, [i])


k()
