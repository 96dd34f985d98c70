import vkchi as ti


@ti.kernel
def k():
    a, b = ti.Vector([1, 2, 3])
