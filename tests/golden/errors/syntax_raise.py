import vkchi as ti


@ti.kernel
def k():
    raise ValueError
