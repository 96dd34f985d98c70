import vkchi as ti


@ti.func
def f(a: ti.template()):
    return f(a + 1)


@ti.kernel
def k():
    y = f(3)
