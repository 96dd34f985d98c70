import vkchi as ti


@ti.func
def pick(c):
    if c:
        return 1, 2
    return 3


@ti.kernel
def k(n: ti.i32):
    a = pick(n > 0)
