import vkchi as ti


@ti.real_func
def total(n: ti.i32) -> ti.i32:
    if n == 0:
        return 0
    return total(n - 1) + n


@ti.kernel
def k(n: ti.i32) -> ti.i32:
    return total(n)
