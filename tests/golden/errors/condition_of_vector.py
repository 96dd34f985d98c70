import vkchi as ti


@ti.kernel
def k():
    v = ti.Vector([1, 2])
    if v > 0:
        pass
