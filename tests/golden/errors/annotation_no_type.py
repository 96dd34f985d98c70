import vkchi as ti

settings = 3


@ti.kernel
def k():
    a: settings = 1
