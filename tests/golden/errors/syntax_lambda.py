import vkchi as ti


@ti.kernel
def k():
    f = lambda *x: x
