import vkchi as ti


@ti.kernel
def k():
    for i, j in ti.ndrange(100000, 100000):
        pass
