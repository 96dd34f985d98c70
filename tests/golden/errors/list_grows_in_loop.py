import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    w = [n]
    for _ in range(1):
        for i in range(n):
            w.append(i)
