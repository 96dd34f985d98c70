import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    w = [n]
    if n > 0:
        w.append(n)
