import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    state = 0
    for _ in range(2):
        for i in range(n):
            state = ti.Vector([i, i])
