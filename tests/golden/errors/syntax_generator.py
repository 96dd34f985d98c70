import vkchi as ti


@ti.kernel
def k():
    y = sum(i for i in range(3))
