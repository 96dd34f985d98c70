import vkchi as ti


@ti.func
def even(n):
    return odd(n - 1)


@ti.func
def odd(n):
    return even(n - 1)


@ti.kernel
def k(n: ti.i32):
    a = even(n)
