import vkchi as ti


@ti.func
def f(*args):
    return args[0]


@ti.kernel
def k():
    y = f(1, 2)
