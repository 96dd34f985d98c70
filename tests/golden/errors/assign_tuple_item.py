import vkchi as ti


@ti.kernel
def k():
    t = (1, 2)
    t[0] = 3
