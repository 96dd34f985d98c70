import vkchi as ti


@ti.kernel
def k():
    a, b = 1, 2
    a, b = b, a, 3
