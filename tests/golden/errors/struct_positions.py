import vkchi as ti


@ti.kernel
def k():
    s = ti.Struct(1, 2)
