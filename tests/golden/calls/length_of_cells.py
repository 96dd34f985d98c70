import vkchi as ti

x = ti.field(ti.f32)
block = ti.root.pointer(ti.i, 4)
block.place(x)


@ti.kernel
def k() -> ti.i32:
    return ti.length(block, [0])


k()
