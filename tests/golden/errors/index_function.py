import vkchi as ti


@ti.kernel
def k():
    y = ti.sin[0]
