import vkchi as ti


@ti.kernel
def k():
    a, b, c = 1, 2
