import vkchi as ti


@ti.kernel
def k():
    x = ti.u8(-1)
