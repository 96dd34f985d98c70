import vkchi as ti


@ti.kernel
def k():
    u = ti.Vector([1.0, 2.0])
    u = ti.Vector([1.0, 2.0, 3.0])
