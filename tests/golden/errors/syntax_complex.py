import vkchi as ti


@ti.kernel
def k():
    y = 2j
