import vkchi as ti


@ti.kernel
def k():
    s = 0.0
    s += ti.Vector([1.0, 2.0])
