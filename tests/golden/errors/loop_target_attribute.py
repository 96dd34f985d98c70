import vkchi as ti


@ti.kernel
def k():
    v = ti.Vector([0, 0])
    for v.x in range(3):
        pass
