import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    if n > 0 and (a := n // 2) > 1:
        b = a
