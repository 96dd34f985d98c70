import vkchi as ti


@ti.func
def pair(x):
    return x, x + 1


@ti.kernel
def k():
    a, b, c = pair(1)
