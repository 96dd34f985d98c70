import vkchi as ti


@ti.func
def f(a: ti.template()):
    a += 1


@ti.kernel
def k(n: ti.i32):
    f(n + 1)
