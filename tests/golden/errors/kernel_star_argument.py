import vkchi as ti


@ti.kernel
def k(*x):
    pass
