import vkchi as ti


@ti.kernel
def k():
    v = ti.Vector([1.0, 2.0])
    v += ti.Vector([1.0, 2.0, 3.0])
