import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    for _ in range(1):
        path = [0, 1]
        for i in range(n):
            path = [i, i, i]
