import vkchi as ti


@ti.func
def pick(c):
    if c:
        return ti.Vector([1.0, 2.0])
    return ti.Vector([1.0, 2.0, 3.0])


@ti.kernel
def k(n: ti.i32):
    a = pick(n > 0)
