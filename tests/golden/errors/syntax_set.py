import vkchi as ti


@ti.kernel
def k():
    y = {1, 2}
