import vkchi as ti


@ti.kernel
def k(n: ti.i32) -> ti.i32:
    add = lambda a, b: a + b
    return add(n)
