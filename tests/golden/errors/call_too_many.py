import vkchi as ti


@ti.func
def f(a, b=1):
    return a + b


@ti.kernel
def k():
    y = f(1, 2, 3)
