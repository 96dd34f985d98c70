import vkchi as ti


@ti.kernel
def k(n: ti.i32) -> ti.i32:
    if n > 0:
        return 1
    return 2
