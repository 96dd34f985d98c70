import vkchi as ti


@ti.kernel
def k(s: dict):
    pass
