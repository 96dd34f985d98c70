import vkchi as ti


@ti.kernel
def k():
    y = ti.sqrt(1.0, 2.0, 3.0)
