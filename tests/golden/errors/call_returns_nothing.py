import vkchi as ti


@ti.func
def f(a):
    a += 1


@ti.kernel
def k(n: ti.i32):
    y = f(n) + 1
