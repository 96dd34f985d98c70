import vkchi as ti


@ti.kernel
def k():
    w = [1, 2]
    w = [1, 2, 3]
