import vkchi as ti


@ti.kernel
def k(n):
    pass
