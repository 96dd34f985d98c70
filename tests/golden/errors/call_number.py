import vkchi as ti

n = 4


@ti.kernel
def k():
    y = n(3)
