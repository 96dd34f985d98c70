import vkchi as ti


@ti.func
def f(a):
    if a > 0:
        return 1


@ti.kernel
def k(n: ti.i32):
    y = f(n)
