import vkchi as ti


@ti.func
def f(a):
    return g(a) + 1


@ti.func
def g(a):
    return f(a - 1)


@ti.kernel
def k():
    y = f(3)
